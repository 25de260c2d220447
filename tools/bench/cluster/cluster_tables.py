# SPDX-License-Identifier: Apache-2.0
"""The tables of slimps bench cluster, for a terminal and as markdown."""

import math
import re

from bench import common
from bench.link import round_trip
from bench.common import ratio, size_name, verdict
from slimps_launch.schema import (
    COUNT,
    NUMBER,
    NUMBER_OR_NULL,
    POSITIVE,
    SIZE,
    SIZE_OR_NULL,
    TEXT,
    Kind,
    Optional,
)

HEADINGS = (
    "system",
    "iteration ms",
    "bound ms",
    "of bound",
    "x 1bit",
    "x fp32",
    "compute",
    "wire",
    "cpu",
    "encode",
    "exposed",
    "overlap",
    "MB out",
    "MB in",
    "threshold",
)
CHOICE_HEADINGS = (
    "system",
    "setting",
    "threshold",
    "iteration ms",
    "of repeats",
    "to the best fixed",
    "bar",
)
CHOICE_BAR = 1.05  # bound of the table's choice / best fixed threshold, by iteration time
CHOICES = " thresholds"  # the end of a report's name if it compares thresholds
BUDGETS = " budgets"  # the same of error budgets
BUDGET_HEADINGS = (
    "joint at the error of",
    "part lost",
    "iteration ms",
    "of repeats",
    "the fastest fixed",
    "its ms",
    "to it",
    "bar",
)
TIMES = (
    "compute_ms",
    "wire_ms_at_link_rate",
    "cpu_ms",
    "encode_ms",
    "encode_exposed_ms",
    "overlap_ms",
)
# The fields of a report that the tables read.
SHAPE = {
    "bench": Kind(
        "cluster LINK, cluster LINK thresholds or cluster LINK budgets, LINK with its round trip",
        lambda name: isinstance(name, str)
        and re.fullmatch("cluster [^ ]+( rtt [^ ]+ms)?(%s|%s)?" % (CHOICES, BUDGETS), name)
        is not None,
    ),
    **round_trip.SHAPE,
    "nodes": COUNT,
    "placement": TEXT,
    "same_host": Optional(TEXT),
    "congestion": TEXT,
    "snapshot_every": Optional(SIZE),
    "iterations": COUNT,
    "repeats": COUNT,
    "cores": COUNT,
    "results": [
        {
            "system": TEXT,
            "model": TEXT,
            "iteration_ms": POSITIVE,
            "bound_ms": NUMBER,
            **dict.fromkeys(
                ("fraction_of_bound", "speedup_over_1bit", "speedup_over_fp32"), NUMBER_OR_NULL
            ),
            **dict.fromkeys(TIMES + ("wire_bytes_out", "wire_bytes_in"), NUMBER),
            "threshold_bytes": SIZE_OR_NULL,
            "pull_threshold_bytes": Optional(SIZE_OR_NULL),
            "threshold_setting": Optional(TEXT),
            "policy": Optional(TEXT),
            "error": Optional(NUMBER),
            "error_budget": Optional(NUMBER),
            "iteration_ms_of_repeats": Optional([POSITIVE]),
        }
    ],
}


def threshold_name(row):
    if "policy" in row:
        return row["policy"]
    name = "" if row["system"] == "fp32" else size_name(row["threshold_bytes"])
    if row.get("pull_threshold_bytes") is not None:
        name += ", pulls " + size_name(row["pull_threshold_bytes"])
    return name


def cells(row):
    return (
        [
            row["system"],
            "%.1f" % row["iteration_ms"],
            "%.1f" % row["bound_ms"],
            ratio(row["fraction_of_bound"]),
            ratio(row["speedup_over_1bit"]),
            ratio(row["speedup_over_fp32"]),
        ]
        + ["%.1f" % row[name] for name in TIMES]
        + [
            "%.2f" % (1e-6 * row["wire_bytes_out"]),
            "%.2f" % (1e-6 * row["wire_bytes_in"]),
            threshold_name(row),
        ]
    )


def base(row):
    """Returns the system's name without @ and what follows it."""
    return row["system"].partition("@")[0]


def choices(rows):
    """Returns table cells that compare the table's choice with fixed thresholds, for one model.

    Leaves out systems that were not measured with both.
    """
    lines = []
    for name in dict.fromkeys(map(base, rows)):
        own = [row for row in rows if base(row) == name and "threshold_setting" in row]
        fixed = [row for row in own if row["threshold_setting"] != "auto"]
        if not fixed or len(fixed) == len(own):
            continue
        best = min(row["iteration_ms"] for row in fixed)
        for row in own:
            times = row.get("iteration_ms_of_repeats") or [row["iteration_ms"]]
            automatic = row["threshold_setting"] == "auto"
            lines.append(
                [
                    name,
                    "the table's" if automatic else row["threshold_setting"],
                    threshold_name(row),
                    "%.1f" % row["iteration_ms"],
                    "%.1f to %.1f" % (min(times), max(times)),
                    "%.3f" % (row["iteration_ms"] / best),
                    verdict(row["iteration_ms"] <= CHOICE_BAR * best, "%.2f" % CHOICE_BAR)
                    if automatic
                    else "",
                ]
            )
    return lines


def within_budgets(rows):
    """Returns table cells that compare joint with the fastest fixed codec within its budget."""
    lines = []
    for row in rows:
        if "error_budget" not in row:
            continue
        best = min(
            (each for each in rows if each.get("error", math.inf) <= row["error_budget"]),
            key=lambda each: each["iteration_ms"],
        )
        times = row.get("iteration_ms_of_repeats") or [row["iteration_ms"]]
        lines.append(
            [
                row["system"].removeprefix("joint at "),
                "%.3g" % row["error_budget"],
                "%.1f" % row["iteration_ms"],
                "%.1f to %.1f" % (min(times), max(times)),
                best["system"],
                "%.1f" % best["iteration_ms"],
                "%.3f" % (row["iteration_ms"] / best["iteration_ms"]),
                verdict(
                    row["iteration_ms"] <= CHOICE_BAR * best["iteration_ms"], "%.2f" % CHOICE_BAR
                ),
            ]
        )
    return lines


def kind_of(options):
    """Returns the end of a report's name."""
    if options.budgets:
        return BUDGETS
    return CHOICES if options.fixed_thresholds else ""


def by_model(report):
    """Returns [(model, its rows)]."""
    return [
        (model, [row for row in report["results"] if row["model"] == model])
        for model in dict.fromkeys(row["model"] for row in report["results"])
    ]


def conditions(report):
    every = report.get("snapshot_every")
    return (
        "%d nodes, %s%s, worker and server %s%s, %s, %d iterations, %s, %d cores%s; "
        "compute is simulated by waiting"
        % (
            report["nodes"],
            report["bench"].split()[1],
            round_trip.words(report),
            report["placement"],
            " by " + report.get("same_host", "tcp") if report["placement"] == "together" else "",
            report["congestion"],
            report["iterations"],
            "1 run" if report["repeats"] == 1 else "medians of %d runs" % report["repeats"],
            report["cores"],
            ", a snapshot every %d s" % every if every else "",
        )
    )


def tables(report):
    """Yields (title, headings, rows): each model's systems, and a comparison of its thresholds."""
    for model, rows in by_model(report):
        yield model, HEADINGS, [cells(row) for row in rows]
        compared = choices(rows)
        if compared:
            yield model + ": the table's choice beside fixed thresholds", CHOICE_HEADINGS, compared
        budgets = within_budgets(rows)
        if budgets:
            yield model + ": joint beside fixed codecs within its budget", BUDGET_HEADINGS, budgets


def text(report):
    return common.text_report(conditions(report), tables(report))


def markdown(report):
    return common.markdown_report(conditions(report), tables(report))
