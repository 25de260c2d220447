# SPDX-License-Identifier: Apache-2.0
"""The tables of slimps bench codec: renders its JSON for a terminal and as markdown."""

from bench.codec.codec_bars import bar_remarks, find, times_raw
from bench.common import markdown_table
from slimps_launch import schema

PROGRAM = {"bench_codec": ("//tools/bench/codec:bench_codec", "tools/bench/codec/bench_codec")}
OPERATIONS = ("encode_ef", "encode", "decode_add", "aggregate", "levels", "phases")
# ResNet-50 on a V100, encode and decode, in ms. Source: Agarwal et al., "On the Utility of Gradient
# Compression in Distributed Training Systems", MLSys 2022, table 2 (1 % for the sparse codecs; QSGD
# with 2 bits).
V100_MS = {
    "signsgd": 16,
    "qsgd": 39,
    "terngrad": 94,
    "mstopk": 103,
    "randomk": 163,
    "dgc": 221,
    "topk": 273,
}

MACHINE = {"cpu": schema.TEXT, "cores": schema.COUNT, "memory_bytes": schema.POSITIVE}
# The fields of a report that the tables read.
CODEC_SHAPE = {
    "machine": MACHINE,
    "results": [
        {
            "codec": schema.TEXT,
            "op": schema.one_of(OPERATIONS),
            "workers": schema.COUNT,
            "elements": schema.COUNT,
            "threads": schema.COUNT,
            "isa": schema.TEXT,
            "gbps": schema.POSITIVE,
            "reference_gbps": schema.POSITIVE,
            "fraction_of_reference": schema.POSITIVE,
            "payload_bytes": schema.SIZE,
        }
    ],
}
MODEL_SHAPE = {
    "machine": MACHINE,
    "table": {"name": schema.TEXT, "elements": schema.COUNT, "partitions": schema.COUNT},
    "results": [
        {
            "codec": schema.TEXT,
            "gradient": schema.one_of(("drawn", "recorded")),
            "threads": schema.COUNT,
            "isa": schema.TEXT,
            "encode_ms": schema.NUMBER,
            "decode_ms": schema.NUMBER,
            "payload_bytes": schema.COUNT,
        }
    ],
}


def count_name(count):
    for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count % size == 0:
            return "%d %s" % (count // size, unit)
    return str(count)


def threads_name(count):
    return "1 thread" if count == 1 else "%d threads" % count


def sort_key(row):
    return (
        row["elements"],
        row["threads"],
        row["isa"],
        OPERATIONS.index(row["op"]),
        row["workers"],
        -row["fraction_of_reference"],
        row["codec"],
    )


def ratios(rows, row):
    """Yields comparisons of the row with other rows."""
    if row["op"] == "decode_add" and row["codec"] != "none":
        ratio = times_raw(rows, row)
        if ratio:
            yield "%.1f x raw" % ratio
    one = find(rows, row, workers=1)
    if row["op"] == "aggregate" and row["workers"] > 1 and one:
        yield "%.2f x the time of 1 worker" % (row["workers"] * one["gbps"] / row["gbps"])
    one = find(rows, row, threads=1)
    if row["threads"] > 1 and one:
        yield "%.2f x 1 thread" % (row["gbps"] / one["gbps"])


def payload_ratio(row):
    return (
        "%.1f" % (4.0 * row["elements"] / row["payload_bytes"]) if row["payload_bytes"] else "inf"
    )


def groups(rows, fields):
    """Returns [(first row, all rows)] of the groups with equal `fields`, in sort_key's order."""
    grouped = {}
    for row in sorted(rows, key=sort_key):
        grouped.setdefault(tuple(row[field] for field in fields), []).append(row)
    return [(members[0], members) for members in grouped.values()]


def codec_text(report):
    """Returns every measurement as text for a terminal."""
    rows = report["results"]
    layout = "  %-27s %8s %10s %9s %7s  %-16s %s"
    lines = []
    for head, members in groups(rows, ("elements", "threads", "isa", "op")):
        lines += [
            "",
            "%s, %s elements, %s, %s"
            % (
                head["op"],
                count_name(head["elements"]),
                threads_name(head["threads"]),
                head["isa"],
            ),
        ]
        lines.append(
            (layout % ("codec", "GB/s", "reference", "fraction", "ratio", "bar", "")).rstrip()
        )
        for row in members:
            name = row["codec"] + (
                ", workers: %d" % row["workers"] if row["op"] == "aggregate" else ""
            )
            lines.append(
                (
                    layout
                    % (
                        name,
                        "%.2f" % row["gbps"],
                        "%.2f" % row["reference_gbps"],
                        "%.2f" % row["fraction_of_reference"],
                        payload_ratio(row),
                        "; ".join(bar_remarks(rows, row)),
                        "; ".join(ratios(rows, row)),
                    )
                ).rstrip()
            )
    return "\n".join(lines[1:])


def model_rows(report):
    for row in sorted(
        report["results"],
        key=lambda row: (
            row["threads"],
            row["isa"],
            row["gradient"],
            row["encode_ms"] + row["decode_ms"],
        ),
    ):
        v100 = V100_MS.get(row["codec"])
        yield (
            row["codec"],
            row["gradient"],
            str(row["threads"]),
            row["isa"],
            "%.1f" % row["encode_ms"],
            "%.1f" % row["decode_ms"],
            "%.1f" % (row["encode_ms"] + row["decode_ms"]),
            str(v100) if v100 else "",
            "%.1f" % (4.0 * report["table"]["elements"] / row["payload_bytes"]),
        )


MODEL_HEADINGS = (
    "codec",
    "gradient",
    "threads",
    "isa",
    "encode ms",
    "decode ms",
    "both ms",
    "V100 ms",
    "ratio",
)


def model_text(report):
    """Returns the table of a model's whole gradient as text for a terminal."""
    table = report["table"]
    layout = "  %-27s %-8s %7s %7s %10s %10s %8s %8s %7s"
    lines = [
        "%s: %d elements in %d partitions"
        % (table["name"], table["elements"], table["partitions"]),
        layout % MODEL_HEADINGS,
    ]
    return "\n".join(lines + [layout % row for row in model_rows(report)])


def machine_line(report):
    machine = report["machine"]
    return "%s, %d cores, %.1f GB of memory." % (
        machine["cpu"],
        machine["cores"],
        1e-9 * machine["memory_bytes"],
    )


def codec_markdown(report):
    """Returns a table for each size, number of threads and instruction set.

    A row is a codec; an operation has a few columns.
    """
    rows = report["results"]
    lines = [machine_line(report)]
    for head, members in groups(rows, ("elements", "threads", "isa")):
        lines += [
            "",
            "### %s elements, %s, %s"
            % (count_name(head["elements"]), threads_name(head["threads"]), head["isa"]),
            "",
        ]
        table = []
        single = [row for row in members if row["op"] in OPERATIONS[:3]]
        codecs = dict.fromkeys(row["codec"] for row in single)
        for codec in codecs:
            cells = [codec, ""]
            for op in OPERATIONS[:3]:
                row = find(members, head, codec=codec, op=op, workers=1)
                cells += (
                    ["%.2f" % row["gbps"], "%.2f" % row["fraction_of_reference"]]
                    if row
                    else ["", ""]
                )
                if op == "decode_add":
                    cells.append(
                        "%.1f" % times_raw(rows, row) if row and times_raw(rows, row) else ""
                    )
                if row:
                    cells[1] = payload_ratio(row)
            own = [row for row in single if row["codec"] == codec]
            cells.append(
                "; ".join(
                    "%s %s" % (row["op"], text) for row in own for text in bar_remarks(rows, row)
                )
            )
            table.append(cells)
        if table:
            lines += markdown_table(
                (
                    "codec",
                    "ratio",
                    "encode_ef",
                    "of d += s",
                    "encode",
                    "of a sum",
                    "decode_add",
                    "of d *= c",
                    "x raw",
                    "bars",
                ),
                table,
            )
        sums = [row for row in members if row["op"] == "aggregate"]
        if sums:
            lines += [""] + markdown_table(
                ("aggregate", "workers", "GB/s", "of d += s", "", "bar"),
                [
                    (
                        row["codec"],
                        str(row["workers"]),
                        "%.2f" % row["gbps"],
                        "%.2f" % row["fraction_of_reference"],
                        "; ".join(ratios(rows, row)),
                        "; ".join(bar_remarks(rows, row)),
                    )
                    for row in sums
                ],
            )
        for op, beside, fraction in (
            ("levels", "anew", "times as fast"),
            ("phases", "d += s", "of d += s"),
        ):
            its = [row for row in members if row["op"] == op]
            if its:
                lines += [""] + markdown_table(
                    (op, "GB/s", beside, fraction, "bar"),
                    [
                        (
                            row["codec"],
                            "%.2f" % row["gbps"],
                            "%.2f" % row["reference_gbps"],
                            "%.2f" % row["fraction_of_reference"],
                            "; ".join(bar_remarks(rows, row)),
                        )
                        for row in its
                    ],
                )
    return "\n".join(lines)


def model_markdown(report):
    table = report["table"]
    return "\n".join(
        [
            machine_line(report),
            "",
            "%s: %d elements, %.1f MB, in %d partitions."
            % (table["name"], table["elements"], 4e-6 * table["elements"], table["partitions"]),
            "",
        ]
        + markdown_table(MODEL_HEADINGS, model_rows(report))
    )


def shape_of(report):
    """Returns the schema of a report that names no bench: a table of a model's, or codecs alone."""
    return MODEL_SHAPE if "table" in report else CODEC_SHAPE


def text(report):
    return model_text(report) if "table" in report else codec_text(report)


def markdown(report):
    return model_markdown(report) if "table" in report else codec_markdown(report)
