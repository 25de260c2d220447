# SPDX-License-Identifier: Apache-2.0
"""A worker that begins with 80 calls of init: many_keys_worker.py FOLDER [torch | save]

It trains 20 rounds and prints its weights. Before round 11 it says so, and waits until the file
`go` is in FOLDER. `torch`: a DistributedOptimizer trains a module, whose buffers are broadcast.
`save`: the worker saves what it can save, before it waits.
"""

import os
import sys
import zlib

import numpy as np
import slimps
from eventually import eventually

KEYS = ["layer%d" % key for key in range(80)]
ROUNDS, HALF = 20, 10


def begin(store):
    """Calls what a process calls before its first push."""
    for key in KEYS:
        store.init(key, np.full(3, len(key), np.float32))
    for call in range(3):
        assert store.all_reduce_sum([call]) == [call * store.num_workers]
        store.barrier()
    store.broadcast_bytes([np.full(1000, call, np.uint8) for call in range(3)])


def noise(store, step, *shape):
    return np.random.default_rng((store.rank, step)).normal(size=shape).astype(np.float32)


def wait_at_half(store, folder, save):
    store.wait()
    if save:
        store.save(os.path.join(folder, "saved"), b"of this worker")
        store.save_optimizer_states(os.path.join(folder, "states-%d" % store.rank))
    print("waits: rank %d" % store.rank, flush=True)
    assert eventually(lambda: os.path.exists(os.path.join(folder, "go")), 120)


def train_keys(store):
    """Returns what trains one step, and what returns the weights."""
    begin(store)
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.125, momentum=0.5))
    weights = [np.empty(3, np.float32) for _ in KEYS]
    store.pull(KEYS, out=weights)

    def step(number):
        store.push(KEYS, [w + n for w, n in zip(weights, noise(store, number, len(KEYS), 3))])
        store.pull(KEYS, out=weights)

    return step, lambda: weights


def train_module(store):
    """Returns what train_keys does, of a module."""
    import slimps.torch
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.125, momentum=0.5)
    optimizer = slimps.torch.DistributedOptimizer(optimizer, module, store=store)
    slimps.torch.broadcast_parameters(dict(module.named_buffers()), store=store)

    def step(number):
        optimizer.zero_grad()
        inputs, targets = torch.from_numpy(noise(store, number, 2, 4, 3))
        (module(inputs) * targets).sum().backward()
        optimizer.step()

    return step, lambda: [parameter.detach().numpy() for parameter in module.parameters()]


def main(folder, extra=""):
    store = slimps.kv.create("dist_sync", partition_bytes="1000")
    step, weights = train_module(store) if extra == "torch" else train_keys(store)
    for number in range(store.former_rounds, ROUNDS):
        if number == HALF:
            wait_at_half(store, folder, extra == "save")
        step(number)
    print("weights %08x" % zlib.crc32(b"".join(array.tobytes() for array in weights())))
    store.close()


main(*sys.argv[1:])
