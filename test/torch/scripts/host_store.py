"""Hosts a TCPStore until a client sets "done", then checks what the client left in it.

host_store.py PORT classic|libuv
"""
import sys
from datetime import timedelta

import torch.distributed as dist

port, kind = int(sys.argv[1]), sys.argv[2]
server = {"use_libuv": kind == "libuv"} if hasattr(dist.TCPStore, "append") else {}
store = dist.TCPStore("127.0.0.1", port, None, True, timedelta(seconds=60), wait_for_workers=False, **server)
store.set("from the host", "hello")
assert store.get("done") == b"yes"
assert store.get("k") == b"v"
assert store.get("e") == b""
assert store.get("n") == b"-2"
assert store.get("c") == b"z"
assert store.get("m1") == b"A" and store.get("m2") == b"BB"
if hasattr(store, "append"):
    assert store.get("a") == b"123"
if kind == "libuv" and hasattr(store, "queue_push"):
    assert store.queue_len("q") == 1 and store.queue_pop("q") == b"B"
store.set("seen", "yes")
assert store.get("bye") == b"yes"
