# One process of an all-reduce that muster check --peers measures. It says "ready" when PyTorch is there, waits for a line, and answers with one.
import json
import os
import sys
import time
from datetime import timedelta

told = sys.stdout
sys.stdout = sys.stderr


def say(**what):
    print(json.dumps(what), file=told, flush=True)


a = json.loads(sys.argv[1])
try:
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if a["gpu"] >= 0:
        torch.cuda.set_device(a["gpu"])
        device = torch.device("cuda", a["gpu"])
        torch.ones(1, device=device)
except BaseException as e:
    say(own=True, error=f"PyTorch does not start: {type(e).__name__}: {e}"[:300])
    sys.exit(0)
say(ready=True)
sys.stdin.readline()


def done():
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


try:
    patience = timedelta(seconds=a["patience"])
    store = dist.TCPStore(a["host"], a["port"], None, False, timeout=patience)
    dist.init_process_group("gloo" if a["gpu"] < 0 else "nccl", store=dist.PrefixStore(a["prefix"], store), rank=a["rank"], world_size=a["size"], timeout=patience)
    took, number = 0.0, 1 << 14
    while took < a["each"] and number < a["most"]:
        number *= 2
        x = torch.full((number,), float(a["rank"] + 1), device=device)
        dist.all_reduce(x)
        want = a["size"] * (a["size"] + 1) / 2
        wrong = x[x != want]
        if len(wrong):
            raise ArithmeticError(f"{len(wrong)} of {number} sums are wrong: {wrong[0].item()} in place of {want}")
        x.zero_()
        began = done()
        dist.all_reduce(x)
        slowest = torch.tensor([done() - began], device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        took = slowest.item()
    say(mbps=2 * (a["size"] - 1) / a["size"] * number * 4 * 8 / took / 1e6)
except BaseException as e:
    say(own=isinstance(e, ArithmeticError), error=f"{type(e).__name__}: {e}"[:300])
told.flush()
os._exit(0)  # who waits for peers that are gone would wait here, too
