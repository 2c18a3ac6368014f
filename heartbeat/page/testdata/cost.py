# A real DDP training of ranks with one thread each, in blocks of steps that have the hook's thread by turns. Rank 0 prints, for each
# block, the seconds of a step and its CPU time in all threads: with, without, with, …
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
hook, data = sys._muster_hook, torch.randn(64, 256)


def steps(n):
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(n):
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - begin) / n, (time.process_time() - used) / n


steps(50)
took = torch.tensor(steps(50)[0])
dist.broadcast(took, 0)
each = max(10, int(1.5 / took))
for block in range(24):
    if block % 2:
        hook.rest()
    else:
        hook.go_on()
    dist.barrier()
    print(*steps(each), flush=True)
sys.stdin.readline()
