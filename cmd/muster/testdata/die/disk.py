"""A file system is full."""
# code: 1
# class: failed
# rank: 3
# exit: 1
# exception: OSError: [Errno 28] No space left on device
# kind: disk-full
# around: exec unshare --mount sh -c 'mount -t tmpfs -o size=1m none "$TMPDIR" && exec "$@"' - "$@"
# says: OSError: [Errno 28] No space left on device; a file system is full
# says: is 1 MiB and full; all 2 nodes stopped; exit 1
import os
import time

if os.environ["RANK"] == "3":
    with open(os.environ["TMPDIR"] + "/checkpoint", "wb", buffering=0) as f:
        while True:
            f.write(b"x" * 65536)
time.sleep(1000)
