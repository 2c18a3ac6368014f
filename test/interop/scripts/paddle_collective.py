"""One step of a model in DataParallel; all ranks must come to the same parameters."""
import os

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)
total = paddle.to_tensor([float(rank + 1)])
dist.all_reduce(total)
assert total.item() == n * (n + 1) / 2, total

paddle.seed(rank)  # parameters that differ, until DataParallel has made them equal
model = paddle.DataParallel(paddle.nn.Linear(4, 2))
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
before = model.parameters()[0].numpy().copy()
loss = (model(paddle.full([3, 4], float(rank + 1))) ** 2).mean()
loss.backward()
optimizer.step()
assert (model.parameters()[0].numpy() != before).any()

mine = paddle.concat([p.flatten() for p in model.parameters()])
all_of_them = []
dist.all_gather(all_of_them, mine)
assert len(all_of_them) == n and all(bool((one == mine).all()) for one in all_of_them), all_of_them
print(f"rank {rank} of {n}: trained, equal parameters {mine.sum().item():.6f}", flush=True)
