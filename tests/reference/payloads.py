"""Payloads read by their layouts, from the headers in compress/format, without the C++ decoders."""

import struct

import numpy as np

from arithmetic import BLOCK, F, block_sizes, from_bf16, per_element

RAW_F32, RAW_F16, RAW_BF16, LEVELS, SPARSE = range(1, 6)


def parse(payload_format, payload, n):
    """What a payload of n elements decodes to."""
    if payload_format == RAW_F32:
        return np.frombuffer(payload, "<f4", n)
    if payload_format == RAW_F16:
        return np.frombuffer(payload, "<f2", n).astype(F)
    if payload_format == RAW_BF16:
        return from_bf16(np.frombuffer(payload, "<u2", n))
    if payload_format == LEVELS:
        return parse_levels(payload, n)
    raise ValueError(f"format {payload_format}")


def parse_levels(payload, n):
    magic, bits, scales, flags, elements, block, value = struct.unpack_from("<BBBBIIf", payload)
    assert (magic, flags, elements, block) == (0xB7, 0, n, BLOCK)
    sizes = block_sizes(n)
    table = np.frombuffer(payload, "<f4", scales * len(sizes), 16).reshape(len(sizes), scales)
    if scales == 0:
        plus, minus = np.full(n, F(value)), np.full(n, F(-value))
    else:
        plus = per_element(table[:, 0], n)
        minus = per_element(table[:, 1], n) if scales == 2 else -plus
    at = 16 + 4 * table.size
    planes = [[] for _ in range(bits)]
    for size in sizes:
        for plane in planes:
            width = -(-int(size) // 8)
            unpacked = np.unpackbits(np.frombuffer(payload, np.uint8, width, at), bitorder="little")
            assert not unpacked[size:].any(), "bits past the end"
            plane.append(unpacked[:size].astype(bool))
            at += width
    assert at == len(payload)
    planes = [np.concatenate(plane) for plane in planes]
    if bits == 1:
        return np.where(planes[0], plus, minus)
    return np.where(planes[0] == planes[1], F(0), np.where(planes[0], plus, minus)).astype(F)
