# SPDX-License-Identifier: Apache-2.0
"""Codecs that send few elements and their indices, from their papers.

Functions have the form of those in quantizers.py. Elements that are not sent decode to 0. Ties go
to the lower index everywhere.
"""

import numpy as np

from arithmetic import BLOCK, F, block_sizes, total
from payloads import seeded_counts, seeded_indices
from philox import Stream

ANY_WORKER = 0xFFFFFFFF


def share(ratio):
    """Returns how many of n elements to send: floor(ratio * n), but at least 1."""
    return lambda n: max(1, int(np.floor(ratio * n)))


def count(k):
    return lambda n: min(k, n)


def mask_of(n, index):
    mask = np.zeros(n, bool)
    mask[index] = True
    return mask


def kept(x, chosen, value="fp32"):
    with np.errstate(over="ignore"):  # elements that are not sent may overflow
        carried = x.astype(np.float16).astype(F) if value == "fp16" else x
    return np.where(chosen, carried, F(0)).astype(F)


def largest(key, k):
    """Returns a mask of the k largest."""
    return mask_of(len(key), np.argsort(-key, kind="stable")[:k])


def topk(k_of, value="fp32"):
    return lambda x, _step: kept(x, largest(np.abs(x), k_of(len(x))), value)


def mstopk(k_of, passes=30):
    """MSTop-k (Shi et al. 2021, algorithm 1): bisects ratio in mean + ratio * (max - mean).

    Keeps the elements that reach the best threshold reached by at most k elements. Fills up to k
    from those that reach the best threshold reached by more.
    """

    def encode(x, _step):
        a, k = np.abs(x), k_of(len(x))
        mean, top = F(total(a) / len(x)), a.max()
        low, high = F(0), F(1)
        few, few_count = None, 0
        many, many_count = None, len(x)
        for _ in range(passes):
            ratio = low + (high - low) / F(2)
            threshold = mean + ratio * (top - mean)
            number = int((a >= threshold).sum())
            if number <= k:
                high = ratio
                if number > few_count:
                    few, few_count = threshold, number
            else:
                low = ratio
                if number < many_count:
                    many, many_count = threshold, number
        sure = a >= few if few is not None else np.zeros(len(x), bool)
        spare = ~sure & (a >= many if many is not None else True)
        # The paper fills up with a random run of the spare elements. Here they are the first.
        return kept(x, sure | mask_of(len(x), np.flatnonzero(spare)[: k - few_count]))

    return encode


def ordered_mean(x, chosen):
    """Returns an fp64 mean: adds one after the other within blocks, then the blocks."""
    total_sum = 0.0
    for begin in range(0, len(x), BLOCK):
        block_sum = 0.0
        for value in x[begin : begin + BLOCK][chosen[begin : begin + BLOCK]]:
            block_sum += float(value)
        total_sum += block_sum
    return F(total_sum / int(chosen.sum()))


def redsync(k_of, step_width=0.2):
    """RedSync (Fang et al. 2019), algorithm 2, trimmed top-k.

    Lowers ratio from 1 in steps until at least k elements are over mean + ratio * (max - mean),
    then takes the top k of those. Quantised: odd rounds send the largest x and even rounds the
    smallest, as their mean. Elements of the other sign are never sent.
    """

    def encode(x, step):
        y = (x if step.round % 2 == 1 else -x).astype(np.float64)
        k = min(k_of(len(x)), int((y > 0).sum()))
        if k == 0:
            return np.zeros_like(x)
        mean, top = np.abs(y).mean(), y.max()
        ratio, over = 1.0, np.zeros(len(x), bool)
        while over.sum() < k:
            ratio -= step_width
            threshold = mean + ratio * (top - mean) if top > mean else ratio * mean
            over = (y > threshold) & (y > 0)
        chosen = largest(np.where(over, y, -np.inf), k)
        return np.where(chosen, ordered_mean(x, chosen), F(0)).astype(F)

    return encode


def dryden(share_of):
    """Dryden et al. 2016, adaptive quantisation.

    A fixed share of the positive and of the negative elements reaches a threshold. Each side's
    elements are sent as their mean.
    """

    def encode(x, _step):
        sent = np.zeros_like(x)
        for side in (x > 0, x < 0):
            number = int(side.sum())
            if number:
                chosen = largest(np.where(side, np.abs(x), F(-1)), share_of(number))
                sent = np.where(chosen, ordered_mean(x, chosen), sent)
        return sent

    return encode


def threshold(tau=0.5, value="tau"):
    """Strom 2015: elements that reach tau are sent as tau with their sign. The rest waits."""

    def encode(x, _step):
        chosen = np.abs(x) >= F(tau)
        return np.where(chosen, np.copysign(F(tau), x), F(0)) if value == "tau" else kept(x, chosen)

    return encode


def randomk(k_of, scaled=False):
    """Draws k elements without replacement, the same for all workers. Scaled: times n / k, which is
    unbiased."""

    def encode(x, step):
        n, k = len(x), k_of(len(x))
        stream = Stream(
            step.seed, step.context["key"], step.round, ANY_WORKER, step.context["partition"]
        )
        counts = np.diff(seeded_counts([*stream.key, *stream.rest], n, k))
        index = seeded_indices([*stream.key, *stream.rest], block_sizes(n), counts)
        place = np.repeat(np.arange(len(counts)), counts) * BLOCK + index
        return kept(x * F(n / k) if scaled else x, mask_of(n, place))

    return encode
