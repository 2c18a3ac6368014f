"""What a training is to a play: all workers add up their numbers, and each says who it is."""
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: together {int(total)}", flush=True)
dist.barrier()
assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size()
dist.destroy_process_group()
