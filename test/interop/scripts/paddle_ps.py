"""Two trainers that train by a parameter server."""
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

x = paddle.static.data("x", [None, 4], "float32")
y = paddle.static.data("y", [None, 1], "float32")
weight = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.0))
loss = paddle.mean(paddle.square(paddle.static.nn.fc(x, 1, weight_attr=weight, bias_attr=False) - y))
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
    data = {"x": np.ones([8, 4], "float32"), "y": np.full([8, 1], 3, "float32")}
    late = time.monotonic() + 60
    while True:  # what the server makes of gradients comes back by and by
        now = exe.run(paddle.static.default_main_program(), feed=data, fetch_list=[loss])[0].item()
        if now < 1:
            break
        assert time.monotonic() < late, now
    print(f"rank {os.environ['RANK']} of 3: the server trained", flush=True)
    fleet.stop_worker()
