"""Codecs that keep every element and spend few bits on it, from their papers.

A codec is a function (x, step) -> what the server decodes, where x = gradient * grad_scale + residual in fp32 and step
(steps.py) carries the scaled gradient and the random stream. Options are bound by the functions that make them.
"""

import numpy as np

from arithmetic import BLOCK, F, block_sizes, block_sums, from_bf16, per_element, to_bf16, total


def fp32(x, _step):
    return x


def fp16(x, _step):
    return x.astype(np.float16).astype(F)


def bf16(x, _step):
    return from_bf16(to_bf16(x))


def one_bit_l1(x, _step):
    """EF-signSGD (Karimireddy et al. 2019): sign(x) times the mean of |x|, here of each block."""
    scale = block_sums(np.abs(x)) / block_sizes(len(x)).astype(F)
    scale = per_element(scale, len(x))
    return np.where(x >= 0, scale, -scale)


def one_bit_two_mean(x, _step):
    """1-bit SGD (Seide et al. 2014): each sign becomes the mean of the elements with that sign."""
    def mean(side):
        counts = np.add.reduceat(side, np.arange(0, len(x), BLOCK), dtype=np.int64)
        return block_sums(np.where(side, x, F(0))) / np.maximum(counts, 1).astype(F)

    up = x >= 0
    plus, minus = mean(up), mean(~up)
    return np.where(up, per_element(plus, len(x)), per_element(minus, len(x)))


def one_bit_none(threshold=0.0):
    """MXNet 1bit: +1 over the threshold, else -1."""
    return lambda x, _step: np.where(x > F(threshold), F(1), F(-1))


def two_bit(threshold=0.5):
    """MXNet 2bit: +t, 0 or -t."""
    t = F(threshold)
    return lambda x, _step: np.where(x >= t, t, np.where(x <= -t, -t, F(0))).astype(F)


def signsgd(x, _step):
    """signSGD (Bernstein et al. 2018): the sign alone; a bit has no third value, so 0 counts as positive."""
    return np.where(x >= 0, F(1), F(-1))


def stochastic_round(ratio, uniform):
    """An integer next to ratio >= 0 whose expectation is ratio."""
    below = np.floor(ratio)
    return below + (uniform < ratio - below).astype(F)


def terngrad(clip=2.5):
    """TernGrad (Wen et al. 2017): s * sign(x) with probability |x| / s, else 0; s = max|x| after clipping x at
    `clip` standard deviations. 0: no clipping."""
    def encode(x, step):
        if clip:
            n = len(x)
            sums = [float(value) for value in block_sums(x)]
            mean = sum(sums) / n
            sigma = max(0.0, total(x * x) / n - mean * mean)**0.5
            bound = F(clip * sigma)
            x = np.clip(x, -bound, bound)
        s = np.abs(x).max(initial=F(0))
        if s == 0:
            return np.zeros_like(x)
        sent = step.random.uniforms(len(x)) * s < np.abs(x)
        return np.where(sent, np.copysign(s, x), F(0))
    return encode


def qsgd(bits=4, bucket=512, norm="l2"):
    """QSGD (Alistarh et al. 2017): per bucket, norm * sign(x) * l / s with s = 2^(bits - 1) - 1 levels, l the
    stochastic rounding of s |x| / norm."""
    s = F(2**(bits - 1) - 1)

    def encode(x, step):
        n = len(x)
        if norm == "l2":
            norms = np.sqrt(block_sums(x * x, bucket))
        else:
            norms = np.maximum.reduceat(np.abs(x), np.arange(0, n, bucket))
        norms = per_element(norms, n, bucket)
        ratio = np.divide(np.abs(x) * s, norms, out=np.zeros_like(x), where=norms > 0)
        level = stochastic_round(ratio, step.random.uniforms(n))
        return np.copysign(level * (norms / s), x)
    return encode


def natural_levels(ratio, uniform, smallest):
    """Natural dithering (Horvath et al. 2019): levels 0, smallest, 2 smallest, 4 smallest .. 1; the stochastic choice
    between the two neighbours of ratio in [0, 1]."""
    _, exponent = np.frexp(ratio)  # ratio in [2^(exponent - 1), 2^exponent)
    low = np.where(ratio >= smallest, np.ldexp(F(1), exponent - 1), F(0)).astype(F)
    gap = np.where(ratio >= smallest, low, F(smallest))
    return np.where(uniform * gap < ratio - low, low + gap, low).astype(F)
