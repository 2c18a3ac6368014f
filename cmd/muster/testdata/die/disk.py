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

begun = os.environ["SHARED"] + "/begun-"
open(begun + os.environ["RANK"], "w").close()
if os.environ["RANK"] == "3":
    while not os.path.exists(begun + "2"):  # until its Python has compiled what it imports: then that file goes, and there would be room again
        time.sleep(0.01)
    with open(os.environ["TMPDIR"] + "/checkpoint", "wb", buffering=0) as f:
        while True:
            f.write(b"x" * 65536)
time.sleep(1000)
