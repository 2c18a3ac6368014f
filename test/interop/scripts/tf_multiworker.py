"""One step of a model under MultiWorkerMirroredStrategy, one process a node; all replicas must come to the same parameters."""
import json
import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = json.loads(os.environ["TF_CONFIG"])
rank, n = config["task"]["index"], len(config["cluster"]["worker"])
assert strategy.num_replicas_in_sync == n == int(os.environ["WORLD_SIZE"]) == 2, strategy.num_replicas_in_sync
assert rank == int(os.environ["RANK"])

with strategy.scope():
    w = tf.Variable(0.0)


@tf.function
def step():
    def replica():
        x = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1
        with tf.GradientTape() as tape:
            loss = (w * x - 3 * x) ** 2
        grad = tape.gradient(loss, w)
        mean = tf.distribute.get_replica_context().all_reduce("mean", grad)
        w.assign_sub(0.01 * mean)

    strategy.run(replica)


step()
# The mean of x*x over 1 and 2 is 2.5: one step of 0.01 from 0 to 3 goes 0.15.
np.testing.assert_allclose(w.numpy(), 0.15, rtol=1e-5)
print(f"rank {rank} of {n}: w {w.numpy():.6f}", flush=True)
