"""Runs command lines of `accelerate launch`: see drive.py."""
import importlib
import sys
import types

import accelerate.utils.launch
import torch.distributed.run  # noqa: F401, which the launcher would load in each process
from accelerate.commands import accelerate_cli, launch
from accelerate.commands.config import config_args
from drive import serve


def pretend():
    """What the machine need not have to start workers: libraries that the workers would load."""
    accelerate.utils.launch.is_fp8_available = lambda: True
    launch.is_deepspeed_available = lambda: True
    accelerate.utils.launch.is_port_in_use = lambda port=None: False  # all machines are this one: the other's store may be there already
    runner = types.ModuleType("deepspeed.launcher.runner")
    runner.DEEPSPEED_ENVIRONMENT_NAME = "/nowhere/.deepspeed_env"
    for name in "deepspeed", "deepspeed.launcher":
        sys.modules[name] = types.ModuleType(name)
    sys.modules[runner.__name__] = runner


def main():
    importlib.reload(config_args)  # which looked for the file when it was loaded
    launch.default_config_file = config_args.default_config_file
    launch.load_config_from_file = config_args.load_config_from_file
    pretend()
    accelerate_cli.main()


serve(accelerate.__version__, main)
