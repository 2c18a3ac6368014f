"""A training that heals itself: the ranks exchange gradients through the workers' store, and one that comes back takes the
others' weights and goes on at the step at which it died. It ends when the file that its argument names is there. Rank 0 must not die."""
import os
import sys
import time
from datetime import timedelta

import torch
from torch.distributed import TCPStore

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, False, timedelta(minutes=2), wait_for_workers=False)


def load(key):
    return torch.frombuffer(bytearray(store.get(key)), dtype=torch.float64)


def save(key, values):
    store.set(key, values.numpy().tobytes())


step = store.add(f"steps/{rank}", 0)
weights = load(f"weights/{step}") if step else torch.zeros(4, dtype=torch.float64)
print(f"rank {rank} life {life} pid {os.getpid()} at step {step}", flush=True)
last = False
while not last:
    random = torch.Generator().manual_seed(step * size + rank)
    x = torch.randn(8, 4, generator=random, dtype=torch.float64)
    w = weights.clone().requires_grad_()
    ((x @ w - x.sum(1)) ** 2).mean().backward()
    enough = os.path.exists(sys.argv[1])  # rank 0's word counts
    save(f"grad/{step}/{rank}", torch.cat([w.grad, torch.tensor([enough], dtype=torch.float64)]))
    grads = [load(f"grad/{step}/{r}") for r in range(size)]
    weights, last = weights - 0.01 * sum(grads)[:4] / size, bool(grads[0][4])
    step += 1
    save(f"weights/{step}", weights)
    store.add(f"steps/{rank}", 1)
    time.sleep(0.01)
print(f"after step {step}: {weights.tolist()}", flush=True)
