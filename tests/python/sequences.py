# SPDX-License-Identifier: Apache-2.0
"""A worker that calls its store at random and compares all results with plain numpy.

    sequences.py SEED OPTIMIZER

All workers draw the same calls from the seed. Values are small integers, so every sum is exact in
float16 too, and the model needs no tolerance.
"""

import sys

import numpy as np
import slimps

CALLS = 40
MOST_DEVICES = 3


class Model:
    """What the servers should hold: float32 values by key."""

    def __init__(self, steps):
        self.steps = steps  # weight += sum; otherwise the sum replaces it
        self.values = {}
        self.dtypes = {}

    def push(self, key, total):
        self.values[key] = self.values[key] + total if self.steps else total


class Caller:
    def __init__(self, store, seed, steps):
        self.store = store
        self.draw = np.random.default_rng(seed)
        self.model = Model(steps)
        self.named = self.draw.random() < 0.5

    def one_of(self, *choices):
        return choices[self.draw.integers(len(choices))]

    def dtype(self):
        return self.one_of(np.float32, np.float32, np.float16)

    def shape(self):
        return tuple(int(n) for n in self.draw.integers(1, 9, size=self.draw.integers(1, 4)))

    def some_keys(self):
        keys = list(self.model.values)
        return [
            keys[i]
            for i in self.draw.permutation(len(keys))[: self.draw.integers(1, len(keys) + 1)]
        ]

    def laid_out(self, values):
        """Returns the same values, sometimes with gaps or transposed."""
        how = self.draw.integers(3)
        if how == 1:
            return np.ascontiguousarray(values.T).T
        if how == 2:
            wide = np.zeros(values.shape[:-1] + (2 * values.shape[-1],), values.dtype)
            wide[..., ::2] = values
            return wide[..., ::2]
        return values

    def integers(self, shape, dtype):
        return self.laid_out(self.draw.integers(-3, 4, size=shape).astype(dtype))

    def as_called(self, keys, values):
        """Returns lists, or a single key with its value."""
        return (
            (keys[0], values[0]) if len(keys) == 1 and self.draw.random() < 0.5 else (keys, values)
        )

    # ---- calls ----------------------------------------------------------------------------------

    def init(self):
        first = len(self.model.values)
        keys = [
            "k%d" % i if self.named else 7 * i
            for i in range(first, first + self.draw.integers(1, 4))
        ]
        values = []
        for key in keys:
            dtype = self.dtype()
            by_rank = [
                self.integers(shape, dtype) for shape in [self.shape()] * self.store.num_workers
            ]
            self.model.values[key] = by_rank[0].astype(np.float32)
            self.model.dtypes[key] = dtype
            values.append(by_rank[self.store.rank])
        self.store.init(*self.as_called(keys, values))

    def gradients(self, keys):
        """Returns this worker's values. The model gets those of all workers."""
        mine = []
        for key in keys:
            shape = self.model.values[key].shape
            total = np.zeros(shape, np.float32)
            for rank in range(self.store.num_workers):
                devices = [
                    self.integers(shape, self.dtype())
                    for _ in range(self.draw.integers(1, MOST_DEVICES + 1))
                ]
                total += sum(device.astype(np.float32) for device in devices)
                if rank == self.store.rank:
                    mine.append(devices[0] if len(devices) == 1 else devices)
            self.model.push(key, total)
        return mine

    def push(self):
        keys = self.some_keys()
        self.store.push(
            *self.as_called(keys, self.gradients(keys)), priority=int(self.draw.integers(-5, 6))
        )

    def outputs(self, keys):
        return [
            [
                self.laid_out(np.full(self.model.values[key].shape, 77, self.dtype()))
                for _ in range(self.draw.integers(1, 3))
            ]
            for key in keys
        ]

    def compare(self, keys, outs):
        for key, arrays in zip(keys, outs):
            for array in arrays:
                expected = self.model.values[key].astype(array.dtype)
                np.testing.assert_array_equal(expected, array, "key %r" % key)

    def pull(self):
        keys = self.some_keys()
        outs = self.outputs(keys)
        self.store.pull(*self.as_called(keys, outs))
        self.compare(keys, outs)

    def pushpull(self):
        keys = self.some_keys()
        outs = self.outputs(keys)
        self.store.pushpull(keys, self.gradients(keys), out=outs)
        self.compare(keys, outs)

    def run(self):
        self.init()
        for _ in range(CALLS):
            self.one_of(self.init, self.push, self.push, self.pull, self.pull, self.pushpull)()
        keys = list(self.model.values)
        outs = self.outputs(keys)
        self.store.pull(keys, out=outs)
        self.compare(keys, outs)


def main(seed, optimizer):
    # Partitions are small, so most tensors are cut over both servers.
    with slimps.kv.create("dist_sync", partition_bytes=256) as store:
        if optimizer == "test":
            store.set_optimizer(slimps.optimizer.Test())
        caller = Caller(store, seed, optimizer == "test")
        caller.run()
        print("%d keys as numpy has them" % len(caller.model.values))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
    print("done")
