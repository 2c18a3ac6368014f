"""Runs command lines of torchrun and of torch.distributed.launch: see drive.py."""
import sys

import torch
import torch.distributed.launch
import torch.distributed.run
from drive import serve


def main():
    if sys.argv[0] == "torchrun":
        torch.distributed.run.main()
    else:  # python -m torch.distributed.launch
        del sys.argv[:2]
        torch.distributed.launch.main()


serve(torch.__version__, main)
