# SPDX-License-Identifier: Apache-2.0
"""Tensors of one value, for scenarios."""

import numpy as np

SHAPE = (3, 4)


def full(value, dtype=np.float32, shape=SHAPE):
    return np.full(shape, value, dtype=dtype)


def expect(store, key, value, shape=SHAPE):
    """Pulls the key. Every element must be `value`."""
    out = full(-99, shape=shape)
    store.pull(key, out=out)
    np.testing.assert_array_equal(full(value, shape=shape), out)
