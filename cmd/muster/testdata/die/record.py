"""A script raises an exception under torch's @record, which leaves it in a file; standard error is of no help."""
# code: 1
# class: failed
# rank: 1
# exit: 1
# python: debian newest
# exception: ValueError: no such split: vaild
# says: exited with code 1: ValueError: no such split: vaild; all 2 nodes stopped; exit 1
import os
import sys
import time

if os.environ["RANK"] != "1":
    time.sleep(1000)

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    sys.stderr = open(os.devnull, "w")
    raise ValueError("no such split: vaild")


main()
