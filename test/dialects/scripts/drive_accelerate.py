"""Runs accelerate's command lines, which come as JSON, one a line: {"argv": [...], "env": {...}, "log": FILE}. Each is the real
`accelerate launch` in a process of its own, forked from this one, so that its libraries are loaded once. What is answered
is its exit status."""
import importlib
import json
import os
import signal
import sys
import traceback
import types

import accelerate.utils.launch
import torch.distributed.run  # noqa: F401, which the launcher would load in each process
from accelerate.commands import accelerate_cli, launch
from accelerate.commands.config import config_args


def pretend():
    """What the machine need not have to start workers: libraries that the workers would load."""
    accelerate.utils.launch.is_fp8_available = lambda: True
    launch.is_deepspeed_available = lambda: True
    runner = types.ModuleType("deepspeed.launcher.runner")
    runner.DEEPSPEED_ENVIRONMENT_NAME = "/nowhere/.deepspeed_env"
    for name in "deepspeed", "deepspeed.launcher":
        sys.modules[name] = types.ModuleType(name)
    sys.modules[runner.__name__] = runner


def become(case):
    """Runs a command line in this process, as its program would."""
    log = os.open(case["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(case["env"])
    importlib.reload(config_args)  # which looked for the file when it was loaded
    launch.default_config_file = config_args.default_config_file
    launch.load_config_from_file = config_args.load_config_from_file
    pretend()
    sys.argv = case["argv"]
    accelerate_cli.main()


def run(case):
    signal.alarm(120)  # a machine that waits for one that failed ends
    try:
        become(case)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


print(json.dumps({"ready": accelerate.__version__}), flush=True)
for line in sys.stdin:
    pids = []
    for case in json.loads(line):
        pid = os.fork()
        if pid == 0:
            run(case)
        pids.append(pid)
    print(json.dumps({"codes": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]}), flush=True)
