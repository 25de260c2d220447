# SPDX-License-Identifier: Apache-2.0
"""Codecs without random numbers that keep every element. usage: quantizers_test.py CODEC_TOOL"""

import quantizers as q
from arithmetic import block_sizes
from harness import INPUTS, compare, huge


def blocks(n):
    return len(block_sizes(n))


# spec: reference, error feedback, payload bytes of n elements
CODECS = {
    "none": (q.fp32, True, lambda n: 4 * n),
    "fp16": (q.fp16, True, lambda n: 2 * n),
    "bf16": (q.bf16, True, lambda n: 2 * n),
    "1bit": (q.one_bit_l1, True, lambda n: 16 + 4 * blocks(n) + -(-n // 8)),
    "1bit:error_feedback=off": (q.one_bit_l1, False, lambda n: 16 + 4 * blocks(n) + -(-n // 8)),
    "1bit:scaling=two_mean,error_feedback=off": (
        q.one_bit_two_mean,
        False,
        lambda n: 16 + 8 * blocks(n) + -(-n // 8),
    ),
    "1bit:scaling=two_mean": (q.one_bit_two_mean, True, lambda n: 16 + 8 * blocks(n) + -(-n // 8)),
    "1bit:scaling=none": (q.one_bit_none(), True, lambda n: 16 + -(-n // 8)),
    "1bit:scaling=none,threshold=0.25": (q.one_bit_none(0.25), True, lambda n: 16 + -(-n // 8)),
    "2bit": (q.two_bit(), True, lambda n: 16 + 2 * -(-n // 8)),
    "2bit:threshold=0.03125": (q.two_bit(0.03125), True, lambda n: 16 + 2 * -(-n // 8)),
    "2bit:threshold=1e30": (q.two_bit(1e30), True, lambda n: 16 + 2 * -(-n // 8)),
    "signsgd": (q.signsgd, False, lambda n: 16 + -(-n // 8)),
    "signsgd:error_feedback=on": (q.signsgd, True, lambda n: 16 + -(-n // 8)),
}


def main():
    for spec, (codec, feedback, payload_bytes) in CODECS.items():
        takes_huge = codec in (q.one_bit_l1, q.one_bit_two_mean) or spec.startswith("2bit")
        inputs = INPUTS + (huge,) if takes_huge else INPUTS
        compare(spec, codec, feedback=feedback, payload_bytes=payload_bytes, inputs=inputs)


if __name__ == "__main__":
    main()
