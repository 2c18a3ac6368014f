"""Steps of ZeRO stage 1 with a configuration that DeepSpeed's tuner hands over, or one that it left: a trial ends within them."""
import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
args = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.init_distributed("gloo")
dist = torch.distributed
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
torch.manual_seed(rank)
for _ in range(8):
    engine.backward(engine(torch.randn(engine.train_micro_batch_size_per_gpu(), 64)).pow(2).mean())
    engine.step()

mine = torch.cat([p.detach().flatten() for p in engine.module.parameters()])
everyone = [torch.empty_like(mine) for _ in range(n)]
dist.all_gather(everyone, mine)
assert all(torch.equal(mine, other) for other in everyone), everyone
os.write(1, f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}\n".encode())  # at once, for another rank writes to the same pipe
dist.barrier()
dist.destroy_process_group()
