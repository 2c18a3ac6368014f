"""A shared library is missing on one node."""
# code: 1
# class: failed
# rank: 3
# exit: 1
# exception: OSError: libcudart.so.99: cannot open shared object file: No such file or directory
# kind: shared-library
# says: a shared library is missing; all 2 nodes stopped; exit 1
import ctypes
import os
import time

if os.environ["RANK"] == "3":
    ctypes.CDLL("libcudart.so.99")
time.sleep(1000)
