"""The demo's training, as long and in as large a world as the manifest says."""
import os
import runpy
import sys

expect = os.environ.get("EXPECT_WORLD") or os.environ["NUM_PROCESSES"]  # as the seed's script has it
epochs = os.environ.get("EPOCHS", "6").split()  # of the first round and of those after it
sys.argv = ["train.py", "--expect-world", expect, "--epochs", epochs[0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else -1]]
runpy.run_path("/app/demo/train.py", run_name="__main__")
