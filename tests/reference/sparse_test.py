# SPDX-License-Identifier: Apache-2.0
"""Sparse codecs. usage: sparse_test.py CODEC_TOOL"""

import sparse as s
import unbiased
from arithmetic import BLOCK
from harness import INPUTS, compare, huge

SEED = 77


def most(k_of, value_bytes):
    """Returns the bytes of packed or delta-coded indices, whichever are fewer."""
    return lambda n: 20 + 4 * -(-n // BLOCK) + value_bytes * k_of(n) + -(-3 * k_of(n) // 2)


def most_signs(ratio):
    """As most(), but each side sends at least one element."""

    def most_bytes(n):
        k = min(n, s.share(ratio)(n) + 1)
        return 20 + 4 * -(-n // BLOCK) + -(-k // 8) + -(-3 * k // 2)

    return most_bytes


def by_threshold(value_bits):
    return lambda n: 20 + 4 * -(-n // BLOCK) + -(-n * value_bits // 8) + -(-3 * n // 2)


hundredth = s.share(0.01)
# spec: reference, error feedback, payload bytes of n elements at most
CODECS = {
    "topk": (s.topk(hundredth), True, most(hundredth, 4)),
    "topk:ratio=0.25": (s.topk(s.share(0.25)), True, most(s.share(0.25), 4)),
    "topk:k=300,value=fp16": (s.topk(s.count(300), "fp16"), True, most(s.count(300), 2)),
    "topk:k=5": (s.topk(s.count(5)), False, most(s.count(5), 4)),
    "mstopk": (s.mstopk(hundredth), True, most(hundredth, 4)),
    "mstopk:ratio=0.1,passes=3": (s.mstopk(s.share(0.1), 3), True, most(s.share(0.1), 4)),
    "mstopk:k=40,passes=0": (s.mstopk(s.count(40), 0), True, most(s.count(40), 4)),
    "redsync": (s.redsync(hundredth), True, most(hundredth, 0)),
    "redsync:ratio=0.3": (s.redsync(s.share(0.3)), True, most(s.share(0.3), 0)),
    "dryden": (s.dryden(s.share(0.003)), True, most_signs(0.003)),
    "dryden:ratio=0.2": (s.dryden(s.share(0.2)), True, most_signs(0.2)),
    "threshold": (s.threshold(), True, by_threshold(1)),
    "threshold:tau=2,value=fp32": (s.threshold(2, "fp32"), True, by_threshold(32)),
}
RANDOM = {
    f"randomk:seed={SEED}": (s.randomk(hundredth), True, lambda n: 40 + 4 * hundredth(n)),
    f"randomk:ratio=0.2,scaled=on,seed={SEED}": (
        s.randomk(s.share(0.2), True),
        False,
        lambda n: 40 + 4 * s.share(0.2)(n),
    ),
}


def main():
    for spec, (codec, feedback, most_bytes) in CODECS.items():
        inputs = INPUTS if "fp16" in spec else INPUTS + (huge,)
        compare(spec, codec, feedback=feedback, most_bytes=most_bytes, inputs=inputs)
    for spec, (codec, feedback, payload_bytes) in RANDOM.items():
        compare(
            spec,
            codec,
            feedback=feedback,
            seed=SEED,
            payload_bytes=payload_bytes,
            inputs=INPUTS + (huge,),
        )
    unbiased.check_unbiased(
        "randomk:k=60,scaled=on", unbiased.scaled(60, unbiased.ELEMENTS), independent=False
    )


if __name__ == "__main__":
    main()
