"""Takes training steps, the same in every run, and says a line for each, until the file END names the last one.

steps.py WORLD_SIZE PAUSE END

Then it tells what it has learned, and by how much the longest time between two steps exceeded the PAUSE in seconds.
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

world, pause, end = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
assert dist.get_world_size() == world, dist.get_world_size()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.Generator().manual_seed(dist.get_rank())

step, steps, gaps, before = 0, None, [], None
while step != steps:
    batch = torch.randn(16, 32, generator=data)
    optimizer.zero_grad()
    (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    step += 1
    print("line", step, flush=True)
    now = time.monotonic()
    if before and step > 20:  # the first ones find caches cold
        gaps = sorted(gaps + [now - before - pause])[-5:]
    before = now
    time.sleep(pause)
    if steps is None and os.path.exists(end):
        steps = int(open(end).read())
        assert steps > step, f"told after step {step} to end with step {steps}"

print("last", step, flush=True)
learned = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("learned", hashlib.sha256(learned).hexdigest(), flush=True)
print("longest", *(f"{1000 * g:.1f}" for g in reversed(gaps)), "ms", flush=True)
dist.destroy_process_group()
