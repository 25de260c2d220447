# SPDX-License-Identifier: Apache-2.0
"""dgc, and clipping, momentum and warm-up before other codecs.

usage: momentum_test.py CODEC_TOOL
"""

import bins
import quantizers as q
import sparse as s
from harness import INPUTS, compare, heavy_tailed, huge, normal, ties
from momentum import Before, dgc_nesterov, heavy_ball, nesterov, warmup

MEDIUM = (1, 255, 4097, 3 * 4096 + 5)


def dgc(**options):
    return Before(heavy_ball, masks=True, **options)


# spec: reference, error feedback, what comes before it
CODECS = {
    "dgc": (s.topk(s.share(0.001)), True, dgc()),
    "dgc:ratio=0.05,mu=0.5": (s.topk(s.share(0.05)), True, dgc(mu=0.5)),
    "dgc:k=33,nesterov=on": (s.topk(s.count(33)), True, Before(dgc_nesterov, masks=True)),
}
DECORATED = {
    "1bit:momentum=nesterov": (q.one_bit_l1, True, Before(nesterov)),
    "2bit:clip=5": (q.two_bit(), True, Before(clip=5)),
    "fp16:momentum=nesterov,mu=0.99,clip=0.5,clip_workers=9": (
        q.fp16,
        False,
        Before(nesterov, mu=0.99, clip=0.5, workers=9),
    ),
    "topk:ratio=0.1,momentum=nesterov": (s.topk(s.share(0.1)), True, Before(nesterov)),
    "topk:ratio=0.1,momentum=dgc": (s.topk(s.share(0.1)), True, dgc()),
    "threshold:momentum=dgc,mu=0.7": (s.threshold(), True, dgc(mu=0.7)),
    "adacomp:momentum=nesterov": (bins.adacomp(), True, Before(nesterov)),
    "qsgd:clip=2,seed=5": (q.qsgd(), False, Before(clip=2)),
}
WARMUPS = {
    "topk:ratio=0.01,warmup=2": (warmup(lambda density: s.topk(s.share(density)), 0.01, 2), None),
    "dgc:warmup=1": (warmup(lambda density: s.topk(s.share(density)), 0.001, 1), dgc()),
    "mstopk:ratio=0.004,warmup=2,clip=1": (
        warmup(lambda density: s.mstopk(s.share(density)), 0.004, 2),
        Before(clip=1),
    ),
}


def main():
    for spec, (codec, feedback, before) in CODECS.items():
        compare(spec, codec, feedback=feedback, before=before, inputs=INPUTS + (huge,))
    for spec, (codec, feedback, before) in DECORATED.items():
        compare(spec, codec, feedback=feedback, before=before, sizes=MEDIUM, seed=5)
    for spec, (codec, before) in WARMUPS.items():
        compare(
            spec,
            codec,
            feedback=True,
            before=before,
            sizes=MEDIUM,
            rounds=12,
            first_round=1,
            inputs=(normal, heavy_tailed, ties),
        )


if __name__ == "__main__":
    main()
