# SPDX-License-Identifier: Apache-2.0
"""Properties that hold whatever a codec computes, checked on its results. usage: properties_test.py
CODEC_TOOL"""

import sys

import numpy as np

from harness import denormals, encode, heavy_tailed, normal, same, spikes, ties

FEEDBACK = (
    "fp16:error_feedback=on",
    "bf16:error_feedback=on",
    "1bit",
    "1bit:scaling=two_mean",
    "1bit:scaling=none",
    "2bit",
    "signsgd:error_feedback=on",
    "terngrad:error_feedback=on",
    "qsgd:error_feedback=on",
    "dithering:error_feedback=on",
    "dithering:partition=natural,error_feedback=on",
    "drive:error_feedback=on",
    "drive:scale=mse,error_feedback=on",
    "topk",
    "topk:ratio=0.2,value=fp16",
    "mstopk",
    "randomk",
    "redsync",
    "threshold",
    "adacomp",
    "local_selection",
    "dryden",
)
# decode(encode(x)) encodes to itself, so a node that forwards decoded values changes nothing.
STABLE = (
    "none",
    "fp16",
    "bf16",
    "1bit:scaling=none",
    "2bit",
    "signsgd",
    "topk",
    "topk:ratio=0.2,value=fp16",
    "threshold",
    "threshold:value=fp32",
    "redsync",
)
# Scales are means, whose fp32 sums round. So the signs are equal, and the scales only up to that.
STABLE_BUT_FOR_ROUNDING = ("1bit", "1bit:scaling=two_mean")


def telescopes(spec, random):
    """What was sent and what is left add up to all gradients, except for one rounding per
    addition."""
    for make in (normal, heavy_tailed, spikes, denormals):
        gradients = make(random, (20, 5000))
        rounds = encode(spec, gradients)
        summed = np.zeros(5000)
        bound = np.full(5000, 1e-44)
        before = np.zeros(5000)
        for gradient, round_ in zip(gradients.astype(np.float64), rounds):
            summed += gradient - round_.decoded
            bound += (
                2.0**-24 * (np.abs(gradient + before) + np.abs(round_.residual)) + 2.0**-149
            )
            before = round_.residual.astype(np.float64)
        off = np.abs(summed - before) - bound * (1 + 1e-6)
        if off.max() > 0:
            sys.exit(f"{spec}, {make.__name__}: element {off.argmax()} is off by {off.max()}")
    print(f"{spec}: telescopes")


def stable(spec, random, exact):
    for make in (normal, heavy_tailed, ties):
        first = encode(spec, make(random, (1, 9000)), residual="off", kernels="one")[0]
        again = encode(spec, first.decoded[None, :], residual="off", kernels="one")[0]
        if exact:
            same(again.decoded, first.decoded, f"{spec}, {make.__name__}: encoded twice")
        elif not np.allclose(again.decoded, first.decoded, rtol=1e-5, atol=0):
            sys.exit(f"{spec}, {make.__name__}: another result when encoded twice")
    print(f"{spec}: stable")


def keeps_the_largest(random):
    """Checks top-k without sorting: nothing left is larger than anything sent, and equals are sent
    from the front."""
    for make in (normal, ties):
        for n, k in ((5000, 50), (5000, 5000), (300, 7), (4097, 1)):
            x = make(random, (1, n))
            sent = encode(f"topk:k={k}", x, residual="off")[0]
            kept, size = sent.decoded != 0, np.abs(x[0])
            edge = size[kept].min()
            assert sent.sent == k and kept.sum() == min(k, np.count_nonzero(x))
            same(sent.decoded[kept], x[0][kept], "topk's values")
            assert size[~kept].max(initial=0) <= edge
            left = np.flatnonzero(~kept & (size == edge))
            assert left.size == 0 or np.flatnonzero(kept & (size == edge)).max() < left.min()
    print("topk: keeps the largest, of equals the first")


def two_workers_share_randomk(random):
    g = normal(random, (1, 9000))
    chosen = [
        encode("randomk:seed=3", g, residual="off", worker=worker, first_round=round_)[0].decoded
        != 0
        for worker, round_ in ((0, 7), (1, 7), (0, 8))
    ]
    nonzero = g[0] != 0
    assert (chosen[0] == chosen[1]).all() and (chosen[0][nonzero] != chosen[2][nonzero]).any()
    others = [encode("terngrad", g, residual="off", worker=worker)[0].decoded for worker in (0, 1)]
    assert (others[0] != others[1]).any()
    print("randomk: one choice for all workers, another each round; terngrad: each worker its own")


def main():
    random = np.random.default_rng(5)
    for spec in FEEDBACK:
        telescopes(spec, random)
    for spec in STABLE:
        stable(spec, random, exact=True)
    for spec in STABLE_BUT_FOR_ROUNDING:
        stable(spec, random, exact=False)
    keeps_the_largest(random)
    two_workers_share_randomk(random)


if __name__ == "__main__":
    main()
