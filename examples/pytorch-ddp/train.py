"""Trains a small network on the UCI handwritten digits with DistributedDataParallel.

The same script runs on CPUs (gloo) and on GPUs (NCCL), in one process or in many:

    muster run train.py
    muster run --nnodes 2 --rdzv-endpoint host0:29400 --nproc-per-node 2 train.py --expect-world 4
"""

import argparse
import os
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DATA = Path(__file__).parent / "digits.csv.gz"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="samples a step and worker")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--expect-world", type=int, default=0, help="fail unless so many workers train together")
    parser.add_argument("--losses", type=Path, help="write this rank's losses to LOSSES.RANK, one a line")
    return parser.parse_args()


def digits():
    """Returns training and test sets as (images, labels): 1,497 and 300 pictures of 8x8 pixels from 0 to 16."""
    table = torch.tensor(numpy.loadtxt(DATA, delimiter=",", dtype="float32"))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]  # writers mixed
    images, labels = table[:, :64] / 16, table[:, 64].long()
    return (images[:-300], labels[:-300]), (images[-300:], labels[-300:])


def join():
    """Joins the process group and returns rank, world size and the device of this worker."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if not cuda:
        return dist.get_rank(), dist.get_world_size(), torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return dist.get_rank(), dist.get_world_size(), device


def assert_world(expected, size, device):
    """Counts the workers by a collective: what the environment says proves nothing."""
    ones = torch.ones(1, device=device)
    dist.all_reduce(ones)
    counted = int(ones.item())
    if counted != size or expected and counted != expected:
        sys.exit(f"{counted} workers train together; the process group says {size}, --expect-world says {expected}")


def batches(count, batch, rank, size, generator):
    """Yields indices of this rank's share of a fresh permutation, the same number on every rank."""
    order = torch.randperm(count, generator=generator)
    for start in range(0, count - batch * size + 1, batch * size):
        yield order[start + rank * batch : start + (rank + 1) * batch]


def main():
    args = arguments()
    rank, size, device = join()
    assert_world(args.expect_world, size, device)

    torch.manual_seed(args.seed)
    (images, labels), (test_images, test_labels) = digits()
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    model = DistributedDataParallel(net, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    generator = torch.Generator().manual_seed(args.seed)

    losses = []
    for epoch in range(args.epochs):
        for index in batches(len(images), args.batch, rank, size, generator):
            loss = nn.functional.cross_entropy(model(images[index].to(device)), labels[index].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1} of {args.epochs}: loss {losses[-1]:.4f}", flush=True)

    if args.losses:
        Path(f"{args.losses}.{rank}").write_text("".join(f"{loss!r}\n" for loss in losses))
    with torch.no_grad():
        right = (net(test_images.to(device)).argmax(1).cpu() == test_labels).float().mean().item()
    if rank == 0:
        print(f"world size {size}, accuracy {right:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if right <= 0.9:
        sys.exit(f"accuracy {right:.4f} on the test set: the training did not work")


if __name__ == "__main__":
    main()
