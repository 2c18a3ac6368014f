# As much of PyTorch as the hook touches, for tests of Python itself. FAKE_TORCH says of which kind.
import os
import sys
import types

__version__ = "1.13.0" if os.environ.get("FAKE_TORCH") == "old" else "2.8.0"
if os.environ.get("FAKE_TORCH") == "broken":
    raise ImportError("libtorch.so: cannot open shared object file")

autograd = types.SimpleNamespace(backward=lambda *_: None)
compiler = types.SimpleNamespace(is_compiling=lambda: False)

from . import optim

_C = types.ModuleType("torch._C")
_lib = types.ModuleType("torch._C._distributed_c10d")
sys.modules["torch._C"], sys.modules["torch._C._distributed_c10d"] = _C, _lib
if __version__ != "1.13.0":
    import importlib.metadata

    _lib._dump_fr_trace_json = lambda *_: b'{"pg_status": {}}'
    for point in importlib.metadata.entry_points(group="torch.backends"):
        point.load()()
