"""Sets a key of its own in somebody's store and gets those of all others, each of which may be another PyTorch.

exchange.py HOST PORT NAME NAME...
"""
import os
import sys
from datetime import timedelta

import torch.distributed as dist

host, port, me, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
build = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
store = dist.TCPStore(host, port, None, False, timedelta(seconds=60), **build)
store.set("from " + me, "hello from " + me)
for name in names:
    assert store.get("from " + name) == f"hello from {name}".encode()
if store.add("met", 1) == len(names):
    store.set("all met", "")
store.wait(["all met"])
