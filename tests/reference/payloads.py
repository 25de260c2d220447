# SPDX-License-Identifier: Apache-2.0
"""Reads payloads by their layouts, as the headers in compress/format define them, without the C++
decoders."""

import struct

import numpy as np

from arithmetic import BLOCK, F, block_sizes, from_bf16, per_element
from philox import Stream, philox
from rotated import blocks_of, padded, restore, rotated_length, signs_of

RAW_F32, RAW_F16, RAW_BF16, LEVELS, SPARSE, LOW_RANK = range(1, 7)
ROTATED = 8


def parse(payload_format, payload, n):
    """Returns the elements that a payload of n elements decodes to."""
    if payload_format == RAW_F32:
        return np.frombuffer(payload, "<f4", n)
    if payload_format == RAW_F16:
        return np.frombuffer(payload, "<f2", n).astype(F)
    if payload_format == RAW_BF16:
        return from_bf16(np.frombuffer(payload, "<u2", n))
    if payload_format == LEVELS:
        return parse_planes(payload, n) if payload[1] <= 2 else parse_codes(payload, n)
    if payload_format == LOW_RANK:
        return parse_low_rank(payload, n)
    if payload_format == ROTATED:
        return parse_rotated(payload, n)
    assert payload_format == SPARSE
    return parse_bins(payload, n) if payload[0] == 0xB9 else parse_sparse(payload, n)


def entries_of(payload):
    """Returns how many elements a sparse payload holds."""
    if payload[0] == 0xB8:
        return struct.unpack_from("<I", payload, 8)[0]
    elements = struct.unpack_from("<I", payload, 4)[0]
    return struct.unpack_from("<I", payload, 12 + 4 * (-(-elements // BLOCK) - 1))[0]


class Reader:
    """Takes a payload apart from its front."""

    def __init__(self, payload, at=0):
        self.payload, self.at = payload, at

    def array(self, dtype, count):
        values = np.frombuffer(self.payload, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def bits(self, count):
        """Returns the bits, lowest first. Bits of the last byte past the end must be 0."""
        unpacked = np.unpackbits(self.array(np.uint8, -(-count // 8)), bitorder="little")
        assert not unpacked[count:].any(), "bits past the end"
        return unpacked[:count].astype(bool)

    def end(self):
        assert self.at == len(self.payload), f"{self.at} of {len(self.payload)} bytes"


# ---- levels.h


def levels_header(payload, n):
    magic, bits, scales, kind, elements, block, largest, zero, value = struct.unpack_from(
        "<BBBBIHBBf", payload
    )
    assert (magic, elements, zero) == (0xB7, n, 0)
    return bits, scales, kind, block, largest, F(value)


def parse_planes(payload, n):
    bits, scales, kind, block, largest, value = levels_header(payload, n)
    assert (kind, block, largest) == (0, BLOCK, 0)
    sizes = block_sizes(n)
    reader = Reader(payload, 16)
    table = reader.array("<f4", scales * len(sizes)).reshape(len(sizes), scales)
    if scales == 0:
        plus, minus = np.full(n, value), np.full(n, -value)
    else:
        plus = per_element(table[:, 0], n)
        minus = per_element(table[:, 1], n) if scales == 2 else -plus
    planes = [[] for _ in range(bits)]
    for size in sizes:
        for plane in planes:
            plane.append(reader.bits(int(size)))
    reader.end()
    planes = [np.concatenate(plane) for plane in planes]
    if bits == 1:
        return np.where(planes[0], plus, minus)
    return np.where(planes[0] == planes[1], F(0), np.where(planes[0], plus, minus)).astype(F)


def parse_codes(payload, n):
    bits, scales, kind, block, largest, value = levels_header(payload, n)
    reader = Reader(payload, 16)
    table = reader.array("<f4", scales * len(block_sizes(n, block)))
    scale = per_element(table, n, block) if scales else np.full(n, value)
    codes = reader.array(np.uint8, -(-n // 2) if bits == 4 else n).astype(np.int64)
    reader.end()
    if bits == 4:
        codes = np.stack((codes & 15, codes >> 4), axis=1).reshape(-1)
        assert not codes[n:].any(), "bits past the end"
        codes = codes[:n]
    level = codes - (8 if bits == 4 else 128)
    assert np.abs(level).max(initial=0) <= largest
    if kind == 0:
        return level.astype(F) * scale
    # In fp64: 2^-126 times a scale is rounded once.
    power = np.ldexp(np.ones(n), np.abs(level) - largest)
    return np.where(level == 0, 0, np.sign(level) * power * scale).astype(F)


# ---- rotated.h


def parse_rotated(payload, n):
    if payload[0] == 0xBC:
        return parse_lanes(payload, n)
    magic, zero0, zero1, zero2, elements, *stream = struct.unpack_from("<BBBBI5I", payload)
    assert (magic, zero0, zero1, zero2, elements) == (0xBD, 0, 0, 0, n)
    levels = parse(LEVELS, payload[28:], rotated_length(n))
    return rotate_back(levels, stream, n)


def rotate_back(y, stream, n):
    random = Stream(stream[0] | stream[1] << 32, 0, *stream[2:])
    x = np.empty(n, F)
    for number, first, last in blocks_of(n):
        signs = signs_of(random, number, padded(last - first))
        x[first:last] = restore(y[first : first + len(signs)], signs)[: last - first]
    return x


def parse_lanes(payload, n):
    """Parses codes of 4 bits. The hash of the scales is not checked here."""
    _, bits, largest, elements, *stream = struct.unpack_from("<BBHI5I", payload)
    assert (bits, elements) == (4, n)
    reader = Reader(payload, 36)
    table = reader.array(np.uint8, 16).astype(np.int64)
    assert table[0] == 0 and table[-1] == largest and (np.diff(table) > 0).all()
    scales = reader.array("<f4", len(block_sizes(n)))
    length = rotated_length(n)
    codes = reader.array(np.uint8, length // 2)
    reader.end()
    levels = table[np.stack((codes & 15, codes >> 4), axis=1).reshape(-1)]
    return rotate_back((2 * levels - largest).astype(F) * per_element(scales, length), stream, n)


# ---- sparse.h


def parse_sparse(payload, n):
    magic, coding, values, flags, elements, count, scale0, scale1 = struct.unpack_from(
        "<BBBBIIff", payload
    )
    assert (magic, flags, elements) == (0xB8, 0, n)
    reader = Reader(payload, 20)
    sizes = block_sizes(n)
    if coding == 2:
        stream = [int(word) for word in reader.array("<u4", 5)]
        before = seeded_counts(stream, n, count)
    else:
        before = np.append(reader.array("<u4", len(sizes)).astype(np.int64), count)
    sent = sparse_values(reader, values, count, F(scale0), F(scale1))
    counts = np.diff(before)
    assert before[0] == 0 and (counts >= 0).all()
    if coding == 0:
        packed = reader.bits(12 * count).reshape(count, 12)
        index = (packed * (1 << np.arange(12))).sum(axis=1)
    elif coding == 1:
        index = delta_indices(reader, counts)
    else:
        index = seeded_indices(stream, sizes, counts)
    reader.end()
    block = np.repeat(np.arange(len(sizes)), counts)
    place = block * BLOCK + index
    assert (index < sizes[block]).all()
    assert len(np.unique(place)) == count if coding == 2 else (np.diff(place) > 0).all()
    dense = np.zeros(n, F)
    dense[place] = sent
    return dense


def sparse_values(reader, coding, count, scale0, scale1):
    if coding == 0:
        return reader.array("<f4", count)
    if coding == 1:
        return reader.array("<f2", count).astype(F)
    if coding == 2:
        return np.full(count, scale0)
    return np.where(reader.bits(count), scale0, -scale0 if coding == 3 else scale1)


def delta_indices(reader, counts):
    """Decodes delta-coded indices. A byte under 255 skips that many elements before an entry. 255
    skips 255 elements without an entry."""
    begins = reader.array("<u4", len(counts))
    start = reader.at
    index = []
    for block, count in enumerate(counts):
        assert begins[block] == begins[0] + reader.at - start if block else begins[0] == 0
        place, found = 0, 0
        while found < count:
            step = int(reader.array(np.uint8, 1)[0])
            place += step
            if step < 255:
                index.append(place)
                place += 1
                found += 1
    return np.array(index, np.int64)


def seeded_counts(stream, n, count):
    """Returns how many entries lie before each block, and the number of all."""
    key, rest = stream[:2], stream[2:]
    word = int(philox([np.array(c) for c in (0xFFFFFFFF, *rest)], key)[0])
    offset = word * n >> 32
    begins = range(0, n, BLOCK)
    return np.array([(begin * count + offset) // n for begin in begins] + [count])


def seeded_indices(stream, sizes, counts):
    """Draws one element from each of `count` parts of a block, and rotates them all by the same
    distance."""
    words = (
        Stream(stream[0] | stream[1] << 32, 0, *stream[2:])
        .words(BLOCK * len(sizes) + 1)
        .astype(np.int64)
    )
    index = []
    for block, (size, count) in enumerate(zip(sizes.tolist(), counts.tolist())):
        if count == 0:
            continue
        mine = words[BLOCK * block :]
        bounds = np.arange(count + 1) * ((size << 16) // count) >> 16
        within = (mine[1 : count + 1] >> 16) * np.diff(bounds) >> 16
        index.append((bounds[:-1] + within + (int(mine[0]) * size >> 32)) % size)
    return np.concatenate(index) if index else np.zeros(0, np.int64)


# ---- bins.h


def parse_bins(payload, n):
    magic, bits, length, elements, scale = struct.unpack_from("<BBHIf", payload)
    assert (magic, elements, bits) == (0xB9, n, 8 if length <= 64 else 16)
    reader = Reader(payload, 12)
    sizes = block_sizes(n)
    counts = np.diff(np.append(0, reader.array("<u4", len(sizes)).astype(np.int64)))
    stride = (4094 // length + 9) // 8
    pieces = []  # of every block: the bins whose pieces have entries
    for block, size in enumerate(sizes):
        first, last = block * BLOCK // length, (block * BLOCK + int(size) - 1) // length
        width = -(-(last - first + 1) // 8) if block == len(sizes) - 1 else stride
        unpacked = np.unpackbits(reader.array(np.uint8, width), bitorder="little")
        assert not unpacked[last - first + 1 :].any(), "bits past the pieces"
        pieces.append(first + np.flatnonzero(unpacked))
    entries = reader.array("<u1" if bits == 8 else "<u2", int(counts.sum())).astype(np.int64)
    reader.end()
    dense = np.zeros(n, F)
    at = 0
    for block, count in enumerate(counts):
        mine = entries[at : at + count]
        at += count
        last = mine >> (bits - 1)
        piece = pieces[block][np.cumsum(last) - last]
        place = piece * length + (mine & (2 ** (bits - 2) - 1))
        assert (
            last.sum() == len(pieces[block])
            and (count == 0 or last[-1])
            and (np.diff(place) > 0).all()
        )
        assert count == 0 or (
            place[0] >= block * BLOCK and place[-1] < block * BLOCK + sizes[block]
        )
        dense[place] = np.where(mine >> (bits - 2) & 1, F(-scale), F(scale))
    return dense


# ---- low_rank.h


def parse_low_rank(payload, n):
    magic, rank, elements, columns, skip = struct.unpack_from("<IIQQQ", payload)
    assert (magic, elements) == (0xBB, n) and skip < columns and rank <= columns
    rows = -(-(skip + n) // columns)
    reader = Reader(payload, 32)
    u = reader.array("<f4", rows * rank).reshape(rows, rank)
    v = reader.array("<f4", rank * columns).reshape(rank, columns)
    reader.end()
    product = np.zeros((rows, columns), F)
    for k in range(rank):  # in the order that the layout says, each sum rounded
        product += u[:, k : k + 1] * v[k]
    return product.reshape(-1)[skip : skip + n]
