# SPDX-License-Identifier: Apache-2.0
"""The report of slimps bench torch, from its jobs' figures, and its tables. Pure."""

import statistics

from bench import common
from bench.cluster import bound
from bench.link import round_trip
from bench.common import markdown_table, text_table, verdict
from bench.torch import torch_systems
from slimps_launch import schema

BARS = {8: 2.0, 64: 0.95}  # batch -> least speed-up of slimps_1bit_2way over gloo
# A report with accelerator_ms is of an accelerator that was waited for. There iteration_ms is the
# median step of the median start; otherwise it is the median start's mean step.
SHAPE = {
    "bench": schema.TEXT,
    "nodes": schema.COUNT,
    "link": schema.TEXT,
    **round_trip.SHAPE,
    "steps": schema.COUNT,
    "repeats": schema.COUNT,
    "cores": schema.COUNT,
    "threshold": schema.TEXT,
    "accelerator_ms": schema.Optional(schema.POSITIVE),
    "results": [
        {
            "system": schema.one_of(
                list(dict.fromkeys([*torch_systems.TRAINED, *torch_systems.WAITED_FOR]))
            ),
            "batch": schema.Optional(schema.COUNT),
            "iteration_ms": schema.POSITIVE,
            "iteration_ms_of_repeats": schema.Optional([schema.POSITIVE]),
            "samples_per_s": schema.Optional(schema.POSITIVE),
            "speedup_over_gloo": schema.NUMBER_OR_NULL,
            "of_alone": schema.NUMBER_OR_NULL,
            "bytes_pushed": schema.NUMBER_OR_NULL,
            "bytes_pulled": schema.NUMBER_OR_NULL,
            **dict.fromkeys(
                (
                    "iteration_ms_min",
                    "iteration_ms_max",
                    "accelerator_ms",
                    "wire_ms",
                    "cores_ms",
                    "bound_ms",
                    "wire_bytes_out",
                    "wire_bytes_in",
                    "charged_iteration_ms",
                    "charged_iteration_ms_min",
                    "charged_iteration_ms_max",
                    "charged_bound_ms",
                ),
                schema.Optional(schema.NUMBER),
            ),
        }
    ],
}


# ---- figures
# ----------------------------------------------------------------------------------------


def figures_of(reports, accelerator_ms, bits, cores):
    """Returns one job's figures, from its workers' reports.

    A step is as long as the slowest worker's. `bits`: a second on a link; None: unshaped.
    """
    figures = {name: statistics.fmean(report[name] for report in reports) for name in reports[0]}
    if accelerator_ms is None:
        figures["iteration_ms"] = max(report["iteration_ms"] for report in reports)
        return figures
    figures["iteration_ms"] = max(report["median_iteration_ms"] for report in reports)
    if "charged_iteration_ms" in figures:
        figures["charged_iteration_ms"] = max(report["charged_iteration_ms"] for report in reports)
    # Those of the busiest node, since a step waits for its link.
    for name in ("wire_bytes_out", "wire_bytes_in"):
        figures[name] = max(report[name] for report in reports)
    figures["wire_ms"] = bound.wire_ms(
        max(figures["wire_bytes_out"], figures["wire_bytes_in"]), bits
    )
    figures["cores_ms"] = sum(report["cpu_ms"] for report in reports) / cores
    return figures


def median_of(jobs, name):
    """Returns the job with the median of a figure; of an even number, the lower middle one."""
    return sorted(jobs, key=lambda job: job[name])[(len(jobs) - 1) // 2]


def results_of(options, measured):
    """Returns the rows. `measured`: {(system, batch or None): its jobs' figures}."""
    medians = {key: median_of(jobs, "iteration_ms") for key, jobs in measured.items()}
    systems = torch_systems.compared(options.accelerator)
    results = []
    for (system, batch), job in medians.items():
        gloo, alone = medians.get(("gloo", batch)), medians.get(("alone", batch))
        row = {
            "system": system,
            "link": options.link,
            "iteration_ms": job["iteration_ms"],
            "speedup_over_gloo": gloo["iteration_ms"] / job["iteration_ms"] if gloo else None,
            "of_alone": job["iteration_ms"] / alone["iteration_ms"] if alone else None,
            "bytes_pushed": job.get("bytes_pushed"),
            "bytes_pulled": job.get("bytes_pulled"),
            "wait_ms": job.get("wait_ms"),
            "iteration_ms_of_repeats": [each["iteration_ms"] for each in measured[(system, batch)]],
            "says": systems[system].says,
        }
        if options.accelerator is None:
            row["batch"] = batch
            row["samples_per_s"] = 1e3 * batch * options.nodes / job["iteration_ms"]
        else:
            row.update(bounded(options.accelerator, job, measured[(system, batch)]))
        results.append(row)
    return results


def bounded(accelerator_ms, job, jobs):
    """Returns what a row has beside an accelerator: its range and its bound's parts.

    PowerSGD's has these too with its arithmetic charged to the accelerator, where it is no work of
    the cores.
    """
    row = {name: job[name] for name in ("wire_ms", "cores_ms", "wire_bytes_out", "wire_bytes_in")}
    row["accelerator_ms"] = accelerator_ms
    row["bound_ms"] = bound.bound_ms(accelerator_ms, job["wire_ms"], job["cores_ms"])
    names = ["iteration_ms"]
    if "charged_iteration_ms" in job:
        names.append("charged_iteration_ms")
        charged = median_of(jobs, "charged_iteration_ms")
        row["charged_iteration_ms"] = charged["charged_iteration_ms"]
        row["charged_bound_ms"] = max(accelerator_ms, charged["wire_ms"])
    for name in names:
        row[name + "_min"] = min(each[name] for each in jobs)
        row[name + "_max"] = max(each[name] for each in jobs)
    return row


# ---- tables
# -----------------------------------------------------------------------------------------

TRAINED_HEADINGS = [
    "system",
    "batch",
    "samples/s",
    "step ms",
    "of alone",
    "x gloo",
    "MB pushed",
    "MB pulled",
    "bar",
]
WAITED_HEADINGS = [
    "system",
    "step ms",
    "of starts",
    "bound ms",
    "of bound",
    "accelerator",
    "wire",
    "cores",
    "x gloo",
    "MB out",
    "MB in",
]


def megabytes(size):
    return "" if size is None else "%.2f" % (size / 1e6)


def trained_cells(row):
    bar = BARS.get(row["batch"]) if row["system"] == "slimps_1bit_2way" else None
    speedup = row["speedup_over_gloo"]
    return [
        row["system"],
        str(row["batch"]),
        "%.1f" % row["samples_per_s"],
        "%.1f" % row["iteration_ms"],
        common.ratio(row["of_alone"]),
        common.ratio(speedup),
        megabytes(row["bytes_pushed"]),
        megabytes(row["bytes_pulled"]),
        verdict(speedup >= bar, "%.2f x" % bar) if bar and speedup else "",
    ]


def waited_cells(row, gloo_ms, charged=""):
    """Returns a row's cells; with "charged_" those with its arithmetic on the accelerator."""
    time, limit = row[charged + "iteration_ms"], row[charged + "bound_ms"]
    return [
        row["system"] + (", arithmetic charged" if charged else ""),
        "%.1f" % time,
        "%.1f to %.1f" % (row[charged + "iteration_ms_min"], row[charged + "iteration_ms_max"]),
        "%.1f" % limit,
        common.ratio(time / limit),
        "%.1f" % row["accelerator_ms"],
        "%.1f" % row["wire_ms"],
        "" if charged else "%.1f" % row["cores_ms"],
        common.ratio(gloo_ms and gloo_ms / time),
        megabytes(row["wire_bytes_out"]),
        megabytes(row["wire_bytes_in"]),
    ]


def table(report):
    """Returns (headings, rows)."""
    results = report["results"]
    if "accelerator_ms" not in report:
        return TRAINED_HEADINGS, [trained_cells(row) for row in results]
    gloo_ms = next((row["iteration_ms"] for row in results if row["system"] == "gloo"), None)
    rows = []
    for row in results:
        rows.append(waited_cells(row, gloo_ms))
        if "charged_iteration_ms" in row:
            rows.append(waited_cells(row, gloo_ms, "charged_"))
    return WAITED_HEADINGS, rows


def about(report):
    model = "ResNet-18 on 32 x 32"
    if "accelerator_ms" in report:
        model = "ResNet-50's tensors, an accelerator waited for (%g ms)" % report["accelerator_ms"]
    return "%d nodes, %s%s, %s, %d steps, medians of %d, threshold %s, %d cores" % (
        report["nodes"],
        report["link"],
        round_trip.words(report),
        model,
        report["steps"],
        report["repeats"],
        report["threshold"],
        report["cores"],
    )


def text(report):
    return "\n".join([about(report)] + text_table(*table(report)))


def markdown(report):
    return "\n".join([about(report) + ".", ""] + markdown_table(*table(report)))
