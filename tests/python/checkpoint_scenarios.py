# SPDX-License-Identifier: Apache-2.0
"""Workers of jobs that save and load checkpoints: checkpoint_scenarios.py SCENARIO DIRECTORY."""

import numpy as np
import scenario
import slimps

SHAPES = {"dense.weight": (60, 50), "dense.bias": (60,), "scalar": (1,)}


def open_store(value):
    store = slimps.kv.create(
        "dist_sync",
        compression="1bit",
        threshold="0",
        pull_compression="1bit",
        pull_threshold="0",
        partition_bytes="4000",
    )
    for name, shape in SHAPES.items():
        store.init(name, np.full(shape, value, np.float32))
    return store


def train(store, first, last):
    """Returns the weights after the rounds from `first` to `last`."""
    weights = {name: np.empty(shape, np.float32) for name, shape in SHAPES.items()}
    for round_ in range(first, last + 1):
        for name, shape in SHAPES.items():
            seed = [round_, store.rank, len(name)]
            store.push(name, np.random.default_rng(seed).normal(size=shape).astype(np.float32))
        for name in SHAPES:
            store.pull(name, out=weights[name])
    return weights


def saves(directory):
    """Trains three rounds, saves, and trains two more while that is written."""
    store = open_store(1)
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    saved = train(store, 1, 3)
    store.save(directory + "/three", b"worker %d" % store.rank, wait=False)
    np.savez("%s/five-%d.npz" % (directory, store.rank), **train(store, 4, 5))
    store.wait_saved()
    if store.rank == 0:
        np.savez(directory + "/three.npz", **saved)
    try:
        store.save(directory + "/three")
    except (slimps.errors.FailedPreconditionError, slimps.AbortedError) as error:
        print("refused:", error)
    store.barrier()
    store.close()


def loads(directory):
    """Goes on from the third round."""
    store = open_store(7)
    for wrong, kind in [("/nothing", slimps.NotFoundError), ("/damaged", slimps.DataLossError)]:
        try:
            store.load(directory + wrong)
        except (kind, slimps.AbortedError):
            continue
        raise AssertionError(wrong)
    loaded = store.load(directory + "/three")
    assert loaded == (3, b"worker %d" % store.rank), loaded
    weights = train(store, loaded.rounds + 1, 5)
    expected = np.load("%s/five-%d.npz" % (directory, store.rank))
    for name in SHAPES:
        np.testing.assert_array_equal(weights[name], expected[name], name)
    store.barrier()
    store.close()


if __name__ == "__main__":
    scenario.play(globals())
