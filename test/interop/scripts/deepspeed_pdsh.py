"""What came from one node to the workers of all, by DeepSpeed's own launcher or a link of its name: arguments and .deepspeed_env."""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)
assert sys.argv[1:] == ["--local_rank=" + os.environ["LOCAL_RANK"], "--lr", "a b"], sys.argv
assert os.environ["FROM_FILE"] == "c d", os.environ["FROM_FILE"]
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
os.write(1, f"rank {rank} of {n}: together {total.item()}\n".encode())  # at once, for another rank writes to the same pipe
dist.barrier()
dist.destroy_process_group()  # its threads, left to the end of the process, sometimes abort it
os._exit(int(os.environ["CODE"]) if rank == 3 else 0)
