"""Two trainers that train by a parameter server, in turn."""
import os

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
fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    data = {"x": np.ones([8, 4], "float32"), "y": np.full([8, 1], 3, "float32")}
    losses = [float(np.asarray(exe.run(paddle.static.default_main_program(), feed=data, fetch_list=[loss])[0]).item()) for _ in range(20)]
    assert losses[-1] < losses[0] / 2, losses
    print(f"trainer {fleet.worker_index()} of {fleet.worker_num()}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    if os.environ.get("STOP_SERVERS"):
        fleet.stop_worker()
