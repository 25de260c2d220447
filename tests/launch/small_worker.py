# SPDX-License-Identifier: Apache-2.0
"""A worker that joins, says so, and does what its argument says.

wait         waits until a signal ends it
fail         rank 1 raises an error, the others wait
once FILE    as fail, but only for whoever makes FILE; a second start trains to the end
"""

import os
import signal
import sys

import numpy as np

import slimps


def main(what, path=None):
    store = slimps.kv.create("dist_sync")
    weights = np.zeros(4, np.float32)
    store.init("w", weights)
    print("ready: rank %d, pid %d" % (store.rank, os.getpid()), flush=True)
    if what == "once" and os.path.exists(path):
        store.push("w", np.ones(4, np.float32))
        store.pull("w", out=weights)
        store.close()
        print("trained: %s" % weights)
        return
    if what != "wait" and store.rank == 1:
        if path:
            with open(path, "w", encoding="ascii"):
                pass
        raise ValueError("bad luck")
    while True:
        signal.pause()


main(*sys.argv[1:])
