# SPDX-License-Identifier: Apache-2.0
"""PowerSGD (arXiv 1905.13727, algorithms 1 and 2) for one worker alone, in fp64."""

import numpy as np

from philox import Stream

ANY_WORKER = 0xFFFFFFFF


def first_q(seed, key, rank, columns):
    """Returns the Q that a first round begins with: standard normal, by Box and Muller."""
    words = Stream(seed, key, 0, ANY_WORKER, 0).words(-(-rank * columns // 2) * 2)
    a, b = (words.reshape(-1, 2).T).astype(np.float64)
    radius, angle = np.sqrt(-2 * np.log((a + 1) / 2**32)), 2 * np.pi * b / 2**32
    pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    return pairs.reshape(-1)[: rank * columns].reshape(rank, columns).T


def orthogonalised(p):
    """Makes the columns orthonormal; those that depend on others become zeros."""
    done = np.zeros((len(p), 0))
    for column in p.T:
        left = column
        for _ in range(2):
            left = left - done @ (done.T @ left)
        norm, before = np.linalg.norm(left), np.linalg.norm(column)
        unit = left / norm if norm > 1e-6 * before and before > 0 else np.zeros_like(left)
        done = np.column_stack((done, unit))
    return done


def is_worthwhile(n, columns, skip, rank):
    rows = -(-(skip + n) // columns)
    return rows > 1 and n // 2 // (rows + columns) >= rank


def alone(x, columns, skip, rank, seed, key):
    """Returns what the partition decodes to."""
    if not is_worthwhile(len(x), columns, skip, rank):
        return x
    rows = -(-(skip + len(x)) // columns)
    m = np.zeros(rows * columns)
    m[skip : skip + len(x)] = x
    m = m.reshape(rows, columns)
    p = orthogonalised(m @ first_q(seed, key, rank, columns))
    return (p @ (p.T @ m)).reshape(-1)[skip : skip + len(x)]
