# SPDX-License-Identifier: Apache-2.0
"""The tables of slimps bench transport, with the bars, for a terminal and as markdown."""

from bench.common import markdown_table, size_name, text_table, verdict
from slimps_launch.schema import COUNT, NUMBER, POSITIVE, TEXT, Cases

LARGE = 1 << 20
STREAM_BAR = 0.80  # tcp and ipc / raw ZeroMQ's two-way figure, at least, from LARGE on
SHARED_BAR = 2.0  # shared memory / raw tcp's two-way figure, at least, from LARGE on
LATENCY_BAR = 1.5  # round trip / raw ZeroMQ's round trip, at most
MODEL_BAR = 1.15  # a model's round / the same bytes in 4 MiB tensors, at most
MODELS_WITH_BAR = ("resnet50",)
CURVE_BAR = 0.97  # with keys / without, at least, on a link
LENT_BAR, LENT_ANY_BAR = 1.08, 1.0  # lent / copied, at least: one size by tcp; anything else
HEADINGS = {
    "push_pull": (
        "transport",
        "shape",
        "bytes",
        "GB/s",
        "raw 2-way",
        "fraction",
        "checksums",
        "fraction",
        "raw 1-way",
        "bar",
    ),
    "latency": (
        "transport",
        "shape",
        "bytes",
        "p50 us",
        "p99 us",
        "raw p50",
        "raw p99",
        "x raw",
        "paced p50",
        "raw paced",
        "x raw",
        "bar",
    ),
    "model_round": (
        "transport",
        "shape",
        "model",
        "round ms",
        "in 4 MiB",
        "x 4 MiB",
        "GB/s",
        "raw 2-way",
        "fraction",
        "bar",
    ),
    "curve": (
        "transport",
        "shape",
        "tensors",
        "codec",
        "link",
        "plain GB/s",
        "CURVE GB/s",
        "x plain",
        "plain CPU ns/B",
        "CURVE CPU ns/B",
        "bar",
    ),
    "lending": (
        "transport",
        "shape",
        "tensors",
        "codec",
        "copied GB/s",
        "lent GB/s",
        "x copied",
        "bar",
    ),
}
TITLES = {
    "push_pull": "push-pull, GB/s of fp32 gradient per worker, both directions moving",
    "latency": "one push-pull at a time",
    "model_round": "every tensor of a model pushed and pulled once",
    "curve": "push-pull with keys (CURVE), beside push-pull without",
    "lending": "push-pull of gradients that are lent, beside gradients that are copied",
}

RATES = dict.fromkeys(("goodput_gbps", "raw_zmq_gbps", "fraction_of_raw"), NUMBER)
OF_STAGE = {"transport": TEXT, "workers": COUNT, "servers": COUNT}
ROW = {**OF_STAGE, **RATES}
# The fields of a report that the tables read.
SHAPE = {
    "machine": {"cpu": TEXT, "cores": COUNT, "memory_bytes": POSITIVE, "congestion_control": TEXT},
    "results": [
        Cases(
            "op",
            {
                "push_pull": {
                    **ROW,
                    "bytes": COUNT,
                    **dict.fromkeys(
                        (
                            "goodput_checksums_gbps",
                            "fraction_of_raw_checksums",
                            "raw_zmq_one_way_gbps",
                        ),
                        NUMBER,
                    ),
                },
                "latency": {
                    **ROW,
                    "bytes": COUNT,
                    **dict.fromkeys(
                        (
                            "p50_us",
                            "p99_us",
                            "raw_p50_us",
                            "raw_p99_us",
                            "p50_to_raw",
                            "paced_p50_us",
                            "raw_paced_p50_us",
                            "paced_p50_to_raw",
                        ),
                        NUMBER,
                    ),
                },
                "model_round": {
                    **ROW,
                    "model": TEXT,
                    **dict.fromkeys(("round_ms", "round_4mib_ms", "ratio_to_4mib"), NUMBER),
                },
                "curve": {
                    **OF_STAGE,
                    "tensors": TEXT,
                    "codec": TEXT,
                    "link": TEXT,
                    **dict.fromkeys(
                        (
                            "plain_gbps",
                            "curve_gbps",
                            "curve_to_plain",
                            "plain_cpu_ns_per_byte",
                            "curve_cpu_ns_per_byte",
                        ),
                        NUMBER,
                    ),
                },
                "lending": {
                    **OF_STAGE,
                    "tensors": TEXT,
                    "codec": TEXT,
                    **dict.fromkeys(("copied_gbps", "lent_gbps", "lent_to_copied"), NUMBER),
                },
            },
        )
    ],
}


def bar_of(row):
    """Returns the row's bar with "met" or "MISSED"; "" if it has no bar."""
    if row["op"] == "push_pull" and row["bytes"] >= LARGE:
        bar = SHARED_BAR if row["transport"] == "shm" else STREAM_BAR
        return verdict(row["fraction_of_raw"] >= bar, "%.2f" % bar)
    if row["op"] == "latency":
        return verdict(
            row["p50_to_raw"] <= LATENCY_BAR and row["paced_p50_to_raw"] <= LATENCY_BAR,
            "%.1f x" % LATENCY_BAR,
        )
    if row["op"] == "model_round" and row["model"] in MODELS_WITH_BAR:
        return verdict(row["ratio_to_4mib"] <= MODEL_BAR, "%.2f x" % MODEL_BAR)
    if row["op"] == "curve" and row["link"]:
        return verdict(row["curve_to_plain"] >= CURVE_BAR, "%.2f" % CURVE_BAR)
    if row["op"] == "lending":
        if row["transport"] == "shm" and row["codec"] == "none":
            return ""  # copied either way, into memory that both processes can read
        bar = LENT_BAR if row["transport"] == "tcp" and "bytes" in row else LENT_ANY_BAR
        return verdict(row["lent_to_copied"] >= bar, "%.2f" % bar)
    return ""


def cells(row):
    head = [row["transport"], "%dx%d" % (row["workers"], row["servers"])]
    if row["op"] == "curve":
        numbers = ("plain_gbps", "curve_gbps", "curve_to_plain")
        times = ("plain_cpu_ns_per_byte", "curve_cpu_ns_per_byte")
        return (
            head
            + [row["tensors"], row["codec"], row["link"] or "none"]
            + ["%.3f" % row[field] for field in numbers]
            + ["%.2f" % row[field] for field in times]
            + [bar_of(row)]
        )
    if row["op"] == "lending":
        return (
            head
            + [row["tensors"], row["codec"]]
            + ["%.3f" % row[field] for field in ("copied_gbps", "lent_gbps", "lent_to_copied")]
            + [bar_of(row)]
        )
    rates = [
        "%.3f" % row["goodput_gbps"],
        "%.3f" % row["raw_zmq_gbps"],
        "%.2f" % row["fraction_of_raw"],
    ]
    if row["op"] == "push_pull":
        return (
            head
            + [size_name(row["bytes"])]
            + rates
            + [
                "%.3f" % row["goodput_checksums_gbps"],
                "%.2f" % row["fraction_of_raw_checksums"],
                "%.3f" % row["raw_zmq_one_way_gbps"],
                bar_of(row),
            ]
        )
    if row["op"] == "latency":
        return (
            head
            + [size_name(row["bytes"])]
            + ["%.0f" % row[field] for field in ("p50_us", "p99_us", "raw_p50_us", "raw_p99_us")]
            + [
                "%.2f" % row["p50_to_raw"],
                "%.0f" % row["paced_p50_us"],
                "%.0f" % row["raw_paced_p50_us"],
                "%.2f" % row["paced_p50_to_raw"],
                bar_of(row),
            ]
        )
    return (
        head
        + [
            row["model"],
            "%.1f" % row["round_ms"],
            "%.1f" % row["round_4mib_ms"],
            "%.2f" % row["ratio_to_4mib"],
        ]
        + rates
        + [bar_of(row)]
    )


def line(results, row):
    """Returns a line for one new figure."""
    return "[%d] %s: %s" % (
        len(results),
        row["op"],
        "  ".join("%s %s" % pair for pair in zip(HEADINGS[row["op"]], cells(row)) if pair[1]),
    )


def machine_line(report):
    machine = report["machine"]
    return "%s, %d cores, %.1f GB of memory, TCP congestion control %s." % (
        machine["cpu"],
        machine["cores"],
        1e-9 * machine["memory_bytes"],
        machine["congestion_control"],
    )


def groups(report):
    """Yields (operation, cells of its rows)."""
    for operation in HEADINGS:
        rows = [cells(row) for row in report["results"] if row["op"] == operation]
        if rows:
            yield operation, rows


def text(report):
    lines = [machine_line(report)]
    for operation, rows in groups(report):
        lines += ["", TITLES[operation]] + text_table(HEADINGS[operation], rows)
    return "\n".join(lines)


def markdown(report):
    lines = [machine_line(report)]
    for operation, rows in groups(report):
        title = TITLES[operation]
        lines += ["", "### %s" % title[0].upper() + title[1:], ""] + markdown_table(
            HEADINGS[operation], rows
        )
    return "\n".join(lines)
