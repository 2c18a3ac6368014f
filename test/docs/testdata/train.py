"""The training of lines that ask for none in particular: it says who it is, and ends. With "stay" it does not end."""
import os
import signal
import sys

rank = os.environ.get("RANK")
sys.stdout.write("world size %s rank %s\n" % (os.environ.get("WORLD_SIZE"), rank))  # at once: torchrun's ranks share a pipe
sys.stdout.flush()
if os.environ.get("KILLED") == rank:
    os.kill(os.getpid(), signal.SIGKILL)
if "raise=" + rank in sys.argv:
    raise ValueError("bad seed")
if "stay" in sys.argv:
    if os.environ["LOCAL_RANK"] == "0":
        with open("began", "w") as began:
            began.write("\n")
    while True:
        signal.pause()
