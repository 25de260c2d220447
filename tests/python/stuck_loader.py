# SPDX-License-Identifier: Apache-2.0
"""Two workers that train; the data loader of worker 1 brings two batches and then nothing."""

import threading

import numpy as np
import slimps


def batches(rank):
    for batch in range(1000000):
        if rank == 1 and batch == 2:
            threading.Event().wait()  # THE LOADER STANDS HERE
        yield np.ones(4, np.float32)


store = slimps.kv.create("dist_sync")
store.init("w", np.zeros(4, np.float32))
out = np.empty(4, np.float32)
for gradient in batches(store.rank):
    store.push("w", gradient)
    store.pull("w", out)
