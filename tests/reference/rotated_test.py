# SPDX-License-Identifier: Apache-2.0
"""Codecs that rotate: equal bit for bit to numpy's, and what their papers promise.

usage: rotated_test.py CODEC_TOOL
"""

import sys

import numpy as np

import rotated
from arithmetic import F
from harness import INPUTS, compare, encode, heavy_tailed, huge, normal

SEED = 0xFEDCBA9876543210


def drive_bytes(n):
    return 44 + 4 * -(-n // 4096) + rotated.rotated_length(n) // 8


def check_transform():
    """Compares the fast transform with the matrix written out."""
    random = np.random.default_rng(1)
    for m in (16, 64, 512):
        index = np.arange(m)
        shared = np.array([[bin(i & j).count("1") for j in index] for i in index])
        matrix = (-1.0) ** shared
        x, signs = random.standard_normal(m).astype(F), random.choice([F(-1), F(1)], m)
        y = rotated.rotate(x, signs)
        assert np.allclose(y, matrix @ (signs * x.astype(np.float64)) / m, rtol=0, atol=1e-6)
        assert np.allclose(rotated.restore(y, signs), x, rtol=0, atol=1e-6)


def thc_bytes(n):
    return 52 + 4 * -(-n // 4096) + rotated.rotated_length(n) // 2


def check_table():
    """Derives THC's constants again."""
    assert abs(rotated.support_of(1 / 32) - rotated.SUPPORT) < 1e-14
    assert rotated.best_table(16, 30, 1 / 32) == tuple(rotated.TABLE)
    # With a level for each integer there is nothing to choose.
    assert rotated.best_table(16, 15, 1 / 32) == tuple(range(16))


def keeps_the_inner_product(spec):
    """Checks <decode(x), x> = |x|^2, from which the paper's scale is derived."""
    random = np.random.default_rng(2)
    for make in (normal, heavy_tailed):
        for n in (16, 1000, 4096, 9000):
            x = make(random, (1, n))
            decoded = encode(spec, x, residual="off", kernels="one")[0].decoded.astype(np.float64)
            wide = x[0].astype(np.float64)
            for _, first, last in rotated.blocks_of(n):
                ours, true = decoded[first:last], wide[first:last]
                if not np.isclose(ours @ true, true @ true, rtol=1e-4):
                    sys.exit(f"{spec}: <decoded, x> is {ours @ true}, |x|^2 is {true @ true}")
    print(f"{spec}: keeps the inner product")


def mean_of_draws_is_the_gradient(spec, error, draws=3000):
    """The errors of independent rotations average out. `error` is the paper's |x - decode(x)|^2 /
    |x|^2 for large blocks."""
    x = normal(np.random.default_rng(3), (1, 4096))
    rounds = encode(spec, x, rounds=draws, residual="off", kernels="one", key=99, worker=1)
    wide = x[0].astype(np.float64)
    each = [((round_.decoded - wide) ** 2).sum() for round_ in rounds]
    one = np.mean(each) / (wide @ wide)
    mean = sum(round_.decoded.astype(np.float64) for round_ in rounds) / draws
    rest = ((mean - wide) ** 2).sum() / (wide @ wide)
    if abs(one - error) > 0.02 or rest > 1.2 * error / draws:
        sys.exit(f"{spec}: errors {one} of one draw, expected {error}; {rest} of the mean")
    print(f"{spec}: error {one:.3f} of one draw, {rest * draws:.3f} / {draws} of {draws} draws")


def main():
    check_transform()
    check_table()
    for scale in ("unbiased", "mse"):
        for feedback in (False, True):
            spec = f"drive:scale={scale},seed={SEED}" + ",error_feedback=on" * feedback
            compare(
                spec,
                rotated.drive(scale),
                feedback=feedback,
                payload_bytes=drive_bytes,
                seed=SEED,
                inputs=INPUTS + (huge,),
            )
    for feedback in (False, True):
        spec = f"thc:seed={SEED},error_feedback=" + ("on" if feedback else "off")
        compare(
            spec,
            rotated.thc,
            feedback=feedback,
            payload_bytes=thc_bytes,
            seed=SEED,
            inputs=INPUTS + (huge,),
        )
    # An exchange of one worker alone: the phase brings its own norms.
    for scale, reference in (("current", rotated.thc), ("previous", rotated.thc_previous())):
        compare(
            f"thc:scale={scale},seed={SEED}",
            reference,
            feedback=True,
            payload_bytes=thc_bytes,
            seed=SEED,
            inputs=INPUTS + (huge,),
            exchange="on",
            partition=0,
        )
    keeps_the_inner_product("drive")
    mean_of_draws_is_the_gradient("drive", np.pi / 2 - 1)


if __name__ == "__main__":
    main()
