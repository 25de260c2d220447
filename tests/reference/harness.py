# SPDX-License-Identifier: Apache-2.0
"""Runs a C++ codec (codec_tool) and its reference on the same gradients. Compares the results bit
for bit."""

import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np

from arithmetic import F
from momentum import Before
from payloads import SPARSE, entries_of, parse
from philox import Stream

SIZES = (1, 7, 255, 4096, 4097, 3 * 4096 + 5, 100003)
ROUNDS = 3
np.seterr(over="ignore")  # squares of huge() overflow
TOOL = sys.argv[1] if len(sys.argv) > 1 else ""
CONTEXT = dict(key=0x9E3779B97F4A7C15, worker=3, partition=2, first_round=5)


def normal(random, shape):
    g = random.standard_normal(shape).astype(F)
    for value in (
        0.0,
        -0.0,
        1e-41,
        -1e-41,
        0.5,
        -0.5,
        0.25,
    ):  # comparisons could treat them differently
        g[random.random(shape) < 0.01] = F(value)
    return g


def heavy_tailed(random, shape):
    return np.clip(random.standard_t(1.5, shape) * 1e-3, -1e4, 1e4).astype(F)


def constant(random, shape):
    return np.full(shape, F(-0.37))


def spikes(random, shape):
    return np.where(random.random(shape) < 0.003, random.standard_normal(shape) * 10, 0).astype(F)


def denormals(random, shape):
    return (random.standard_normal(shape) * 1e-40).astype(F)


def huge(random, shape):
    """Returns values whose squares overflow fp32. Not every codec accepts them."""
    return (random.standard_normal(shape) * 1e25).astype(F)


def ties(random, shape):
    return (random.integers(-4, 5, shape) * 0.25).astype(F)


def zeros(random, shape):
    return np.zeros(shape, F)


INPUTS = (normal, heavy_tailed, constant, spikes, denormals, ties, zeros)


def encode(spec, gradients, **arguments):
    """Runs the C++ codec's rounds. `gradients` holds one gradient per row."""
    rows, n = gradients.shape
    arguments = {"rounds": rows, "elements": n} | arguments
    command = [TOOL, spec] + [f"{name}={value}" for name, value in arguments.items()]
    run = subprocess.run(command, input=gradients.tobytes(), stdout=subprocess.PIPE, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return list(read_rounds(run.stdout, n))


def read_rounds(out, n):
    at = 0

    def floats(count):
        nonlocal at
        values = np.frombuffer(out, "<f4", count, at)
        at += 4 * count
        return values

    while at < len(out):
        fields = struct.unpack_from("<5Q3d", out, at)
        at += 64
        round_ = SimpleNamespace(
            format=fields[0], payload=out[at : at + fields[1]], sent=fields[2], norms=fields[5:]
        )
        at += fields[1]
        round_.decoded, round_.residual, round_.momentum = (
            floats(n),
            floats(fields[3]),
            floats(fields[4]),
        )
        yield round_


def rounds_of(codec, gradients, *, grad_scale, feedback, seed, layer=0, before=None, **context):
    """Yields the reference's rounds: error feedback around codec(x, step), after `before`
    (momentum.py) if given."""
    before = before or Before()
    before.begin(gradients.shape[1])
    residual = np.zeros(gradients.shape[1], F)
    for index, gradient in enumerate(gradients):
        number = context["first_round"] + index
        scaled = before.advance(gradient, grad_scale)
        x = scaled + residual if feedback else scaled
        step = SimpleNamespace(
            gradient=scaled,
            layer=layer,
            round=number,
            seed=seed,
            context=context,
            random=Stream(seed, context["key"], number, context["worker"], context["partition"]),
        )
        decoded = codec(x, step).astype(F)
        before.after(decoded != 0)
        if feedback:
            residual = x - decoded
        yield SimpleNamespace(
            x=x,
            decoded=decoded,
            residual=residual if feedback else np.zeros(0, F),
            momentum=before.momentum,
        )


def same(got, want, what):
    """Exits unless both are equal bit for bit, NaN and signed zeros included."""
    if got.tobytes() == want.astype(F).tobytes():
        return
    if len(got) != len(want):
        sys.exit(f"{what}: {len(got)} elements, expected {len(want)}")
    differ = np.flatnonzero(got.view(np.uint32) != want.astype(F).view(np.uint32))
    at = differ[0]
    sys.exit(
        f"{what}: {len(differ)} of {len(got)} differ, first element {at}: {got[at]!r}, expected "
        f"{want[at]!r}"
    )


def check_statistics(got, x, what):
    """Checks the sums of squares, which the C++ code adds in fp32 by blocks.

    They must be near the fp64 sums, or large or infinite where those exceed fp32.
    """
    # Without a residual the codec may compute the error's squares as |x|^2 - 2 x y + |y|^2, each a
    # sum of 256 terms in a lane.
    rounding = 4 * 256 * 2.0**-24 * float((x.astype(np.float64) ** 2).sum())
    wide, decoded = x.astype(np.float64), got.decoded.astype(np.float64)
    overflows = float((wide**2).sum()) > 1e38
    for name, value, parts in (
        ("|x|^2", got.norms[0], wide),
        ("|decode(x)|^2", got.norms[1], decoded),
        ("|x - decode(x)|^2", got.norms[2], wide - decoded),
    ):
        exact = float((parts**2).sum())
        tiny = 1e-38 * len(x)  # below this fp32 squares lose bits
        near = abs(value - exact) <= 1e-4 * exact + rounding + tiny
        # fp32 ends at 3.4e38. What is computed from a sum that overflowed is infinite too, but
        # never NaN.
        if not (value > 1e37 if exact > 1e38 else near or (overflows and value == np.inf)):
            sys.exit(f"{what}: {name} is {value}, expected {exact}")


def compare(
    spec,
    codec,
    *,
    feedback,
    inputs=INPUTS,
    sizes=SIZES,
    rounds=ROUNDS,
    seed=0,
    payload_bytes=None,
    most_bytes=None,
    layer=0,
    before=None,
    **context,
):
    """Compares one codec on every input and size with every kernel set.

    payload_bytes, most_bytes: functions of n that return the declared size.
    """
    compared = 0
    random = np.random.default_rng(3)
    context = CONTEXT | context
    for make in inputs:
        for n in sizes:
            if n > 10**5 and make not in (normal, heavy_tailed, ties):
                continue
            gradients = make(random, (rounds, n))
            scale = float(random.choice([1.0, 0.125, 3.0]))
            got = encode(
                spec,
                gradients,
                grad_scale=scale,
                layer=layer,
                residual="on" if feedback else "off",
                **context,
            )
            want = rounds_of(
                codec,
                gradients,
                grad_scale=scale,
                feedback=feedback,
                seed=seed,
                layer=layer,
                before=before,
                **context,
            )
            for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
                what = f"{spec}, {n} of {make.__name__}, round {index}"
                check_round(ours, theirs, what)
                if payload_bytes is not None and len(ours.payload) != payload_bytes(n):
                    sys.exit(
                        f"{what}: {len(ours.payload)} bytes of payload, expected {payload_bytes(n)}"
                    )
                if most_bytes is not None and len(ours.payload) > most_bytes(n):
                    sys.exit(
                        f"{what}: {len(ours.payload)} bytes of payload, expected at most "
                        f"{most_bytes(n)}"
                    )
                compared += 1
    print(f"{spec}: {compared} encodings equal numpy's bit for bit")


def check_round(got, want, what):
    same(got.decoded, want.decoded, what + ": decoded")
    same(got.residual, want.residual, what + ": residual")
    same(got.momentum, want.momentum, what + ": momentum")
    same(
        parse(got.format, got.payload, len(want.x)),
        want.decoded,
        what + ": payload parsed by its layout",
    )
    check_statistics(got, want.x, what)
    if got.format == SPARSE and entries_of(got.payload) != got.sent:
        sys.exit(
            f"{what}: says {got.sent} elements sent, the payload holds {entries_of(got.payload)}"
        )
