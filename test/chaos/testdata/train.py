"""A training in small that comes to the same bits however often it is interrupted: gloo on CPU, DDP, a checkpoint every tenth step.

train.py [STEPS]: that many; else until rank 0 finds the file "finish". It tells of itself in the stage's book, a line each: the time, the
machine, rank, world size, round, pid, what happened, step, and a digest of the parameters.
"""
import hashlib
import os
import shutil
import sys
import time
from datetime import timedelta

stage, machine, scratch = (os.environ[k] for k in ("STAGE", "MACHINE", "SCRATCH"))
rank, size, turn = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
limit = int(sys.argv[1]) if len(sys.argv) > 1 else None
kept = f"{stage}/{'reference' if limit else 'checkpoint'}"
book = os.open(f"{stage}/book", os.O_WRONLY | os.O_APPEND)


def tell(what, step=0, digest="-"):
    os.write(book, f"{time.monotonic_ns()} {machine} {rank} {size} {turn} {os.getpid()} {what} {step} {digest}\n".encode())


tell("up")

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(minutes=30))
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def backward(step):
    draw = torch.Generator().manual_seed(step * size + rank)
    x = torch.randn(16, 32, generator=draw)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), torch.sin(x.sum(1, keepdim=True))).backward()


def digest():
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16]


def save(step):
    """By way of this machine's own disk, as many do."""
    torch.save({"step": step, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, f"{scratch}/checkpoint")
    shutil.copy(f"{scratch}/checkpoint", f"{kept}.new")
    os.remove(f"{scratch}/checkpoint")
    tell("kept", step, digest())  # before it is: who dies in between has told, and tells the same again
    os.replace(f"{kept}.new", kept)


# After the first step DDP deals the gradients out to its buckets anew, and their place in a bucket says in which order ranks are summed up: that
# step is one that counts for nothing, or a training that goes on would differ from one that was never interrupted.
backward(0)
optimizer.zero_grad()
step = 0
if os.path.exists(kept):
    old = torch.load(kept)
    step = old["step"]
    net.load_state_dict(old["net"])
    optimizer.load_state_dict(old["optimizer"])
dist.barrier()  # nobody keeps another one before all have read this

stop = False
while not stop:
    step += 1
    backward(step)
    optimizer.step()
    last = torch.tensor([step == limit if limit else rank == 0 and os.path.exists(f"{stage}/finish")], dtype=torch.int64)
    dist.all_reduce(last)
    stop = last[0] > 0
    if not limit:
        tell("stepped", step)
        time.sleep(0.02)
    if rank == 0 and step % 10 == 0:
        save(step)
    if os.path.exists(f"{scratch}/hungry"):
        os.remove(f"{scratch}/hungry")
        hoard = [bytearray(b"x" * (1 << 20)) for _ in range(1024)]
if rank == 0 and os.path.exists(f"{scratch}/checkpoint"):  # of a worker that came to no good; without faults all ranks share the machine
    os.remove(f"{scratch}/checkpoint")
tell("done", step, digest())
