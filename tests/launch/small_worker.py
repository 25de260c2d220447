# SPDX-License-Identifier: Apache-2.0
"""A worker that joins, says so, and does what its argument says.

wait         waits until a signal ends it
fail         rank 1 raises an error, the others wait
late         as fail, but rank 1 does not end after the others have learnt of its error
save         on SIGINT or SIGTERM pushes, pulls and says so
once FILE    as fail, but only for whoever makes FILE; a second start trains to the end
vanish       rank 1 ends without Python's end, the others wait
idle         ends before it joins
"""

import atexit
import os
import signal
import sys

import numpy as np

if sys.argv[1:] == ["late"] and os.environ["DMLC_WORKER_ID"] == "1":
    atexit.register(signal.pause)  # before slimps, so it is called after it

import slimps  # noqa: E402


def main(what, path=None):
    signals = {signal.SIGINT, signal.SIGTERM}
    if what == "save":  # before there are threads, which would take a signal
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if what == "idle":
        return
    store = slimps.kv.create("dist_sync")
    weights = np.zeros(4, np.float32)
    store.init("w", weights)
    print("ready: rank %d, pid %d" % (store.rank, os.getpid()), flush=True)
    if what == "save":
        signal.sigwait(signals)
    if what == "save" or (what == "once" and os.path.exists(path)):
        store.push("w", np.ones(4, np.float32))
        store.pull("w", out=weights)
        store.close()
        print("%s: %s" % ("saved" if what == "save" else "trained", weights))
        return
    if what == "vanish" and store.rank == 1:
        os._exit(0)
    if what in ("fail", "late", "once") and store.rank == 1:
        if path:
            with open(path, "w", encoding="ascii"):
                pass
        raise ValueError("bad luck")
    while True:
        signal.pause()


main(*sys.argv[1:])
