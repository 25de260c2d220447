# SPDX-License-Identifier: Apache-2.0
"""The systems of slimps bench torch, by name. The command and its workers read them, without torch.

A system says how gradients are exchanged: not at all ("alone"), by DistributedDataParallel over
gloo ("ddp": a kind of ddp_hooks and its options) or by slimps ("slimps": the options of
DistributedOptimizer).
"""

import collections

System = collections.namedtuple("System", "says exchange options")


def ddp(says, **options):
    return System(says, "ddp", options)


def slimps(says, **options):
    return System(says, "slimps", options)


ALONE = System("no exchange at all: what computing takes", "alone", {})
GLOO = ddp("DistributedDataParallel over gloo")
FP32 = slimps("DistributedOptimizer, nothing compressed, waiting")
PUSHES = {"compression": "1bit"}
BOTH_WAYS = {"compression": "1bit", "pull_compression": "1bit"}
SLIMGC = slimps(
    "DistributedOptimizer, SlimGC: 1bit, raw pulls, backup model", backup_model=True, **PUSHES
)
SLIMGC_2WAY = slimps(
    "DistributedOptimizer, SlimGC: 1bit both ways, backup model", backup_model=True, **BOTH_WAYS
)


def clipped(system, says):
    return slimps(says, clip_norm=1.0, **system.options)


def powersgd(rank):
    return ddp(
        "DistributedDataParallel with torch's PowerSGD hook, rank %d, one bucket" % rank,
        kind="powersgd",
        rank=rank,
    )


# ResNet-18, which the processors train.
TRAINED = {
    "alone": ALONE,
    "gloo": GLOO,
    "powersgd": powersgd(4),
    "slimps_fp32": FP32,
    "slimps_1bit": SLIMGC,
    "slimps_1bit_2way": SLIMGC_2WAY,
    "slimps_fp32_clipped": clipped(
        FP32, "slimps_fp32 with clip_norm: no step before all gradients are there"
    ),
    "slimps_1bit_2way_clipped": clipped(SLIMGC_2WAY, "slimps_1bit_2way with clip_norm"),
}

# ResNet-50's tensors beside an accelerator that is waited for (--accelerator).
WAITED_FOR = {
    "alone": ALONE,
    "gloo": GLOO,
    "gloo_fp16": ddp(
        "DistributedDataParallel with torch's fp16_compress_hook",
        kind="default",
        hook="fp16_compress_hook",
    ),
    "gloo_delayed": ddp(
        "DistributedDataParallel that reduces while the next step computes: last step's mean",
        kind="delayed",
    ),
    "powersgd_1": powersgd(1),
    "powersgd_2": powersgd(2),
    "powersgd_4": powersgd(4),
    "slimps_fp32": FP32,
    "slimps_bf16": slimps(
        "DistributedOptimizer, bf16 both ways, waiting", compression="bf16", pull_compression="bf16"
    ),
    "slimps_1bit_2way": slimps("DistributedOptimizer, 1bit both ways, waiting", **BOTH_WAYS),
    "slimps_1bit_2way_overlap": slimps(
        "slimps_1bit_2way whose modules wait for their own weights",
        overlap_forward=True,
        **BOTH_WAYS,
    ),
    "slimgc_1bit": SLIMGC,
    "slimgc_1bit_2way": SLIMGC_2WAY,
    "slimps_powersgd_4": slimps(
        "DistributedOptimizer, powersgd of rank 4, raw pulls, waiting",
        compression="powersgd:rank=4",
        threshold=0,
    ),
    "slimps_powersgd_4_2way": slimps(
        "DistributedOptimizer, powersgd of rank 4, pulls by 1bit, waiting",
        compression="powersgd:rank=4",
        threshold=0,
        pull_compression="1bit",
    ),
    "slimgc_powersgd_1_2way": slimps(
        "DistributedOptimizer, powersgd of rank 1, pulls by 1bit, backup model",
        compression="powersgd:rank=1",
        threshold=0,
        pull_compression="1bit",
        backup_model=True,
    ),
}


def compared(accelerator_ms):
    """Returns the systems of a bench whose accelerator takes so long; None: processors train."""
    return TRAINED if accelerator_ms is None else WAITED_FOR
