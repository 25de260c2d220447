"""The tables of slimps bench cluster, for a terminal and as markdown."""

HEADINGS = ("system", "iteration ms", "bound ms", "of bound", "x 1bit", "x fp32", "compute", "wire", "cpu", "encode",
            "exposed", "overlap", "MB out", "MB in", "threshold")


def size_name(size):
    if size is None:
        return "none"
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return "%.4g %s" % (size / factor, unit)
    return "%d B" % size


def ratio(value):
    return "" if value is None else "%.2f" % value


def cells(row):
    threshold = "" if row["system"] == "fp32" else size_name(row["threshold_bytes"])
    if row.get("pull_threshold_bytes") is not None:
        threshold += ", pulls " + size_name(row["pull_threshold_bytes"])
    times = ["%.1f" % row[name] for name in ("compute_ms", "wire_ms_at_link_rate", "cpu_ms", "encode_ms",
                                             "encode_exposed_ms", "overlap_ms")]
    return ([row["system"], "%.1f" % row["iteration_ms"], "%.1f" % row["bound_ms"], ratio(row["fraction_of_bound"]),
             ratio(row["speedup_over_1bit"]), ratio(row["speedup_over_fp32"])] + times
            + ["%.2f" % (1e-6 * row["wire_bytes_out"]), "%.2f" % (1e-6 * row["wire_bytes_in"]), threshold])


def by_model(report):
    """[(model, its rows)]."""
    return [(model, [row for row in report["results"] if row["model"] == model])
            for model in dict.fromkeys(row["model"] for row in report["results"])]


def conditions(report):
    return ("%d nodes, %s, worker and server %s, %s, %d iterations, %d repeats, %d cores; "
            "compute is simulated by waiting" % (
                report["nodes"], report["bench"].split()[1], report["placement"], report["congestion"],
                report["iterations"], report["repeats"], report["cores"]))


def text(report):
    lines = [conditions(report)]
    for model, rows in by_model(report):
        table = [HEADINGS] + [cells(row) for row in rows]
        widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
        lines += ["", model] + ["  " + "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths)))
                                for line in table]
    return "\n".join(lines)


def markdown(report):
    lines = [conditions(report) + "."]
    for model, rows in by_model(report):
        lines += ["", "### %s" % model, "", "| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)
