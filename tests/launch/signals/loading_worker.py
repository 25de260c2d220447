# SPDX-License-Identifier: Apache-2.0
"""A worker that draws its batches from a DataLoader with processes of its own.

At SIGTERM or SIGINT it draws further batches, trains with them, says so and ends. At SIGUSR1 it
says so and goes on.
"""

import os
import signal
import sys
import time

import numpy as np
import slimps
import torch

FURTHER = 20  # batches: more than the loader has ready


def say(line):
    """Prints a line. A handler may do so, too: print() refuses that while another print() runs."""
    os.write(1, b"%s\n" % line.encode())


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
        say("saved: %s" % weights)
        sys.exit(0)

    signal.signal(signal.SIGUSR1, lambda *_: say("noted: SIGUSR1"))
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGINT, save)
    say("ready: rank %d, pid %d" % (store.rank, os.getpid()))
    while True:
        time.sleep(0.1)  # not pause(): a signal just before it would be handled after the next one


main()
