# SPDX-License-Identifier: Apache-2.0
"""Checks that random codecs keep the mean.

One gradient is encoded 10,000 times, in rounds that draw different numbers. Each element must
decode to one of two neighbours, low and high, to high with probability
p = (x - low) / (high - low). Four bounds, with N draws of n elements:

  mean of each element   Hoeffding: off by more than t (high - low) with probability at most
                         2 exp(-2 N t^2). t makes that 1e-9 / n
  all means together     sum of (mean - x)^2 / (p (1 - p) (high - low)^2 / N) is about n: within 6
                         of its standard deviations. Each term's variance is
                         2 + (1 - 6 pq) / (N pq), q = 1 - p
  their sum              standard normal after division by the root of the summed variances:
                         within 6
  spread of the sum      if elements draw independently, the variance over draws of a draw's sum is
                         the sum of the variances, to a relative sqrt(2 / N): within 6 of those

Seeds are fixed, so a test that passed passes again.
"""

import numpy as np

from arithmetic import F
from harness import encode

DRAWS = 10000
ELEMENTS = 600


def gradient():
    x = np.random.default_rng(17).standard_normal(ELEMENTS).astype(F)
    x[:4] = (0, 2.5, -2.5, 1e-3)
    return x


def terngrad(x):
    return np.zeros_like(x), np.copysign(np.abs(x).max(), x)


def uniform_levels(x, norms, levels):
    gap = norms / levels
    low = np.minimum(np.floor(np.abs(x) / gap), levels - 1)
    return np.copysign(low * gap, x), np.copysign((low + 1) * gap, x)


def qsgd(levels, bucket):
    def neighbours(x):
        norms = np.concatenate(
            [
                np.full(len(part), np.sqrt((part**2).sum()))
                for part in (x[begin : begin + bucket] for begin in range(0, len(x), bucket))
            ]
        )
        return uniform_levels(x, norms, levels)

    return neighbours


def linear(levels):
    return lambda x: uniform_levels(x, np.abs(x).max(), levels)


def natural(levels):
    def neighbours(x):
        grid = np.abs(x).max() * np.append(0, 2.0 ** np.arange(1 - levels, 1))
        low = np.clip(np.searchsorted(grid, np.abs(x), side="right") - 1, 0, levels - 1)
        return np.copysign(grid[low], x), np.copysign(grid[low + 1], x)

    return neighbours


def scaled(kept, elements):
    """All or nothing: x * n / k with probability k / n."""
    return lambda x: (np.zeros_like(x), x * (elements / kept))


def check_unbiased(spec, neighbours, independent=True):
    x = gradient()
    rounds = encode(spec, x[None, :], rounds=DRAWS, residual="off", kernels="one", key=99, worker=1)
    draws = np.stack([round_.decoded for round_ in rounds]).astype(np.float64)
    x = x.astype(np.float64)
    low, high = neighbours(x)
    gap = high - low
    nearest = np.minimum(np.abs(draws - low), np.abs(draws - high))
    assert (nearest <= 1e-5 * np.abs(high)).all(), f"{spec}: decodes to neither neighbour"

    error = draws.mean(axis=0) - x
    t = np.sqrt(np.log(2 * ELEMENTS / 1e-9) / (2 * DRAWS))
    assert (np.abs(error) <= t * np.abs(gap) + 1e-12).all(), f"{spec}: an element's mean is off"

    p = np.divide(x - low, gap, out=np.zeros_like(x), where=gap != 0)
    variance = p * (1 - p) * gap**2
    some = variance > 1e-6 * gap**2  # p is 0 or 1 except for rounding: no variance to divide by
    chi2 = float((error[some] ** 2 / (variance[some] / DRAWS)).sum())
    degrees = int(some.sum())
    if independent:
        pq = (p * (1 - p))[some]
        deviation = float(np.sqrt((2 + (1 - 6 * pq) / (DRAWS * pq)).sum()))
        assert abs(chi2 - degrees) <= 6 * deviation, f"{spec}: chi-square {chi2} of {degrees}"
        total = float(variance.sum())
        assert abs(error.sum()) <= 6 * np.sqrt(
            total / DRAWS
        ), f"{spec}: the sum's mean is off by {error.sum()}"
        spread = float(draws.sum(axis=1).var()) / total
        assert abs(spread - 1) <= 6 * np.sqrt(
            2 / DRAWS
        ), f"{spec}: the sum's variance is {spread} of independent ones'"
    print(f"{spec}: unbiased over {DRAWS} draws, chi-square {chi2:.0f} of {degrees}")
