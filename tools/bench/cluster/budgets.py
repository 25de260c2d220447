# SPDX-License-Identifier: Apache-2.0
"""slimps bench cluster --budgets: joint at several error budgets, beside fixed codecs.

A budget is the error of a codec for a model's gradients. The fixed codecs are those that joint
chooses from and the budgets' own, each for all tensors, with the same pulls and all else alike. So
each fixed codec is measured once, whatever the budgets.
"""

import argparse

from bench.cluster import systems

RAW = "none"
SMALLEST = "1024"  # bytes: of the smallest tensors that joint compresses
CODECS = (
    "fp16",
    "1bit",
    "qsgd:bits=8,norm=max",
    "qsgd:bits=4,norm=max",
    "qsgd:bits=2,norm=max",
    "topk:ratio=0.05",
    "topk:ratio=0.01",
    "topk:ratio=0.001",
)


def codec_list(text):
    """Returns the codecs of a list with |.

    argparse.ArgumentTypeError: one is empty or is there twice.
    """
    codecs = text.split("|")
    if "" in codecs or len(set(codecs)) < len(codecs):
        raise argparse.ArgumentTypeError(
            'expected different codecs with | between them, got "%s"' % text
        )
    return codecs


def has_phases(codec):
    """True if the codec's exchange has phases: its pulls are raw, and its budget is a number."""
    return codec.partition(":")[0] in ("powersgd", "thc")


def fixed(codec):
    """Returns the system that sends all tensors by this codec."""
    if codec == RAW:
        return systems.slimgc(codec, RAW, "raw both ways", threshold="0")
    if has_phases(codec):
        return systems.slimgc(codec, codec, "every tensor; raw pulls", threshold=SMALLEST)
    return systems.slimgc(
        codec,
        codec,
        "every tensor; pulls alike",
        threshold=SMALLEST,
        pull=codec,
        pull_threshold=SMALLEST,
    )


def joint(codec, error):
    """Returns joint with the codec's error as its budget."""
    budget = "%.6g" % error if has_phases(codec) else systems.inside(codec)
    says = "each tensor's codec or raw, least predicted time at the error of " + codec
    return systems.adapting("joint at " + codec, "%s,budget=%s" % (systems.JOINT, budget), says)


class Cell:
    """What is compared for one model on one link.

    `errors`: of all codecs that compared() lists, as parts of |x|^2.
    """

    def __init__(self, budgets, errors):
        self.limits = {"joint at " + codec: errors[codec] for codec in budgets}
        self.errors = {RAW: 0.0}
        for codec in compared(budgets):
            if errors[codec] <= max(self.limits.values()):
                self.errors[codec] = errors[codec]
        self.systems = [joint(codec, errors[codec]) for codec in budgets]
        self.systems += [fixed(codec) for codec in self.errors]

    def put_into(self, results):
        """Adds each row's error, and the budget of joint's."""
        for row in results:
            if row["system"] in self.limits:
                row["error_budget"] = self.limits[row["system"]]
            else:
                row["error"] = self.errors[row["system"]]


def compared(budgets):
    """Returns the codecs whose errors a cell needs."""
    return list(dict.fromkeys(CODECS + tuple(budgets)))
