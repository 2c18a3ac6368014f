"""Prints to what DeepSpeed has numactl bind each worker of machines that come as JSON."""
import contextlib
import importlib.util
import json
import sys

import psutil

spec = importlib.util.spec_from_file_location("numa", importlib.util.find_spec("deepspeed").submodule_search_locations[0] + "/utils/numa.py")
numa = importlib.util.module_from_spec(spec)
spec.loader.exec_module(numa)


def binding(threads, argv):
    words = dict(zip(argv[1::2], argv[2::2]))
    memory = words.get("-m", words.get("-p"))
    return {"Threads": threads, "CPUs": numa.parse_range_list(words["-C"]), "Prefer": "-p" in words,
            "Memory": memory and [int(node) for node in memory.split(",")]}


answers = []
for case in json.load(sys.stdin):
    numa.get_numa_cores = lambda: case["Nodes"] or []
    psutil.cpu_count = lambda logical: case["Cores"]
    with contextlib.redirect_stdout(sys.stderr):
        answers.append([binding(*numa.get_numactl_cmd(case["List"] or None, case["Workers"], k)) for k in range(case["Workers"])])
print(json.dumps(answers))
