# SPDX-License-Identifier: Apache-2.0
"""Codecs that keep every element and spend few bits on it, from their papers.

A codec is a function (x, step) -> what the server decodes, where x = gradient * grad_scale +
residual in fp32 and step (made in harness.py) carries the scaled gradient and the random stream.
Options are bound by the functions that make them.
"""

import numpy as np

from arithmetic import BLOCK, F, block_sizes, block_sums, from_bf16, per_element, to_bf16, total


def fp32(x, _step):
    return x


def fp16(x, _step):
    return x.astype(np.float16).astype(F)


def bf16(x, _step):
    return from_bf16(to_bf16(x))


def positive(x):
    """Decides by the sign bit: +0 is positive, -0 negative."""
    return ~np.signbit(x)


def one_bit_l1(x, _step):
    """EF-signSGD (Karimireddy et al. 2019): sign(x) times the mean of |x|, here per block."""
    scale = block_sums(np.abs(x)) / block_sizes(len(x)).astype(F)
    scale = per_element(scale, len(x))
    return np.where(positive(x), scale, -scale)


def one_bit_two_mean(x, _step):
    """1-bit SGD (Seide et al. 2014): each sign becomes the mean of the elements with that sign."""

    def mean(side):
        counts = np.add.reduceat(side, np.arange(0, len(x), BLOCK), dtype=np.int64)
        return block_sums(np.where(side, x, F(0))) / np.maximum(counts, 1).astype(F)

    up = positive(x)
    plus, minus = mean(up), mean(~up)
    return np.where(up, per_element(plus, len(x)), per_element(minus, len(x)))


def one_bit_none(threshold=0.0):
    """MXNet 1bit: +1 above the threshold, else -1."""
    return lambda x, _step: np.where(x > F(threshold), F(1), F(-1))


def two_bit(threshold=0.5):
    """MXNet 2bit: +t, 0 or -t."""
    t = F(threshold)
    return lambda x, _step: np.where(x >= t, t, np.where(x <= -t, -t, F(0))).astype(F)


def signsgd(x, _step):
    """signSGD (Bernstein et al. 2018): only the sign. A bit has no third value."""
    return np.where(positive(x), F(1), F(-1))


# Norms under this count as 0, because quotients by them would leave fp32.
SMALLEST_NORM = F(2.0**-80)
# A level has this many steps: 16 random bits decide between two levels.
STEPS = 65536


def or_largest(root, largest):
    """Returns an l2 norm in fp32, or max|x| where squares overflow or vanish. No |x| may exceed the
    norm."""
    return np.where(np.isfinite(root) & (root > largest), root, largest).astype(F)


def factors(norm, levels):
    """Returns two factors, or 0 and 0 for a norm of 0.

    The first is about levels * STEPS / norm, and norm times it is at most levels * STEPS. The
    second is norm / levels.
    """
    used = norm >= SMALLEST_NORM
    inverse = np.divide(F(levels * STEPS), norm, out=np.zeros_like(norm), where=used)
    return np.nextafter(inverse, F(0)), np.where(used, norm / F(levels), F(0)).astype(F)


def stochastic_round(t, shorts):
    """Returns one of the two integers next to t / STEPS, with the probabilities that keep the
    mean."""
    return (np.rint(t).astype(np.int64) + shorts) // STEPS


def natural_levels(magnitude, inverse, shorts):
    """Returns the neighbours of t / STEPS, with the probabilities that keep the mean.

    Level 0 is 0, level j is 2^(j - 1) in units of the smallest power.
    """
    t = (magnitude * inverse).astype(np.float64)
    _, exponent = np.frexp(t)
    power = np.ldexp(1.0, exponent - 1)  # t in [power, 2 power)
    up = (t / power - 1) * 2.0**23 + 128 * shorts + 64 >= 2.0**23
    return np.where(t < STEPS, stochastic_round(t, shorts), exponent - 16 + up)


def terngrad(clip=2.5):
    """TernGrad (Wen et al. 2017): s * sign(x) with probability |x| / s, else 0.

    s = max|x| after clipping x at `clip` standard deviations, here about 0. clip 0: none.
    """

    def encode(x, step):
        s = np.abs(x).max()
        bound = F(clip * np.sqrt(total(x * x) / len(x))) if clip else s
        if bound < s:  # what is clipped has probability 1
            s = bound
        inverse, scale = factors(np.asarray(s), 1)
        t = np.clip(x * inverse, F(-STEPS), F(STEPS))
        return stochastic_round(t, step.random.shorts(len(x))).astype(F) * scale

    return encode


def qsgd(bits=4, bucket=512, norm="l2"):
    """QSGD (Alistarh et al. 2017): per bucket, norm * sign(x) * l / s.

    There are s = 2^(bits - 1) - 1 levels. l is the stochastic rounding of s |x| / norm.
    """
    s = 2 ** (bits - 1) - 1

    def encode(x, step):
        n = len(x)
        norms = np.maximum.reduceat(np.abs(x), np.arange(0, n, bucket))
        if norm == "l2":
            norms = or_largest(np.sqrt(block_sums(x * x, bucket)), norms)
        inverse, scale = (per_element(values, n, bucket) for values in factors(norms, s))
        return stochastic_round(x * inverse, step.random.shorts(n)).astype(F) * scale

    return encode


def dithering(k=7, partition="linear", normalize="max"):
    """Horvath et al. 2019, section 4: random dithering of |x| / norm over k levels up to 1.

    Levels are equally spaced (linear) or powers of two (natural). A partition has one norm.
    """

    def encode(x, step):
        largest = np.abs(x).max()
        norm = largest
        if normalize == "l2":
            with np.errstate(over="ignore"):
                norm = or_largest(F(np.sqrt(total(x * x))), largest)
        norm = np.asarray(norm, F)
        shorts = step.random.shorts(len(x))
        if partition == "linear":
            inverse, scale = factors(norm, k)
            return stochastic_round(x * inverse, shorts).astype(F) * scale
        if norm < SMALLEST_NORM:
            return np.zeros_like(x)
        levels = natural_levels(np.abs(x), F(2.0 ** (k + 15)) / norm, shorts)
        decoded = (2.0 ** (levels - k) * norm).astype(F)
        return np.where(levels == 0, F(0), np.copysign(decoded, x))

    return encode
