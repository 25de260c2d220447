# SPDX-License-Identifier: Apache-2.0
"""A worker that draws its batches from a DataLoader with processes of its own.

At SIGTERM or SIGINT it draws further batches, trains with them, says so and ends. At SIGUSR1 it
says so and goes on.
"""

import os
import signal
import sys

import numpy as np
import slimps
import torch

FURTHER = 20  # batches: more than the loader has ready


class Ones(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.ones(4)


def main():
    store = slimps.kv.create("dist_sync")
    weights = np.zeros(4, np.float32)
    store.init("w", weights)
    batches = iter(torch.utils.data.DataLoader(Ones(), batch_size=2, num_workers=2))
    next(batches)

    def save(number, _):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        gradient = sum(next(batches).sum(0) for _ in range(FURTHER)).numpy()
        store.push("w", gradient)
        store.pull("w", out=weights)
        print("saved: %s" % weights, flush=True)
        sys.exit(0)

    signal.signal(signal.SIGUSR1, lambda *_: print("noted: SIGUSR1", flush=True))
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGINT, save)
    print("ready: rank %d, pid %d" % (store.rank, os.getpid()), flush=True)
    while True:
        signal.pause()


main()
