"""One step of asynchronous training: a chief, workers, and a parameter server that holds the variable."""
import json
import os

import numpy as np
import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
assert len(cluster["chief"]) == 1 and len(cluster["worker"]) == 1 and len(cluster["ps"]) == 1, config
assert sum(map(len, cluster.values())) == int(os.environ["WORLD_SIZE"]) == 3

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
print(f"this is {task['type']} {task['index']}", flush=True)
if task["type"] != "chief":
    tf.distribute.Server(resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc", start=True).join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    w = tf.Variable(0.0)
assert "/job:ps/" in w.device, w.device


@tf.function
def step():
    def replica():
        with tf.GradientTape() as tape:
            loss = (w - 3) ** 2
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return w.read_value()

    return strategy.run(replica)


after = coordinator.schedule(step).fetch()
coordinator.join()
np.testing.assert_allclose(w.numpy(), 0.6, rtol=1e-5)
print(f"rank 0 of 3: w {float(after):.6f} on {w.device}", flush=True)
