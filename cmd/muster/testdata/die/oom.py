"""A worker needs more memory than its container may have."""
# code: 137
# class: oom
# rank: 2
# signal: SIGKILL
# kind: oom
# memory: 256 MiB
# says: was killed by SIGKILL, which muster did not send; the kernel killed a process of its container for want of memory (limit 256 MiB)
import os
import time

if os.environ["RANK"] == "2":
    b"x" * (1 << 29)
time.sleep(1000)
