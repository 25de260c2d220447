# SPDX-License-Identifier: Apache-2.0
"""A worker that trains 40 rounds, saves every tenth, and prints its weights: saving_worker.py DIR

Before round 26 it says so, and waits until the file `go` is in DIR.
"""

import os
import sys
import zlib

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "repo")
)

import numpy as np  # noqa: E402
import slimps  # noqa: E402
from eventually import eventually  # noqa: E402


def main(folder):
    store = slimps.kv.create("dist_sync", partition_bytes="1000")
    weights = np.zeros((30, 20), np.float32)
    store.init("w", weights)
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    former = store.resume()
    assert former.own_state in (b"", b"worker %d" % store.rank), former
    store.pull("w", out=weights)
    for step in range(former.rounds, 40):
        if step == 25:
            print("waits: rank %d, pid %d" % (store.rank, os.getpid()), flush=True)
            while not eventually(lambda: os.path.exists(os.path.join(folder, "go"))):
                pass
        noise = np.random.default_rng((store.rank, step)).normal(size=weights.shape)
        store.push("w", (weights + noise).astype(np.float32))
        store.pull("w", out=weights)
        if (step + 1) % 10 == 0:
            store.save_step(step + 1, b"worker %d" % store.rank)
    store.close()
    print("weights %08x, from round %d" % (zlib.crc32(weights.tobytes()), former.rounds))


main(*sys.argv[1:])
