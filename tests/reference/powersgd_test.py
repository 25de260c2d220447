# SPDX-License-Identifier: Apache-2.0
"""powersgd's encoding by one worker alone, over rounds of error feedback, to 1e-5 of the largest
element. Whole exchanges are compared in tests/cluster/exchanges/powersgd_test.cc.

usage: powersgd_test.py CODEC_TOOL
"""

import sys

import numpy as np

import philox
import powersgd
from arithmetic import F
from harness import CONTEXT, constant, encode, heavy_tailed, normal, zeros
from payloads import parse

# elements, elements of a row, elements of the first row that lie before
GRIDS = (
    (6400, 100, 0),
    (6400, 100, 63),
    (9001, 40, 39),
    (4097, 17, 5),  # no matrix worth it from rank 8 on
    (20000, 1250, 700),
    (500, 1, 0),
)
SEED = 0xFEDCBA9876543210
ROUNDS = 4
SCALE = 0.5


def near(got, want, unit, what):
    """Exits unless both agree to 1e-5 of `unit`."""
    worst = float(np.abs(got.astype(np.float64) - want).max(initial=0))
    if worst > 1e-5 * unit + 1e-44:
        sys.exit(f"{what}: off by {worst}, the largest element is {unit}")


def compare(rank):
    spec = f"powersgd:rank={rank},seed={SEED}"
    random = np.random.default_rng(5)
    compared = 0
    for n, columns, skip in GRIDS:
        for make in (normal, heavy_tailed, constant, zeros):
            gradients = make(random, (ROUNDS, n))
            got = encode(
                spec, gradients, grad_scale=SCALE, row_elements=columns, skip=skip, **CONTEXT
            )
            residual = np.zeros(n)
            for index, (ours, gradient) in enumerate(zip(got, gradients, strict=True)):
                what = f"{spec}, {n} of {make.__name__} in rows of {columns}, round {index}"
                x = gradient.astype(np.float64) * SCALE + residual
                want = powersgd.alone(x, columns, skip, rank, SEED, CONTEXT["key"])
                residual = x - want
                unit = float(np.abs(x).max())
                near(ours.decoded, want, unit, what)
                near(ours.residual, residual, unit, what + ", residual")
                near(parse(ours.format, ours.payload, n), ours.decoded, unit, what + ", its layout")
                residual = ours.residual.astype(np.float64)
                compared += 1
    print(f"{spec}: {compared} encodings agree with numpy's")


def check_bytes(rank):
    n, columns = 6400, 100
    gradient = normal(np.random.default_rng(7), (1, n))
    (ours,) = encode(f"powersgd:rank={rank}", gradient, row_elements=columns, **CONTEXT)
    expected = 32 + 4 * rank * (n // columns + columns)
    if len(ours.payload) != expected:
        sys.exit(f"rank {rank}: {len(ours.payload)} bytes, expected {expected}")
    assert ours.decoded.dtype == F


def main():
    philox.self_test()
    for rank in (1, 2, 4, 8):
        compare(rank)
        check_bytes(rank)


if __name__ == "__main__":
    main()
