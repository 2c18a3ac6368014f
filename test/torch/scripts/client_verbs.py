"""Uses every verb that this PyTorch's TCPStore has, as a client of somebody's store, and checks each answer.

client_verbs.py HOST PORT PREFIX
"""
import os
import sys
from datetime import timedelta

import torch.distributed as dist

host, port, prefix = sys.argv[1], int(sys.argv[2]), sys.argv[3]
build = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
tcp = dist.TCPStore(host, port, None, False, timedelta(seconds=30), **build)
store = dist.PrefixStore(prefix, tcp)
k = prefix + "/"


def raises(call, *args):
    try:
        call(*args)
    except Exception:
        return True
    return False


store.set("k", "v")
assert store.get("k") == b"v"
store.set("e", "")
assert store.get("e") == b""
store.set("big", "x" * (1 << 20))
assert store.get("big") == b"x" * (1 << 20)
assert store.add("n", 5) == 5 and store.add("n", -7) == -2 and store.get("n") == b"-2"
assert store.delete_key("k") and not store.delete_key("k")
store.wait(["e", "n"])
store.wait(["e"], timedelta(seconds=30))

assert tcp.compare_set(k + "c", "", "x") == b"x"
assert tcp.compare_set(k + "c", "y", "z") == b"x"
assert tcp.compare_set(k + "c", "x", "z") == b"z"
assert tcp.compare_set(k + "missing", "expected", "z") == b"expected"
assert tcp.num_keys() >= 4
if hasattr(tcp, "check"):
    assert tcp.check([k + "e", k + "n"]) and not tcp.check([k + "e", k + "missing"])

# After a wait that timed out the connection must be in step: PyTorch 1.13 itself does not manage that.
assert raises(store.wait, ["nobody sets this"], timedelta(milliseconds=200))
assert store.add("n", 3) == 1
store.set("nobody sets this", "but now somebody does")
assert store.add("n", 1) == 2

seen = "set get add delete_key wait compare_set num_keys"
if hasattr(tcp, "append"):
    store.append("a", "12")
    store.append("a", "")
    store.append("a", "3")
    store.multi_set(["m1", "m2"], ["A", "BB"])
    assert store.get("a") == b"123" and store.multi_get(["m2", "m1"]) == [b"BB", b"A"]
    seen += " append multi_set multi_get"
if hasattr(tcp, "queue_push") and not build:
    for value in "A", "B", "":
        tcp.queue_push(k + "q", value)
    assert tcp.queue_len(k + "q") == 3
    assert [tcp.queue_pop(k + "q") for _ in range(3)] == [b"A", b"B", b""]
    assert raises(tcp.queue_pop, k + "q", False)
    seen += " queue_push queue_len queue_pop"
if hasattr(tcp, "list_keys"):
    assert {k + "e", k + "n"} <= set(tcp.list_keys())
    seen += " list_keys"
if hasattr(tcp, "barrier"):
    tcp.barrier(k + "b", 1)
    assert raises(tcp.barrier, k + "b2", 2, timedelta(milliseconds=200))
    assert store.add("n", 1) == 3
    seen += " barrier"
print("verbs:", seen)
