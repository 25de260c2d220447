# SPDX-License-Identifier: Apache-2.0
"""Codecs that send factors of a matrix: equal to numpy's, with the same random numbers, to 1e-5 of
the largest element, and unbiased.

usage: low_rank_test.py CODEC_TOOL
"""

import struct
import sys

import numpy as np

import low_rank
import philox
from arithmetic import F
from harness import CONTEXT, constant, denormals, encode, heavy_tailed, normal, spikes, zeros
from payloads import LOW_RANK, parse
from philox import Stream

# elements, elements of a row, elements of the first row that lie before
GRIDS = (
    (6400, 100, 0),
    (6400, 100, 63),
    (9001, 40, 39),
    (4097, 17, 5),
    (20000, 1250, 700),
    (500, 500, 3),  # of two rows: no matrix worth it
    (500, 1, 0),
)
SEED = 0xFEDCBA9876543210
ROUNDS = 4
DRAWS = 4000


def low_rank_decay(random, shape):
    """Returns gradients whose singular values fall fast, as those of real layers."""
    rounds, n = shape
    rank = 6
    u, v = random.standard_normal((rounds, n // 50 + 1, rank)), random.standard_normal((rank, 50))
    scale = 0.5 ** np.arange(rank)
    full = ((u * scale) @ v).reshape(rounds, -1)[:, :n]
    return (full + 1e-3 * random.standard_normal(shape)).astype(F)


INPUTS = (normal, heavy_tailed, constant, spikes, denormals, zeros, low_rank_decay)


def near(got, want, what):
    """Exits unless both agree to 1e-5 of the largest element."""
    worst = float(np.abs(got.astype(np.float64) - want).max(initial=0))
    if worst > 1e-5 * float(np.abs(want).max(initial=0)) + 1e-44:
        sys.exit(f"{what}: off by {worst}, the largest element is {np.abs(want).max(initial=0)}")


def compare_atomo(budget):
    spec = f"atomo:s={budget},seed={SEED}"
    random = np.random.default_rng(5)
    compared = 0
    for n, columns, skip in GRIDS:
        for make in INPUTS:
            gradients = make(random, (ROUNDS, n))
            got = encode(
                spec, gradients, grad_scale=0.5, row_elements=columns, skip=skip, **CONTEXT
            )
            for index, (ours, gradient) in enumerate(zip(got, gradients, strict=True)):
                what = f"{spec}, {n} of {make.__name__} in rows of {columns}, round {index}"
                number = CONTEXT["first_round"] + index
                stream = Stream(
                    SEED, CONTEXT["key"], number, CONTEXT["worker"], CONTEXT["partition"]
                )
                want, p = low_rank.atomo(gradient * F(0.5), columns, skip, budget, stream)
                near(ours.decoded, want, what)
                near(parse(ours.format, ours.payload, n), ours.decoded, what + ", by its layout")
                check_size(ours, n, columns, skip, budget if p is not None else None, what)
                compared += 1
    print(f"{spec}: {compared} encodings agree with numpy's")


def check_size(ours, n, columns, skip, budget, what):
    rank = struct.unpack_from("<I", ours.payload, 4)[0]
    rows = -(-(skip + n) // columns)
    expected = 36 + 4 * n if budget is None else 32 + 4 * rank * (rows + columns)
    if len(ours.payload) != expected:
        sys.exit(f"{what}: {len(ours.payload)} bytes, expected {expected}")
    if ours.format != LOW_RANK or (budget is not None and rank > np.ceil(budget)):
        sys.exit(f"{what}: format {ours.format}, {rank} atoms for a budget of {budget}")


def check_unbiased(budget):
    """Encodes one matrix in many rounds. In the basis of its singular vectors, each draw has 1 / p
    or 0 times a singular value on the diagonal, and nothing beside it."""
    rows, columns = 24, 40
    random = np.random.default_rng(11)
    x = low_rank_decay(random, (1, rows * columns)).reshape(rows, columns)
    rounds = encode(
        f"atomo:s={budget}",
        x.reshape(1, -1),
        rounds=DRAWS,
        row_elements=columns,
        kernels="one",
        key=99,
        worker=1,
    )
    draws = np.stack([r.decoded for r in rounds]).astype(np.float64).reshape(-1, rows, columns)
    u, sigma, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    p = low_rank.atomo_probabilities(sigma, budget)
    turned = np.einsum("ij,djk,lk->dil", u.T, draws, vt)
    share = np.einsum("dii->di", turned) / sigma
    beside = turned - np.einsum("di,ij->dij", share * sigma, np.eye(rows))
    assert np.abs(beside).max() <= 1e-5 * sigma[0], "a draw is no sum of atoms"
    sent = share > 0.5
    assert (np.abs(share - np.where(sent, 1 / p, 0)) <= 1e-3 / p).all(), "an atom of another size"
    off = np.abs(share.mean(axis=0) - 1)
    deviation = np.sqrt((1 / p - 1) / DRAWS)
    assert (off <= 6 * deviation + 1e-4).all(), f"an atom is off by {(off / deviation).max()}"
    error = draws.mean(axis=0) - x
    variance = float((sigma**2 * (1 / p - 1)).sum())
    assert (error**2).sum() <= 36 * variance / DRAWS, "the mean is off"
    spread = ((draws - x) ** 2).sum(axis=(1, 2))
    limit = 6 * spread.std() / np.sqrt(DRAWS)
    assert abs(spread.mean() - variance) <= limit, "another variance than the paper's"
    assert sent.sum(axis=1).max() <= np.ceil(budget), "more atoms than the budget"
    print(f"atomo:s={budget}: unbiased over {DRAWS} draws, variance {spread.mean() / variance:.3f}")


def main():
    philox.self_test()
    for budget in (1, 2.5, 3):
        compare_atomo(budget)
    for budget in (1, 2.5, 4):
        check_unbiased(budget)


if __name__ == "__main__":
    main()
