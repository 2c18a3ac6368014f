"""A training in small, gloo on CPU or NCCL on a GPU, in which something goes wrong, or only looks as if it did.

train.py SCENE [--rank R] [--at STEP] [--steps N] [--pause SECONDS] [--long SECONDS] [--model ddp|fsdp|fsdp1|pipe|batch]

SCENE is a function of this file below, or "well". What it does, it does in rank R before step STEP, in the first round only:
after a restart all goes well. Each rank says a line for each step, and "done" at the end.
"""
import argparse
import contextlib
import fcntl
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
from datetime import timedelta

if "--device=cuda" in sys.argv:
    os.environ["NCCL_HOSTID"] = os.environ["RANK"]  # ranks may share a GPU if NCCL takes each for a machine of its own

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENES = {}


def scene(f):
    SCENES[f.__name__] = f
    return f


# What a rank may be stuck in. Each is called in the place that its group's name says.

def data(f):  # in the data set's code
    f.where = "data"
    return scene(f)


def training(f):  # between two steps
    f.where = "training"
    return scene(f)


@data
def sleep():
    while True:
        time.sleep(1)  # here: sleep


@data
def nap():
    time.sleep(args.long)  # here: nap


@data
def spin():
    x = 0
    while True: x += 1  # here: spin


@data
def hold():
    """Holds Python's lock for ever in one call of C."""
    re.match("(a+)+$", "a" * 100 + "b")  # here: hold


@data
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)  # here: stop


@data
def kill():
    os.kill(os.getpid(), signal.SIGKILL)


@data
def fail():
    raise ValueError(f"no sample {args.at}")


@data
def fifo():
    """Reads a file that never answers."""
    path = f"{scratch()}/fifo.{rank}.{os.getpid()}"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    os.unlink(path)
    os.read(end, 1)  # here: fifo


@data
def fuse():
    """Reads a file of a file system whose server has died inside."""
    with open(dead_file(), "rb") as f:
        f.read(1)  # here: fuse


@data
def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # here: deadlock


@data
def stall():
    """All ranks wait for data."""
    while True:
        time.sleep(1)  # here: stall


stall.all = True


@training
def stop_inside():
    """Stops in the middle of a collective that all have entered."""
    big = torch.ones(48 << 20)
    dist.barrier()
    if rank == args.rank:

        def soon():
            time.sleep(1)
            print("now stop_inside", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

        threading.Thread(target=soon).start()
    while True:
        dist.all_reduce(big)  # here: stop_inside


stop_inside.all = stop_inside.says = True


@training
def order():
    """Two groups in different order."""
    x = torch.ones(4)
    for group in reversed(pair) if rank == args.rank else pair:
        dist.all_reduce(x, group=group)  # here: order


order.all = True


@training
def mismatch():
    """One rank calls another collective than the rest."""
    x = torch.ones(4)
    if rank == args.rank:
        dist.broadcast(x, (rank + 1) % size)  # here: mismatch
    else:
        dist.all_reduce(x)


mismatch.all = True


@training
def skip():
    """One rank leaves out a collective that the rest take part in, and goes on to the next."""
    x = torch.ones(4)
    if rank != args.rank:
        dist.all_reduce(x)
    dist.barrier()  # here: skip


skip.all = True


@training
def size_differs():
    """One rank reduces more than the rest, who come through it."""
    dist.all_reduce(torch.ones(8 if rank == args.rank else 4))  # here: size_differs


size_differs.all = True


@training
def skip_last():
    """One rank leaves out a collective, and does other work."""
    if rank == args.rank:
        while True:
            time.sleep(1)  # here: skip_last
    dist.all_reduce(torch.ones(4))


skip_last.all = True


@training
def first():
    """One rank does not come to the first collective of a new group, for which NCCL makes connections."""
    group = dist.new_group()
    if rank == args.rank:
        while True:
            time.sleep(1)  # here: first
    dist.all_reduce(torch.ones(4), group=group)


first.all = True


@training
def partition():
    """Waits for the network to be cut, and goes on."""
    print("cut", flush=True)
    while not os.path.exists(f"{scratch()}/cut"):
        time.sleep(0.05)


# What only a GPU does.

@training
def kernel():
    """A kernel that does not end, while the program goes on."""
    torch.cuda._sleep(1 << 50)


@training
def illegal():
    wild = torch.cuda._compile_kernel('extern "C" __global__ void wild(float *x) { x[1ull << 40] = 1; }', "wild")
    wild(grid=(1, 1, 1), block=(1, 1, 1), args=[torch.ones(1)])
    torch.cuda.synchronize()


@training
def assertion():
    torch.ones(4)[torch.tensor([9])]
    torch.cuda.synchronize()


@training
def memory():
    torch.empty(1 << 50, dtype=torch.uint8)


# What is healthy, but may look as if it were not.

@training
def captured():
    """The steps after this replay a CUDA graph, whose collectives nobody counts."""
    x, graph = torch.ones(1 << 20), torch.cuda.CUDAGraph()
    dist.all_reduce(x)
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        x.div_(size)
    for step in range(args.at, args.steps):
        graph.replay()
        torch.cuda.synchronize()
        say(step)
        time.sleep(args.pause)
    dist.barrier()
    end()


captured.all = True


@training
def slow_kernel():
    """Rank R's GPU takes ten times as long as the others'."""
    torch.cuda._sleep(int(10 * args.pause * 1.7e9))


slow_kernel.every = True


@training
def checkpoint():
    """Rank 0 saves for long and often, and the rest wait."""
    if rank == args.rank:
        save(args.long)
    dist.barrier()


checkpoint.all = checkpoint.often = True


@training
def upload():
    """Rank 0 saves to a server, which takes its time."""
    if rank == args.rank:
        send(args.long)
    dist.barrier()


upload.all = upload.often = True


@training
def evaluation():
    """All ranks work for long without a collective."""
    work(args.long * (0.7 + 0.1 * rank))
    dist.all_reduce(torch.ones(1))


evaluation.all = evaluation.often = True


@training
def evaluation0():
    """Rank 0 works for long, and the rest wait."""
    if rank == args.rank:
        work(args.long)
    dist.barrier()


evaluation0.all = evaluation0.often = True


@training
def slow():
    """Rank R takes ten times as long as the others."""
    time.sleep(10 * args.pause)


slow.every = True


@training
def compile():
    """The first step takes long, for each rank another time."""
    work(args.long * (0.6 + 0.1 * rank))


compile.all = True


@training
def graph():
    """The steps after this go over sockets of our own, and torch's counters stand still, as with CUDA graphs."""
    left, right = ring()
    block = bytes(64 << 10)
    for step in range(args.at, args.steps):
        for _ in range(size - 1):
            right.sendall(block)
            receive(left, len(block))
        say(step)
        work(args.pause / 4)
        time.sleep(args.pause / 2)
    dist.barrier()
    end()


graph.all = True


@training
def ending():
    """What rank R has to do when its script is over takes its time."""
    import atexit
    atexit.register(time.sleep, args.long)


# The means of those.

def scratch():
    return os.environ.get("SCRATCH", "/tmp")


def work(seconds):
    """Uses the CPU, as a computation does."""
    end = time.monotonic() + seconds
    a = torch.randn(64, 64)
    while time.monotonic() < end:
        a = torch.tanh(a @ a)


def save(seconds):
    end = time.monotonic() + seconds
    path = f"{scratch()}/checkpoint.{os.getpid()}"
    while time.monotonic() < end:
        torch.save(torch.randn(1 << 19), path)
        with open(path, "rb+") as f:
            os.fsync(f.fileno())
        time.sleep(0.2)
    os.unlink(path)


def send(seconds):
    """Sends to a thread that stands for a server far away."""
    server = socket.create_server(("127.0.0.1", 0))
    out = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        out.sendall(bytes(1 << 16))
        receive(far, 1 << 16)
        time.sleep(0.1)
    for s in out, far, server:
        s.close()


def receive(s, need):
    while need:
        need -= len(s.recv(need))


def ring():
    """Connects each rank with its neighbours."""
    server = socket.create_server((address(), 0))
    places = [None] * size
    dist.all_gather_object(places, server.getsockname())
    right = socket.create_connection(places[(rank + 1) % size])
    left, _ = server.accept()
    return left, right


def address():
    """This machine's address in the network that gloo uses."""
    wire = struct.pack("256s", os.environ["GLOO_SOCKET_IFNAME"].encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, wire)[20:24])  # SIOCGIFADDR


def dead_file():
    """Mounts a file system of one file, which opens but never gives its contents, and returns the file."""
    from deadfs import mount  # beside this script
    return mount(scratch())


class Numbers(Dataset):
    """The data set, in whose code a rank may get stuck."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        if i == args.at and due("data"):
            begin()
        return torch.randn(32)


def due(where):
    f = SCENES.get(args.scene)
    return f and f.where == where and turn == 0 and (rank == args.rank or hasattr(f, "all"))


def at(step):
    """Does what is to be done before a step."""
    if due("training"):
        f = SCENES[args.scene]
        again = hasattr(f, "every") and step > args.at or hasattr(f, "often") and step % args.at == 0 and step
        if step == args.at or again:
            begin()


def begin():
    if not hasattr(SCENES[args.scene], "says"):
        print("now", args.scene, flush=True)
    SCENES[args.scene]()


def say(step):
    print(f"step {step}", flush=True)


def end():
    print("done", flush=True)
    dist.destroy_process_group()
    sys.exit()


class Stage(nn.Module):
    """One of a pipeline, which calls no collective: what it works on comes from the stage before and goes to the next, in calls that wait, or,
    in a ring, in batches that are waited for."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        before, behind = (rank - 1) % size, (rank + 1) % size
        if args.model == "batch":
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x.clone(), behind), dist.P2POp(dist.irecv, x, before)]):
                work.wait()
            return self.layers(x)
        if rank > 0:
            dist.recv(x, before)
        if behind > 0:
            dist.send(x, behind)
        return self.layers(x)


def shard(model):
    if args.model in ("pipe", "batch"):
        return Stage(model)
    if args.model == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if args.model == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, device_id=torch.device(args.device))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(args.device, (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def uneven(model):
    """With batches that end earlier on some ranks than on others, as DDP's join allows."""
    if args.scene != "uneven":
        return args.steps, contextlib.nullcontext()
    return args.steps * (rank + 1) // size, model.join()


options = argparse.ArgumentParser()
options.add_argument("scene")
options.add_argument("--rank", type=int, default=0)
options.add_argument("--at", type=int, default=20)
options.add_argument("--steps", type=int, default=1 << 30)
options.add_argument("--pause", type=float, default=0.2)
options.add_argument("--long", type=float, default=6)
options.add_argument("--model", default="ddp")
options.add_argument("--device", default="cpu", help="with cuda, all ranks are on the first GPU, by NCCL")
options.add_argument("--timeout", type=float, default=30, help="of the process group, in minutes")
options.add_argument("--sync", type=int, default=1, help="look at the loss each N steps; 0: never")
args = options.parse_args()
assert args.scene in SCENES or args.scene in ("well", "uneven"), sorted(SCENES)

torch.set_num_threads(1)
torch.manual_seed(1)
if args.device != "cpu":
    torch.set_default_device(args.device)
dist.init_process_group("gloo" if args.device == "cpu" else "nccl", timeout=timedelta(minutes=args.timeout))
rank, size, turn = dist.get_rank(), dist.get_world_size(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
print("pid", os.getpid(), flush=True)
if turn:
    args.pause /= 10
pair = [dist.new_group(), dist.new_group()] if args.model not in ("pipe", "batch") else []
model = shard(nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = DataLoader(Numbers(), batch_size=1)
steps, join = uneven(model)

with join:
    for step, batch in enumerate(batches):
        if step == steps:
            break
        at(step)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if args.sync and step % args.sync == 0:
            loss.item()
        say(step)
        time.sleep(args.pause)
dist.barrier()
end()
