"""Runs scripts as workers, one world after another, with PyTorch imported once for all of them.

Each line of standard input is a world as JSON: {"script": path, "args": [...], "envs": [{...} for each rank], "seconds": n}.
Each line of standard output is what became of it: {"ends": ["ok" | "exit 1: last line" | "hang" for each rank], "output": "..."}.

A worker is a fork of this process, taken while it has a single thread. What is in its environment takes the place of
what this process has under the same name.
"""
import ctypes
import functools
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed

PR_SET_CHILD_SUBREAPER = 36


def start(script, args, env, out):
    """Forks one worker and returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(script)
    ask_for_no_libuv(env)
    code = 1
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ask_for_no_libuv(env):
    """Makes a build without libuv do what others do: it refuses to be a client of an agent's store, where nobody can ask it not to."""
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and env.get("USE_LIBUV") == "0":
        rendezvous = sys.modules["torch.distributed.rendezvous"]
        rendezvous.TCPStore = functools.partial(rendezvous.TCPStore, use_libuv=False)


def wait(pids, deadline):
    """Waits for all workers; returns status by pid. One that ran past the deadline, or long after another failed, is absent."""
    status = {}
    while not set(pids) <= set(status) and time.monotonic() < deadline:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if not pid:
            time.sleep(0.005)
            continue
        status[pid] = how
        if how and pid in pids:
            deadline = min(deadline, time.monotonic() + 3)
    return status


def kill_all():
    """Ends what the workers left. Orphans come to this process, for it is a subreaper."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as f:
            children = [int(pid) for pid in f.read().split()]
        if not children:
            return
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def end(status, text):
    """Says how a worker ended."""
    if status is None:
        return "hang"
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    lines = [line for line in text.splitlines() if line.strip()]
    return "ok" if status == 0 else f"exit {os.WEXITSTATUS(status)}: {lines[-1] if lines else ''}"


def run(world):
    """Runs one world to its end."""
    outs = [tempfile.TemporaryFile() for _ in world["envs"]]
    pids = [start(world["script"], world["args"], env, out) for env, out in zip(world["envs"], outs)]
    status = wait(pids, time.monotonic() + world["seconds"])
    kill_all()
    texts = []
    for out in outs:
        out.seek(0)
        texts.append(out.read().decode(errors="replace"))
        out.close()
    ends = [end(status.get(pid), text) for pid, text in zip(pids, texts)]
    return {"ends": ends, "output": "".join(f"rank {r}: {line}\n" for r, text in enumerate(texts) for line in text.splitlines())}


ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
print(json.dumps({"torch": torch.__version__}), flush=True)
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
