"""Is torchrun, or where ENV_FROM names a pipe, a worker that begins when its environment comes through that.

beside_torchrun.py [TORCHRUN OPTIONS...] SCRIPT WORLD_SIZE
"""
import json
import os
import runpy
import sys

if "ENV_FROM" in os.environ:
    with open(os.environ["ENV_FROM"]) as pipe:
        os.environ.update(json.load(pipe))
    sys.argv = sys.argv[-2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    runpy.run_path(os.path.join(os.path.dirname(sys.argv[0]), "torchrun.py"), run_name="__main__")
