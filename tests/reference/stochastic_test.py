# SPDX-License-Identifier: Apache-2.0
"""Codecs that round at random: equal bit for bit with the same random numbers, and unbiased over
10,000 draws.

usage: stochastic_test.py CODEC_TOOL
"""

import philox
import quantizers as q
import unbiased
from harness import INPUTS, compare, huge


def qsgd_bytes(bits, bucket):
    return lambda n: 16 + 4 * -(-n // bucket) + (2 * -(-n // 8) if bits == 2 else -(-n * bits // 8))


# spec (the seed is added): the same
RANDOM = {
    "terngrad": (q.terngrad(), False, lambda n: 16 + 2 * -(-n // 8)),
    "terngrad:clip=0": (q.terngrad(0), False, lambda n: 16 + 2 * -(-n // 8)),
    "terngrad:clip=1.25,error_feedback=on": (q.terngrad(1.25), True, lambda n: 16 + 2 * -(-n // 8)),
    "qsgd": (q.qsgd(), False, qsgd_bytes(4, 512)),
    "qsgd:bits=2,bucket=4096,error_feedback=on": (q.qsgd(2, 4096), True, qsgd_bytes(2, 4096)),
    "qsgd:bits=8,bucket=128,norm=max,error_feedback=on": (
        q.qsgd(8, 128, "max"),
        True,
        qsgd_bytes(8, 128),
    ),
    "qsgd:bits=4,norm=max": (q.qsgd(4, 512, "max"), False, qsgd_bytes(4, 512)),
    "dithering": (q.dithering(), False, lambda n: 16 + -(-n // 2)),
    "dithering:k=100,normalize=l2,error_feedback=on": (
        q.dithering(100, "linear", "l2"),
        True,
        lambda n: 16 + n,
    ),
    "dithering:partition=natural": (q.dithering(7, "natural"), False, lambda n: 16 + -(-n // 2)),
    "dithering:partition=natural,k=20,normalize=l2,error_feedback=on": (
        q.dithering(20, "natural", "l2"),
        True,
        lambda n: 16 + n,
    ),
    "dithering:partition=natural,k=1": (
        q.dithering(1, "natural"),
        False,
        lambda n: 16 + -(-n // 2),
    ),
}
SEED = 0xFEDCBA9876543210
# spec: what each element may decode to
UNBIASED = {
    "terngrad:clip=0": unbiased.terngrad,
    "qsgd:bits=2,bucket=4096": unbiased.qsgd(1, 4096),
    "qsgd": unbiased.qsgd(7, 512),
    "qsgd:bits=8,bucket=128": unbiased.qsgd(127, 128),
    "dithering": unbiased.linear(7),
    "dithering:k=100": unbiased.linear(100),
    "dithering:partition=natural": unbiased.natural(7),
    "dithering:partition=natural,k=20": unbiased.natural(20),
}


def main():
    philox.self_test()
    for spec, (codec, feedback, payload_bytes) in RANDOM.items():
        seeded = spec + ("," if ":" in spec else ":") + f"seed={SEED}"
        compare(
            seeded,
            codec,
            feedback=feedback,
            payload_bytes=payload_bytes,
            seed=SEED,
            inputs=INPUTS + (huge,),
        )
    for spec, neighbours in UNBIASED.items():
        unbiased.check_unbiased(spec, neighbours)


if __name__ == "__main__":
    main()
