# SPDX-License-Identifier: Apache-2.0
"""The tables of slimps bench cluster, for a terminal and as markdown."""

import re

from bench.common import markdown_table, ratio, size_name, text_table, verdict
from slimps_launch.schema import (
    COUNT,
    NUMBER,
    NUMBER_OR_NULL,
    POSITIVE,
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
        "cluster LINK or cluster LINK thresholds",
        lambda name: isinstance(name, str)
        and re.fullmatch("cluster [^ ]+(%s)?" % CHOICES, name) is not None,
    ),
    "nodes": COUNT,
    "placement": TEXT,
    "same_host": Optional(TEXT),
    "congestion": TEXT,
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
            "iteration_ms_of_repeats": Optional([POSITIVE]),
        }
    ],
}


def threshold_name(row):
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


def by_model(report):
    """Returns [(model, its rows)]."""
    return [
        (model, [row for row in report["results"] if row["model"] == model])
        for model in dict.fromkeys(row["model"] for row in report["results"])
    ]


def conditions(report):
    return (
        "%d nodes, %s, worker and server %s%s, %s, %d iterations, %s, %d cores; "
        "compute is simulated by waiting"
        % (
            report["nodes"],
            report["bench"].split()[1],
            report["placement"],
            " by " + report.get("same_host", "tcp") if report["placement"] == "together" else "",
            report["congestion"],
            report["iterations"],
            "1 run" if report["repeats"] == 1 else "medians of %d runs" % report["repeats"],
            report["cores"],
        )
    )


def tables(report):
    """Yields (title, headings, rows): each model's systems, and a comparison of its thresholds."""
    for model, rows in by_model(report):
        yield model, HEADINGS, [cells(row) for row in rows]
        compared = choices(rows)
        if compared:
            yield model + ": the table's choice beside fixed thresholds", CHOICE_HEADINGS, compared


def text(report):
    lines = [conditions(report)]
    for title, headings, rows in tables(report):
        lines += ["", title] + text_table(headings, rows)
    return "\n".join(lines)


def markdown(report):
    lines = [conditions(report) + "."]
    for title, headings, rows in tables(report):
        lines += ["", "### %s" % title, ""] + markdown_table(headings, rows)
    return "\n".join(lines)
