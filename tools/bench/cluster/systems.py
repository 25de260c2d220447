# SPDX-License-Identifier: Apache-2.0
"""The systems that slimps bench cluster compares.

A system is a set of options of the store and of the training loop.
"""

import collections
import difflib

# ns per element: encoding and decoding ResNet-50's 25,557,032 elements on a V100 takes 16 ms with
# SignSGD and 39 ms with 2-bit QSGD. Source: Agarwal et al., "On the Utility of Gradient Compression
# in Distributed Training Systems", MLSys 2022, table 2.
RESNET50_ELEMENTS = 25557032
V100_NS = {"1bit": 16e6 / RESNET50_ELEMENTS, "2bit": 39e6 / RESNET50_ELEMENTS}

# threshold: tensors of at least so many fp32 bytes are compressed. "auto": the threshold table
# decides. "none": no tensor is compressed.
# policy: what chooses pushes' codecs instead of compression and threshold; "threshold": they do.
System = collections.namedtuple(
    "System",
    "name compression threshold pull pull_threshold policy coalesce prioritise backup device_ns"
    " says",
)
BY_THRESHOLD = "threshold"


def system(name, compression="none", says="", **changes):
    fields = {
        "threshold": "0",
        "pull": "none",
        "pull_threshold": "0",
        "policy": BY_THRESHOLD,
        "coalesce": False,
        "prioritise": False,
        "backup": False,
        "device_ns": 0.0,
    }
    fields.update(changes)
    return System(name=name, compression=compression, says=says, **fields)


def slimgc(name, compression, says, **changes):
    fields = {"threshold": "auto", "coalesce": True, "prioritise": True, "backup": True}
    fields.update(changes)
    return system(name, compression, says, **fields)


def adapting(name, policy, says):
    """A policy that adapts, with all of SlimGC's mechanisms but its threshold table."""
    return slimgc(name, "none", says, policy=policy, pull="policy", threshold="0")


def inside(codec):
    """Returns a codec as a policy's option writes it."""
    return codec.replace(",", ";")


TWO_WAY = {"pull": "1bit", "pull_threshold": "auto"}
# Rounds between the decisions of a policy: so few that some hold before the figures begin, and that
# ten iterations have one report in them.
WINDOW = 10
JOINT = "joint:every=%d" % WINDOW
LGRECO = "lgreco:codec=topk:ratio=0.01,every=%d" % WINDOW
ON_DEVICE = V100_NS["1bit"]
ALL = [
    system("fp32", says="full precision, waiting"),
    system("1bit", "1bit", "MXNet: every push compressed, raw pulls, waiting"),
    system("2bit", "2bit", "as 1bit"),
    system(
        "1bit_2way",
        "1bit",
        "BytePS: pulls compressed too, by priority, waiting",
        pull="1bit",
        prioritise=True,
    ),
    system(
        "1bit_on_device",
        "1bit",
        "1bit, encoded on the compute timeline (simulated, a V100's published time)",
        device_ns=V100_NS["1bit"],
    ),
    system("2bit_on_device", "2bit", "as 1bit_on_device", device_ns=V100_NS["2bit"]),
    system("terngrad", "terngrad", "every push compressed, raw pulls, waiting"),
    system("topk10", "topk:ratio=0.1", "as terngrad"),
    system("dgc10", "dgc:ratio=0.1", "as terngrad"),
    slimgc(
        "slimgc_1bit",
        "1bit",
        "SlimGC: threshold table, offload, backup model, coalescing, priorities; raw pulls",
    ),
    slimgc("slimgc_2bit", "2bit", "as slimgc_1bit"),
    # The ladder begins at 1bit_on_device (MXNet encodes where the gradients are). Each step adds
    # one mechanism.
    system(
        "ladder_threshold",
        "1bit",
        "1bit_on_device and the threshold table",
        threshold="auto",
        device_ns=ON_DEVICE,
    ),
    system(
        "ladder_offload",
        "1bit",
        "and encoding off the compute timeline, on the CPU",
        threshold="auto",
    ),
    system("ladder_backup", "1bit", "and the backup model", threshold="auto", backup=True),
    system(
        "ladder_coalescing",
        "1bit",
        "and small tensors together in one message",
        threshold="auto",
        backup=True,
        coalesce=True,
    ),
    slimgc("ladder_priorities", "1bit", "and front layers first: slimgc_1bit"),
    slimgc("slimgc_1bit_2way", "1bit", "and compressed pulls", **TWO_WAY),
    # The baseline of whoever asks whether compression pays: it costs no accuracy, and all that is
    # not compression is as in SlimGC.
    slimgc(
        "bf16",
        "bf16",
        "half precision both ways, with SlimGC's backup model, coalescing and priorities",
        threshold="0",
        pull="bf16",
        pull_threshold="0",
    ),
    slimgc(
        "powersgd4",
        "powersgd:rank=4",
        "low-rank factors in two phases, every matrix; raw pulls",
        threshold="0",
    ),
    slimgc(
        "thc",
        "thc",
        "4-bit integers that servers add up without decoding them, after a phase for norms; raw "
        "pulls",
        threshold="65536",
    ),
    adapting(
        "lgreco",
        LGRECO,
        "a ratio of topk for each tensor, least bytes at the error of 1 % everywhere; pulls alike",
    ),
    adapting(
        "lgreco_time",
        LGRECO + ",objective=time",
        "as lgreco, with the least predicted time instead of the least bytes",
    ),
    adapting(
        "joint",
        JOINT,
        "each tensor's codec or raw, least predicted time at the error of 4-bit qsgd; pulls alike",
    ),
]
BY_NAME = {entry.name: entry for entry in ALL}


def find(text):
    """Returns the system NAME; NAME@BYTES, NAME@none or NAME@auto give it that threshold.

    The threshold holds for pushes and for pulls.
    ValueError: there is no such system, or the threshold is wrong.
    """
    name, at, threshold = text.partition("@")
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, 1)
        raise ValueError(
            "unknown system '%s'%s; valid are %s"
            % (name, ": did you mean '%s'?" % near[0] if near else "", ", ".join(BY_NAME))
        )
    found = BY_NAME[name]
    if not at:
        return found
    if threshold not in ("auto", "none"):
        if not (threshold.isascii() and threshold.isdigit()):
            raise ValueError("system '%s': expected bytes, auto or none after @" % text)
        if len(threshold) > 19 or int(threshold) >= 1 << 63:
            raise ValueError("system '%s': expected less than 2^63 bytes after @" % text)
    if adapts(found):
        raise ValueError("system '%s': %s's policy decides, so it has no threshold" % (text, name))
    if found.compression == "none":
        raise ValueError(
            "system '%s': %s compresses nothing, so it has no threshold" % (text, name)
        )
    return found._replace(name=text, threshold=threshold, pull_threshold=threshold)


def adapts(entry):
    return entry.policy != BY_THRESHOLD


def is_automatic(entry):
    return "auto" in (entry.threshold, entry.pull_threshold)


def decides(entry):
    """True if the job decides something while it runs."""
    return adapts(entry) or is_automatic(entry)


def profiled(entry):
    """Returns what measured thresholds depend on. Systems with equal results share a profile."""
    return entry.compression, entry.pull


def worker_flags(entry):
    """Returns the system's flags of bench_cluster_worker."""
    flags = {
        "compression": entry.compression,
        "threshold": "auto" if adapts(entry) else entry.threshold,
        "pull_compression": entry.pull,
        "pull_threshold": entry.pull_threshold,
        "policy": entry.policy,
        "coalesce": entry.coalesce,
        "prioritise": entry.prioritise,
        "backup_model": entry.backup,
        "device_encode_ns": "%.6f" % entry.device_ns,
    }
    return [
        "--%s=%s" % (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in flags.items()
    ]
