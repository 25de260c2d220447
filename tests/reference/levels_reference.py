"""What every codec must compute, written from the definitions with numpy, compared bit for bit with the C++ codecs.

usage: levels_reference.py LEVELS_TOOL

The tool reads fp32 gradients (rounds one after the other) and writes, per round, the payload, what it decodes to and
the residual. Nothing here is taken from the C++ code: the formulas are those of compress/codec/*.h, the layout that of
compress/format/levels.h. numpy rounds every fp32 operation by itself, as the C++ code does.
"""

import struct
import subprocess
import sys

import numpy as np

BLOCK = 4096
F = np.float32


def lane_sum(values):
    """Sum in 16 lanes, element i in lane i % 16, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1."""
    lanes = np.zeros(16, F)
    for begin in range(0, len(values), 16):
        part = values[begin:begin + 16]
        lanes[:len(part)] += part
    for width in (8, 4, 2, 1):
        lanes = lanes[:width] + lanes[width:2 * width]
    return lanes[0]


def blocks(x):
    return [x[begin:begin + BLOCK] for begin in range(0, len(x), BLOCK)]


def pack(bits):
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()


def header(bits, scales, elements, value=0.0):
    return struct.pack("<BBBBIIf", 0xB7, bits, scales, 0, elements, BLOCK, value)


def joined(parts):
    return np.concatenate(parts).astype(F) if parts else np.zeros(0, F)


def fp32(x):
    return x.tobytes(), x


def fp16(x):
    half = x.astype(np.float16)
    return half.tobytes(), half.astype(F)


def bf16(x):
    """Nearest of the two neighbours with 8 significant bits, the even one at a tie."""
    below = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(F)
    above = ((x.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(F)
    to_below = np.abs(x.astype(np.float64) - below)
    to_above = np.abs(above.astype(np.float64) - x)
    even = (below.view(np.uint32) >> np.uint32(16)) % 2 == 0
    near = np.where((to_below < to_above) | ((to_below == to_above) & even), below, above).astype(F)
    return (near.view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes(), near


def one_bit_l1(x):
    scales, planes, decoded = b"", b"", []
    for block in blocks(x):
        scale = lane_sum(np.abs(block)) / F(len(block))
        scales += struct.pack("<f", scale)
        planes += pack(block >= 0)
        decoded.append(np.where(block >= 0, scale, -scale))
    return header(1, 1, len(x)) + scales + planes, joined(decoded)


def one_bit_two_mean(x):
    scales, planes, decoded = b"", b"", []
    for block in blocks(x):
        up = block >= 0
        count = int(up.sum())
        rest = len(block) - count
        positive = lane_sum(np.where(up, block, F(0))) / F(count) if count else F(0)
        negative = lane_sum(np.where(up, F(0), block)) / F(rest) if rest else F(0)
        scales += struct.pack("<ff", positive, negative)
        planes += pack(up)
        decoded.append(np.where(up, positive, negative))
    return header(1, 2, len(x)) + scales + planes, joined(decoded)


def one_bit_none(threshold):
    def encode(x):
        over = x > F(threshold)
        planes = b"".join(pack(block) for block in blocks(over))
        return header(1, 0, len(x), 1.0) + planes, np.where(over, F(1), F(-1))
    return encode


def two_bit(threshold):
    t = F(threshold)

    def encode(x):
        planes = b"".join(pack(block >= t) + pack(block <= -t) for block in blocks(x))
        decoded = np.where(x >= t, t, np.where(x <= -t, -t, F(0))).astype(F)
        return header(2, 0, len(x), t) + planes, decoded
    return encode


CODECS = {
    "none": fp32,
    "fp16": fp16,
    "bf16": bf16,
    "1bit": one_bit_l1,
    "1bit:scaling=two_mean": one_bit_two_mean,
    "1bit:scaling=none": one_bit_none(0),
    "1bit:scaling=none,threshold=0.25": one_bit_none(0.25),
    "2bit": two_bit(0.5),
    "2bit:threshold=0.03125": two_bit(0.03125),
}
LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 257, 4095, 4096, 4097, 3 * 4096 + 17]
ROUNDS = 3


def gradients(random, length):
    g = (random.standard_normal((ROUNDS, length)) * random.choice([1e-3, 1, 30])).astype(F)
    for value in (0.0, -0.0, 1e-41, -1e-41, 0.5, -0.5, 0.25):
        g[random.random(g.shape) < 0.02] = F(value)
    return g


def expected(encode, g, grad_scale):
    """Payload, decoded and residual of every round, as the tool writes them."""
    out = b""
    residual = np.zeros(g.shape[1], F)
    for gradient in g:
        x = gradient * F(grad_scale) + residual
        payload, decoded = encode(x)
        residual = x - decoded
        out += payload + decoded.tobytes() + residual.tobytes()
    return out


def main():
    tool = sys.argv[1]
    random = np.random.default_rng(20)
    compared = 0
    for spec, encode in CODECS.items():
        for kernels in ("scalar", "best"):
            for length in LENGTHS:
                g = gradients(random, length)
                grad_scale = float(random.choice([1.0, 0.125, 3.0]))
                run = subprocess.run(
                    [tool, spec, kernels, str(ROUNDS), str(grad_scale)],
                    input=g.tobytes(), stdout=subprocess.PIPE, check=True)
                want = expected(encode, g, grad_scale)
                if run.stdout != want:
                    at = next((i for i, (a, b) in enumerate(zip(run.stdout, want)) if a != b),
                              min(len(run.stdout), len(want)))
                    sys.exit(f"{spec}, {kernels} kernels, {length} elements: byte {at} differs "
                             f"({len(run.stdout)} bytes, expected {len(want)})")
                compared += 1
    print(f"{compared} encodings equal numpy's bit for bit")


if __name__ == "__main__":
    main()
