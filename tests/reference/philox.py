# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10 (Salmon et al., SC 2011) and the stream of random numbers that codecs draw from.

Element i of a partition takes word (i % 64) // 16 of the Philox block with counter
(16 * (i // 64) + i % 16, round, worker, partition), so that sixteen lanes draw sixty-four elements
at once. The key is seed XOR key id, low word first.

Codecs that round every element take 16 bits for each from xoshiro128+ (Blackman and Vigna, 2021).
Every 4,096 elements have sixteen generators; generator j of block b is started with the four words
of counter 16 * b + j. Element i of a block takes step i // 32 of generator i % 16. It uses the
lower half of the 32 bits where i % 32 < 16, else the upper.
"""

import numpy as np

U64 = np.uint64
MASK = U64(0xFFFFFFFF)


def philox(counter, key):
    """Ten rounds on arrays of 32-bit words (as uint64): four counter words, two key words."""
    c0, c1, c2, c3 = (np.asarray(word, U64) for word in counter)
    k0, k1 = (int(word) for word in key)
    for _ in range(10):
        p0 = U64(0xD2511F53) * c0
        p1 = U64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> U64(32)) ^ c1 ^ U64(k0),
            p1 & MASK,
            (p0 >> U64(32)) ^ c3 ^ U64(k1),
            p0 & MASK,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


class Stream:
    """All random numbers of one encoding."""

    def __init__(self, seed, key, round_number, worker, partition):
        mixed = (seed ^ key) & 0xFFFFFFFFFFFFFFFF
        self.key = (mixed & 0xFFFFFFFF, mixed >> 32)
        self.rest = (round_number & 0xFFFFFFFF, worker, partition)

    def blocks(self, count):
        """Returns [group][word][lane] of so many groups of sixteen lanes."""
        counters = np.arange(16 * count, dtype=U64)
        rest = [np.full_like(counters, word) for word in self.rest]
        words = np.stack(philox((counters, *rest), self.key)).astype(np.uint32)
        return words.reshape(4, count, 16).transpose(1, 0, 2)

    def words(self, n):
        """Returns 32 bits per element."""
        return self.blocks(-(-n // 64)).reshape(-1)[:n]

    def shorts(self, n):
        """Returns 16 bits per element."""
        state = self.blocks(-(-n // 4096)).transpose(1, 0, 2)  # [word][block][lane]
        drawn = np.stack(xoshiro(state, 128), axis=1)  # [block][step][lane]
        # [block][step][half][lane]
        halves = np.stack((drawn & np.uint32(0xFFFF), drawn >> np.uint32(16)), axis=2)
        return halves.reshape(-1)[:n].astype(np.int64)


def xoshiro(state, steps):
    """Takes so many steps of xoshiro128+ for arrays of states, [word] of uint32."""
    s0, s1, s2, s3 = (np.array(word, np.uint32) for word in state)
    drawn = []
    for _ in range(steps):
        drawn.append(s0 + s3)
        shifted = s1 << np.uint32(9)
        s2 = s2 ^ s0
        s3 = s3 ^ s1
        s1 = s1 ^ s2
        s0 = s0 ^ s3
        s2 = s2 ^ shifted
        s3 = s3 << np.uint32(11) | s3 >> np.uint32(21)
    return drawn


def self_test():
    """Checks known answers: those published with Random123, and those of xoshiro128+."""
    ones = 0xFFFFFFFF
    for counter, key, want in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        got = tuple(int(word) for word in philox(counter, key))
        assert got == want, f"Philox4x32-10 of {counter}: {got}, expected {want}"
    # The state 1, 2, 3, 4, as in the test vectors of published implementations.
    got = [int(word) for word in np.ravel(xoshiro(([1], [2], [3], [4]), 10))]
    want = [
        5,
        12295,
        25178119,
        27286542,
        39879690,
        1140358681,
        3276312097,
        4110231701,
        399823256,
        2144435200,
    ]
    assert got == want, f"xoshiro128+: {got}, expected {want}"
