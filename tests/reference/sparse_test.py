"""Sparse codecs. usage: sparse_test.py CODEC_TOOL"""

import sparse as s
import unbiased
from harness import compare

SEED = 77
# spec: reference, error feedback
CODECS = {
    "topk": (s.topk(s.share(0.01)), True),
    "topk:ratio=0.25": (s.topk(s.share(0.25)), True),
    "topk:k=300,value=fp16": (s.topk(s.count(300), "fp16"), True),
    "topk:k=5": (s.topk(s.count(5)), False),
    "mstopk": (s.mstopk(s.share(0.01)), True),
    "mstopk:ratio=0.1,passes=3": (s.mstopk(s.share(0.1), 3), True),
    "mstopk:k=40,passes=0": (s.mstopk(s.count(40), 0), True),
    "redsync": (s.redsync(s.share(0.01)), True),
    "redsync:ratio=0.3": (s.redsync(s.share(0.3)), True),
    "threshold": (s.threshold(), True),
    "threshold:tau=2,value=fp32": (s.threshold(2, "fp32"), True),
    f"randomk:seed={SEED}": (s.randomk(s.share(0.01)), True),
    f"randomk:ratio=0.2,scaled=on,seed={SEED}": (s.randomk(s.share(0.2), True), False),
}


def main():
    for spec, (codec, feedback) in CODECS.items():
        compare(spec, codec, feedback=feedback, seed=SEED)
    unbiased.check_unbiased("randomk:k=60,scaled=on", unbiased.scaled(60, unbiased.ELEMENTS), independent=False)


if __name__ == "__main__":
    main()
