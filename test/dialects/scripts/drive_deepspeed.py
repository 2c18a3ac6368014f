"""Runs deepspeed's command lines, which come as JSON: a list of what each node would run, {"argv": [...], "env": {...}, "log": FILE}.
Each line is the real launcher in a process of its own, forked from this one, so that its libraries are loaded once: the runner on
the first node, or with --no_ssh on each, and what it would start by pdsh or here, launch.py, forked again. A shell reads what
pdsh would give to one. What is answered is the exit statuses."""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
from deepspeed.launcher import launch, multinode_runner, runner  # noqa: E402

# A program in Python's place, for the shell of a remote node: it tells its arguments and its environment.
TOLD = 'exec "%s" -c "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))" "$@"\n' % sys.executable


class Started:
    """What subprocess.Popen returns, as far as the runner looks."""

    def __init__(self, pids):
        self.pids, self.returncode = pids, None

    def wait(self):
        self.returncode = max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids)


def fork(work, *args):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(*args)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def launching(argv, env):
    """Is launch.py on one node: argv follows the interpreter."""
    assert argv[:3] == ["-u", "-m", "deepspeed.launcher.launch"], argv
    os.environ.clear()
    os.environ.update(env)
    launch.time.sleep = lambda _: wait(0.01)
    launch.PID_FILE_BASEPATH = env["DUMPS"]  # it leaves the file there
    sys.argv = argv[2:]
    launch.main()


def remotely(words, env):
    """Is the shell that pdsh would start on a node, and then launch.py."""
    stub = os.path.join(tempfile.mkdtemp(), "python")
    with open(stub, "w") as f:
        f.write("#!/bin/sh\n" + TOLD)
    os.chmod(stub, 0o755)
    line = " ".join(words).replace(sys.executable, stub)
    argv, env = json.loads(subprocess.run(["bash", "-c", line], env=env, stdout=subprocess.PIPE, check=True).stdout)
    launching(argv, env)


def running(nodes):
    """Is the runner on the first of these nodes."""
    node = nodes[0]
    log = os.open(node["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(node["env"])

    def popen(cmd, env=None):
        if cmd[0] == sys.executable:
            return Started([fork(launching, cmd[1:], env)])
        assert cmd[:5] == ["pdsh", "-S", "-f", "1024", "-w"], cmd
        hosts, words = cmd[5].split(","), cmd[6:]
        by_name = {n["env"]["HOST"]: n["env"] for n in nodes}
        return Started([fork(remotely, [w.replace("%n", str(i)) for w in words], by_name[h]) for i, h in enumerate(hosts)])

    runner.subprocess = type("subprocess", (), {
        "Popen": staticmethod(popen), "check_call": staticmethod(lambda *_, **__: 0), "DEVNULL": subprocess.DEVNULL,
        "check_output": staticmethod(lambda *_: b"127.0.0.1 \n"), "CalledProcessError": subprocess.CalledProcessError,
    })
    multinode_runner.shutil = type("shutil", (), {"which": staticmethod(lambda name: name)})
    runner.DEEPSPEED_ENVIRONMENT_NAME = os.environ.get("DS_ENV_FILE", ".deepspeed_env")
    runner.DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]
    sys.argv = node["argv"]
    runner.main()


wait = time.sleep
print(json.dumps({"ready": deepspeed.__version__}), flush=True)
for line in sys.stdin:
    nodes = json.loads(line)
    alone = "--no_ssh" in nodes[0]["argv"]
    pids = [fork(running, [node]) for node in nodes] if alone else [fork(running, nodes)]
    print(json.dumps({"codes": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]}), flush=True)
