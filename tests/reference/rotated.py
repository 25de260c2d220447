# SPDX-License-Identifier: Apache-2.0
"""The randomised Hadamard transform, and the codecs that send what comes out of it, from their
papers."""

import math

import numpy as np

from arithmetic import BLOCK, F, block_sums
from philox import Stream


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


# THC's 16 levels of granularity 30, and the support of its normal variable, for p = 1/32.
TABLE = np.array([0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30])
SUPPORT = 2.153874694061454
ANY_WORKER = 0xFFFFFFFF


def support_of(p):
    """Returns the number that a standard normal variable exceeds in magnitude with probability
    p."""
    low, high = 0.0, 10.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if math.erfc(middle / math.sqrt(2)) > p else (low, middle)
    return low


def best_table(levels, granularity, p):
    """THC, section 5.2: so many integers from 0 to granularity, 0 and granularity among them.

    They give the least expected squared error of a normal variable that is truncated to +-t and
    rounded at random, without bias, to its two neighbours among -t + 2 t k / granularity. The error
    at a between neighbours l and r is (a - l) (r - a). Sums of such terms over the gaps are least
    by dynamic programming over the levels.
    """
    t = support_of(p)
    grid = [-t + 2 * t * k / granularity for k in range(granularity + 1)]

    def density(a):
        return math.exp(-a * a / 2) / math.sqrt(2 * math.pi)

    def below(a):
        return math.erf(a / math.sqrt(2)) / 2

    def cost(left, right):
        low, high = grid[left], grid[right]
        zeroth = below(high) - below(low)
        first = density(low) - density(high)
        second = zeroth + low * density(low) - high * density(high)
        return (low + high) * first - second - low * high * zeroth

    best = {0: (0.0, (0,))}
    for level in range(1, levels):
        best = {
            right: min(
                (total + cost(left, right), table + (right,))
                for left, (total, table) in best.items()
                if left < right
            )
            for right in range(level, granularity + 1)
        }
    table = best[granularity][1]
    # The mirrored table is as good.
    return min(table, tuple(granularity - level for level in reversed(table)))


def norm_of(x):
    """Returns thc's norm of a block."""
    squares = block_sums(x * x)[0]
    return np.sqrt(squares) if F(2.0**-100) <= squares < np.inf else np.abs(x).max()


def thc(x, step):
    """THC (Li et al. 2024), with each block's own norm."""
    return thc_with([norm_of(x[first:last]) for _, first, last in blocks_of(len(x))], x, step)


def thc_previous():
    """THC with the norms of the round before, where there are any. What lies outside the range of
    these is clamped."""
    before = []

    def encode(x, step):
        if step.round == step.context["first_round"]:
            before.clear()
        own = [norm_of(x[first:last]) for _, first, last in blocks_of(len(x))]
        decoded = thc_with(before if any(before) else own, x, step)
        before[:] = own
        return decoded

    return encode


def thc_with(norms, x, step):
    """THC with one norm for each block."""
    seed, context = step.seed, step.context
    rotation = Stream(seed, context["key"], step.round, ANY_WORKER, context["partition"])
    shorts = step.random.shorts(-(-len(x) // BLOCK) * BLOCK)
    out = np.empty_like(x)
    for (number, first, last), norm in zip(blocks_of(len(x)), norms, strict=True):
        part = x[first:last]
        m = padded(len(part))
        signs = signs_of(rotation, number, m)
        scale, inverse = F(0), F(0)
        if norm >= F(2.0**-80):
            scale = norm * F(SUPPORT / 30) / F(m)
            inverse = F(2.0**14) / scale
        # 2^16 * (u / 2 - 3.5), where u lies among the levels
        w = rotate(part, signs) * inverse + F(4 * 65536)
        w = np.clip(w, F(-3.5 * 65536), F(11.5 * 65536))
        wide = np.clip(w, F(-2 * 65536), F(10 * 65536))
        place = (w + w + wide) * F(1 / 3) + np.clip(w, F(3 * 65536), F(4 * 65536))
        levels = TABLE[(np.rint(place).astype(np.int64) + shorts[first : first + m]) >> 16]
        y = (2 * levels - 30).astype(F) * scale
        out[first:last] = restore(y, signs)[: len(part)]
    return out
