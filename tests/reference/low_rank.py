# SPDX-License-Identifier: Apache-2.0
"""Codecs that send factors of a matrix, from their papers."""

import numpy as np

from arithmetic import F


def padded(x, columns, skip):
    """Returns the partition as a matrix, with zeros where it cuts rows."""
    rows = -(-(skip + len(x)) // columns)
    matrix = np.zeros(rows * columns)
    matrix[skip : skip + len(x)] = x
    return matrix.reshape(rows, columns)


def atomo_probabilities(sigma, budget):
    """Algorithm 1 of Wang et al., "ATOMO", NeurIPS 2018. `sigma` falls."""
    p = np.zeros(len(sigma))
    for i, size in enumerate(sigma):
        rest = sigma[i:].sum()
        if rest == 0 or budget <= 0:
            break
        if size * budget <= rest:
            p[i:] = sigma[i:] * budget / rest
            break
        p[i] = 1
        budget -= 1
    return p


def drawn_atoms(p, uniform):
    """Returns the atoms whose interval holds uniform, or uniform + 1, and so on."""
    ends = np.cumsum(p)
    starts = ends - p
    return np.flatnonzero(np.ceil(ends - uniform) > np.maximum(np.ceil(starts - uniform), 0))


def atomo(x, columns, skip, budget, stream):
    """Returns what a partition decodes to, and the probabilities of its atoms."""
    n = len(x)
    rows = -(-(skip + n) // columns)
    if rows == 1 or 2 * np.ceil(budget) * (rows + columns) > n:
        return x, None
    u, sigma, vt = np.linalg.svd(padded(x.astype(np.float64), columns, skip), full_matrices=False)
    p = atomo_probabilities(sigma, budget)
    high, low = (int(word) for word in stream.words(2))
    atoms = drawn_atoms(p, (high * 2**21 + (low >> 11)) / 2**53)
    sent = (u[:, atoms] * (sigma[atoms] / p[atoms])) @ vt[atoms]
    return sent.reshape(-1)[skip : skip + n].astype(F), p
