"""/dev/shm is small, and a worker maps more than there is."""
# code: 120
# class: killed
# rank: 2
# signal: SIGBUS
# kind: shared-memory-full
# around: exec unshare --mount sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' - "$@"
# says: was killed by SIGBUS
# says: /dev/shm is 1 MiB
import mmap
import os
import time

if os.environ["RANK"] == "2":
    with open("/dev/shm/batch", "w+b") as f:
        f.truncate(4 << 20)
        batch = mmap.mmap(f.fileno(), 4 << 20)
        batch.write(b"x" * (4 << 20))
time.sleep(1000)
