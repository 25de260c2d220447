# SPDX-License-Identifier: Apache-2.0
"""The report of slimps bench gpu: its systems, its fields, its tables."""

import collections

from bench import common
from slimps_launch import schema

TOGETHER = 2  # workers of the jobs beside DDP
BOTH = (1, TOGETHER)
System = collections.namedtuple("System", "workers says")
SYSTEMS = {
    "alone": System(BOTH, "fp32, nothing compressed, nothing exchanged"),
    "device_1bit": System((1,), "1bit on the GPU after backward, nothing exchanged"),
    "device_2bit": System((1,), "the same with 2bit"),
    "ddp_fp32": System((TOGETHER,), "DistributedDataParallel"),
    "ddp_bf16": System((TOGETHER,), "the same with torch's bf16 hook"),
    "ddp_powersgd": System((TOGETHER,), "the same with torch's PowerSGD hook, rank 4"),
    "slimps_fp32": System(BOTH, "DistributedOptimizer, nothing compressed, waiting"),
    "slimps_1bit": System(BOTH, "the same with 1bit, offloaded to the CPU"),
    "slimps_2bit": System((1,), "the same with 2bit"),
    "slimps_1bit_2way": System(BOTH, "SlimGC: 1bit both ways, backup model"),
}
SETTINGS = ("batch", "steps", "repeats", "threshold")
# Beside the time of a step.
FIGURES = ("peak_bytes", "bytes_in_use", "kernels_ms", "copies_ms", "encode_ms", "wait_ms")
SHAPE = {
    "bench": schema.TEXT,
    "gpu": schema.Kind("text or null", lambda value: value is None or isinstance(value, str)),
    **{name: schema.Optional(schema.TEXT) for name in ("driver", "cuda", "torch", "backend")},
    "gpus": schema.Optional(schema.COUNT),
    "batch": schema.Optional(schema.COUNT),
    "steps": schema.Optional(schema.COUNT),
    "repeats": schema.Optional(schema.COUNT),
    "threshold": schema.Optional(schema.SIZE),
    "why_not": schema.Optional(schema.TEXT),
    "results": [
        {
            "model": schema.TEXT,
            "system": schema.one_of(list(SYSTEMS)),
            "workers": schema.COUNT,
            "why_not": schema.Optional(schema.TEXT),
            "step_ms": schema.Optional(schema.POSITIVE),
            **{figure: schema.Optional(schema.NUMBER_OR_NULL) for figure in FIGURES},
        }
    ],
}


def exposed_ms(row, alone):
    """Returns by how much a step is longer than one without exchange."""
    return max(0.0, row["step_ms"] - alone["step_ms"])


def hidden_part(row, alone):
    """Returns which part of copying and encoding hides behind the step; None: there is none."""
    work = row["copies_ms"] + row["encode_ms"]
    return max(0.0, 1 - exposed_ms(row, alone) / work) if work > 0 else None


def mib(size):
    return "%.1f" % (size / 2**20)


def percent(part):
    return "" if part is None else "%.0f %%" % (100 * part)


def memory(rows):
    """Returns the cells about memory; the second column is what a system takes beside `alone`."""
    alone = rows.get("alone")
    return [
        [
            name,
            mib(row["peak_bytes"]),
            mib(row["peak_bytes"] - alone["peak_bytes"]) if alone else "",
            mib(row["bytes_in_use"]),
        ]
        for name, row in rows.items()
    ]


def taken(rows):
    return [
        [name]
        + ["" if row[key] is None else "%.3f" % row[key] for key in ("kernels_ms", "copies_ms")]
        for name, row in rows.items()
        if row["kernels_ms"] is not None or row["copies_ms"] is not None
    ]


def overlap(rows):
    alone = rows.get("alone")
    return [
        [
            name,
            "%.2f" % row["copies_ms"],
            "%.2f" % row["encode_ms"],
            "%.2f" % row["step_ms"],
            "%.2f" % exposed_ms(row, alone),
            percent(hidden_part(row, alone)),
        ]
        for name, row in rows.items()
        if alone and row["copies_ms"] is not None
    ]


def steps(rows):
    ddp = rows.get("ddp_fp32")
    return [
        [
            name,
            "%.2f" % row["step_ms"],
            common.ratio(ddp["step_ms"] / row["step_ms"] if ddp else None),
        ]
        for name, row in rows.items()
    ]


def tables(report):
    """Returns (title, headings, rows) of each table that has rows."""
    found = []
    for model in dict.fromkeys(row["model"] for row in report["results"]):
        one, both = (
            {
                row["system"]: row
                for row in report["results"]
                if (row["model"], row["workers"]) == (model, workers) and "why_not" not in row
            }
            for workers in BOTH
        )
        over = "%d workers, DDP over %s" % (TOGETHER, report["backend"])
        found += [
            (
                model + ", one worker: MiB of the GPU",
                ["system", "tensors' peak", "more than alone", "GPU in use"],
                memory(one),
            ),
            (
                model + ", one worker: ms of a step that compression takes of the GPU",
                ["system", "kernels", "copies"],
                taken(one),
            ),
            (
                model + ", one worker: what hides behind the step",
                ["system", "copies ms", "encoding ms", "step ms", "more than alone", "hidden"],
                overlap(one),
            ),
            ("%s, %s" % (model, over), ["system", "step ms", "x DDP fp32"], steps(both)),
        ]
    return [table for table in found if table[2]]


def about(report):
    if report["gpu"] is None:
        return "no GPU is here: " + report["why_not"]
    lines = [
        "%s (%d here), driver %s, CUDA %s, torch %s, batch %d, medians of %d times %d steps, "
        "threshold %d"
        % (
            report["gpu"],
            report["gpus"],
            report["driver"],
            report["cuda"],
            report["torch"],
            report["batch"],
            report["repeats"],
            report["steps"],
            report["threshold"],
        )
    ]
    return "; ".join(
        lines
        + [
            "%s of %s could not run (%s)" % (row["system"], row["model"], row["why_not"])
            for row in report["results"]
            if "why_not" in row
        ]
    )


def text(report):
    return common.text_report(about(report), tables(report))


def markdown(report):
    return common.markdown_report(about(report), tables(report))
