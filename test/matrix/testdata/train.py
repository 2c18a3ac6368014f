"""A training in small: gloo, and an all_reduce in a loop until rank 0 finds the file "finish".

It tells of itself in the stage's book, a line each: the time, the machine, rank, world size, round, pid, local rank, and
what happened. Two locks, which the kernel gives back when it dies, stand for what a GPU would show: that it is alive, and
that the slot is taken.
"""
import fcntl
import os
import signal
import time
from datetime import timedelta

if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
stage, machine = os.environ["STAGE"], os.environ["MACHINE"]
rank, size, local, turn = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"))
book = os.open(f"{stage}/book", os.O_WRONLY | os.O_APPEND)


def tell(what):
    os.write(book, f"{time.monotonic_ns()} {machine} {rank} {size} {turn} {os.getpid()} {local} {what}\n".encode())


def lock(name, how):
    file = open(f"{stage}/{name}", "a")
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return file


life = lock(f"alive/{turn}.{machine}.{local}.{os.getpid()}", fcntl.LOCK_EX)
tell("up")
slot = lock(f"slot.{machine}.{local}", fcntl.LOCK_EX)
if not slot:
    tell("taken")
for other in os.listdir(f"{stage}/alive"):
    if int(other.split(".")[0]) < turn and not lock(f"alive/{other}", fcntl.LOCK_SH):
        tell(f"outlived:{other}")

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=120))
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
stop = False
while not stop:
    sums = torch.tensor([1, rank, rank == 0 and os.path.exists(f"{stage}/finish")], dtype=torch.int64)
    tell("step")
    dist.all_reduce(sums)
    tell("stepped")
    assert sums[0] == size and sums[1] == size * (size - 1) // 2, sums
    stop = sums[2] > 0
    time.sleep(0.02)
tell("done")
