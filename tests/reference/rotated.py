# SPDX-License-Identifier: Apache-2.0
"""The randomised Hadamard transform, and the codecs that send what comes out of it, from their
papers."""

import numpy as np

from arithmetic import BLOCK, F, block_sums


def padded(n):
    """Returns to how many elements a block of n is padded: a power of two from sixteen on."""
    m = 16
    while m < n:
        m *= 2
    return m


def blocks_of(n):
    """Yields the number, the first and the last element (excluded) of each block."""
    for number, first in enumerate(range(0, n, BLOCK)):
        yield number, first, min(first + BLOCK, n)


def rotated_length(n):
    return sum(padded(last - first) for _, first, last in blocks_of(n))


def signs_of(stream, number, m):
    """Returns 1 or -1 for each element of a block: -1 where its bit in the stream is set."""
    words = stream.words((number + 1) * BLOCK // 32)[-BLOCK // 32 :]
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[:m]
    return np.where(bits, F(-1), F(1))


def hadamard(y):
    """Multiplies by the Hadamard matrix: a sum and a difference at distance 1, 2, 4 and so on."""
    distance = 1
    while distance < len(y):
        pairs = y.reshape(-1, 2, distance)
        y = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        distance *= 2
    return y


def rotate(x, signs):
    """Returns H D x / m. x is padded with zeros to as many elements as there are signs."""
    m = len(signs)
    y = np.zeros(m, F)
    y[: len(x)] = x * F(1 / m) * signs[: len(x)]
    return hadamard(y)


def restore(y, signs):
    """Returns D H y."""
    return hadamard(y) * signs


def drive(scale="unbiased"):
    """DRIVE (Vargaftik et al. 2021): the signs of the rotated block R x times one scale.

    The scale is |x|^2 / |R x|_1 (unbiased) or |R x|_1 / m (least squared error). y here is R x
    divided by the root of m, and so is the scale.
    """

    def encode(x, step):
        out = np.empty_like(x)
        for number, first, last in blocks_of(len(x)):
            part = x[first:last]
            m = padded(len(part))
            signs = signs_of(step.random, number, m)
            y = rotate(part, signs)
            magnitude, squares = block_sums(np.abs(y))[0], block_sums(part * part)[0]
            s = magnitude / F(m)
            if scale == "unbiased" and F(2.0**-100) <= squares < np.inf:
                s = squares / (F(m) * magnitude)
            out[first:last] = restore(np.where(np.signbit(y), -s, s), signs)[: len(part)]
        return out

    return encode
