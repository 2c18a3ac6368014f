"""Prints to which CPUs PyTorch's torchrun binds each worker of machines that come as JSON."""
import importlib.util
import io
import json
import os
import sys
import types

root = os.path.dirname(importlib.util.find_spec("torch").origin)
for name in "torch", "torch._utils_internal":  # what this file of PyTorch's needs of the rest
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch._utils_internal"].signpost_event = lambda **_: None
spec = importlib.util.spec_from_file_location("binding", root + "/numa/binding.py")
binding = importlib.util.module_from_spec(spec)
sys.modules["binding"] = binding
spec.loader.exec_module(binding)


answers = []
for case in json.load(sys.stdin):
    files = case["Files"] | {f"/sys/bus/pci/devices/0000:{i:02x}:{i:02x}.0/numa_node": str(node) for i, node in enumerate(case["GPUs"])}

    def read(path, files=files):
        if path not in files:
            raise FileNotFoundError(path)
        return io.StringIO(files[path])

    binding.open = read
    binding.os = types.SimpleNamespace(
        path=os.path, listdir=lambda path, files=files: {f[len(path) + 1:].split("/")[0] for f in files if f.startswith(path + "/")},
        sched_getaffinity=lambda _, case=case: set(case["Allowed"]))
    device = lambda index: types.SimpleNamespace(pci_domain_id=0, pci_bus_id=index, pci_device_id=index)
    binding.torch = types.SimpleNamespace(
        accelerator=types.SimpleNamespace(is_available=lambda: True, current_accelerator=lambda: "cuda", device_count=lambda case=case: len(case["GPUs"])),
        get_device_module=lambda _: types.SimpleNamespace(get_device_properties=device))
    answer = {}
    for mode in binding.AffinityMode:
        try:
            cpus = [sorted(binding._get_logical_cpus_to_bind_to(device_index=k, numa_options=binding.NumaOptions(affinity_mode=mode))) for k in range(case["Workers"])]
            answer[mode.value] = cpus if all(cpus) else None
        except (RuntimeError, ZeroDivisionError):
            answer[mode.value] = None
        except ValueError:  # it stumbles over a node of the machine none of whose CPUs this container may use; muster leaves that aside
            assert mode.value == "socket", mode
    answers.append(answer)
print(json.dumps(answers))
