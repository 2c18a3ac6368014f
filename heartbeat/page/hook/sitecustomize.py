# Python runs this file when it starts, for muster put its directory first in PYTHONPATH. It waits for PyTorch to be imported,
# goes to the end of the way, and lets Python run the sitecustomize that it would have run without it. Any Python reads this.
import os
import sys


def _step_aside(here):
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # theirs, if there is one; what it raises is theirs, too
    except ImportError as e:
        if getattr(e, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)
        sys.path.append(here)  # so that muster_beat can be imported, and other versions of torch find the entry point


def _begin(here):
    try:
        if sys.version_info >= (3, 6):
            import _muster_hook

            _muster_hook.refuse_launcher()
            _muster_hook.watch()
    except Exception:
        pass  # a training without heartbeats is better than none
    sys.path[:] = [d for d in sys.path if d != here]
    _step_aside(here)


_begin(os.path.dirname(__file__))
