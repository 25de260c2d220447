# SPDX-License-Identifier: Apache-2.0
"""The fp32 arithmetic that codecs share.

Sums in sixteen lanes by blocks, half-precision formats, bit planes.

numpy rounds every fp32 operation by itself, as the C++ code does.
"""

import numpy as np

BLOCK = 4096
F = np.float32


def fold(lanes):
    """Sums the last axis of sixteen: 8 + 8, 4 + 4, 2 + 2, 1 + 1."""
    for width in (8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes[..., 0]


def block_sums(values, block=BLOCK):
    """Returns the fp32 sum of each block. Element i goes to lane i % 16, in order. Then the lanes
    are folded."""
    blocks = -(-len(values) // block)
    rows = -(-block // 16)
    padded = np.zeros((blocks, rows * 16), F)
    for index in range(blocks):
        part = values[index * block : (index + 1) * block]
        padded[index, : len(part)] = part
    lanes = padded.reshape(blocks, rows, 16)
    start = np.zeros((blocks, 1, 16), F)  # so that a sum of only -0 is +0
    # accumulate adds strictly in order; sum does not.
    return fold(np.add.accumulate(np.concatenate((start, lanes), axis=1), axis=1)[:, -1, :])


def total(values):
    """Returns the fp64 sum of the blocks' fp32 sums, in their order."""
    result = 0.0
    for part in block_sums(values):
        result += float(part)
    return result


def block_sizes(n, block=BLOCK):
    return np.diff(np.append(np.arange(0, n, block), n))


def per_element(block_values, n, block=BLOCK):
    """Repeats each block's value once per element."""
    return np.repeat(block_values, block_sizes(n, block))


def to_bf16(x):
    """Returns the nearer neighbour with 8 significant bits, the even one at a tie, as uint16."""
    below_bits = x.view(np.uint32) & np.uint32(0xFFFF0000)
    below = below_bits.view(F)
    above = (below_bits + np.uint32(0x10000)).view(F)
    to_below = np.abs(x.astype(np.float64) - below)
    to_above = np.abs(above.astype(np.float64) - x)
    even = (below_bits >> np.uint32(16)) % 2 == 0
    nearest = np.where((to_below < to_above) | ((to_below == to_above) & even), below, above)
    return (nearest.astype(F).view(np.uint32) >> np.uint32(16)).astype("<u2")


def from_bf16(halves):
    return (halves.astype(np.uint32) << np.uint32(16)).view(F)


def pack_plane(bits):
    """Bit i of a plane is bit i % 8 of byte i / 8."""
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
