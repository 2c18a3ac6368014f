"""Two trainers that train by a parameter server: each has data for one half of a table, and has the other half from the other by the server."""
import os
import time

import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(is_collective=False)
print(f"trainer {fleet.worker_index() if fleet.is_worker() else '-'} of {fleet.worker_num()}, {fleet.server_num()} servers", flush=True)
assert fleet.worker_num() == 2 and fleet.server_num() == 1
assert int(os.environ["WORLD_SIZE"]) == 3

ids = paddle.static.data("ids", [None, 1], "int64")
y = paddle.static.data("y", [None, 1], "float32")
zeros = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.0))
rows = paddle.reshape(paddle.static.nn.embedding(ids, [4, 1], is_sparse=True, param_attr=zeros), [-1, 1])
loss = paddle.mean(paddle.square(rows - y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
strategy.a_sync_configs = {"k_steps": 5}
fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    me = fleet.worker_index()
    mine = {"ids": np.array([[2 * me], [2 * me + 1]], "int64"), "y": np.full([2, 1], 3, "float32")}
    every = {"ids": np.arange(4, dtype="int64").reshape(4, 1), "y": np.full([4, 1], 3, "float32")}
    look = paddle.static.default_main_program().clone(for_test=True)
    late, learned = time.monotonic() + 60, None
    while True:  # what the other one learns comes by the server, by and by
        exe.run(paddle.static.default_main_program(), feed=mine)
        w = exe.run(look, feed=every, fetch_list=[rows])[0].flatten()
        if (w > 1).all():
            learned = learned or time.monotonic()
        if learned and time.monotonic() > learned + 5:  # the other one needs this one's steps, and nothing tells when the server has them
            break
        assert learned or time.monotonic() < late, w
    print(f"rank {os.environ['RANK']} of 3: the server trained", flush=True)
    fleet.stop_worker()
