"""slimps bench: how fast codecs are, beside what memory allows."""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile

import slimps_setup

TARGET = "//tools/bench:bench_codec"
PROGRAM = os.path.join(slimps_setup.REPOSITORY, "bazel-bin", "tools", "bench", "bench_codec")
USAGE = """usage: slimps bench codec [OPTION ...]    measure, print a table, write JSON
       slimps bench render FILE             the tables of docs/performance.md from that JSON, as markdown

slimps bench codec --help says more."""

OPERATIONS = ("encode_ef", "encode", "decode_add", "aggregate")
LARGE = 16 << 20
SMALL = 64 << 10
# What the project asks of a codec at 16 Mi elements on one thread with AVX2, as a fraction of the reference.
ENCODE_BARS = {
    "1bit": 0.80, "2bit": 0.80, "signsgd": 0.80, "fp16": 0.70, "bf16": 0.70, "terngrad": 0.50, "qsgd": 0.50,
    "dithering": 0.50, "threshold": 0.40, "adacomp": 0.40, "mstopk": 0.40, "redsync": 0.40, "dgc": 0.40, "topk": 0.40,
    "randomk": 0.60}
DECODE_BARS = dict.fromkeys(("1bit", "2bit", "signsgd", "terngrad", "qsgd", "dithering"), 0.80)
CACHE_BARS = {"1bit": 0.50, "2bit": 0.50}  # encode_ef at 64 Ki
SPARSE = ("threshold", "adacomp", "mstopk", "redsync", "dgc", "topk", "randomk")
SPARSE_DECODE_RATIO = 5  # times the GB/s of raw fp32


def count_name(count):
    for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count % size == 0:
            return "%d %s" % (count // size, unit)
    return str(count)


def bar_of(row):
    """The fraction that the project asks of this row; None: none."""
    if (row["threads"], row["isa"]) != (1, "avx2"):
        return None
    bars = {("encode_ef", LARGE): ENCODE_BARS, ("encode_ef", SMALL): CACHE_BARS,
            ("decode_add", LARGE): DECODE_BARS}.get((row["op"], row["elements"]), {})
    return bars.get(row["codec"])


def verdict(value, bar):
    return "%.2f %s" % (bar, "met" if value >= bar else "MISSED")


def sort_key(row):
    return (row["elements"], OPERATIONS.index(row["op"]), row["threads"], row["isa"], row["workers"],
            -row["fraction_of_reference"], row["codec"])


def find(rows, like, **changes):
    """The row that equals `like` in what identifies it, but for `changes`."""
    wanted = {field: like[field] for field in ("codec", "op", "workers", "elements", "threads", "isa")}
    wanted.update(changes)
    return next((row for row in rows if all(row[field] == value for field, value in wanted.items())), None)


def remark(rows, row):
    """What a row says beside others: a bar, a ratio."""
    bar = bar_of(row)
    remarks = [verdict(row["fraction_of_reference"], bar)] if bar is not None else []
    if row["op"] == "decode_add" and row["codec"] != "none":
        raw = find(rows, row, codec="none")
        if raw:
            ratio = row["gbps"] / raw["gbps"]
            asked = row["codec"] in SPARSE and row["elements"] == LARGE and row["threads"] == 1
            remarks.append("%.1f x raw%s" % (ratio, ", " + verdict(ratio, SPARSE_DECODE_RATIO) if asked else ""))
    if row["op"] == "aggregate" and row["workers"] > 1:
        one = find(rows, row, workers=1)
        if one:
            remarks.append("%.2f x the time of 1 worker" % (row["workers"] * one["gbps"] / row["gbps"]))
    if row["threads"] > 1:
        one = find(rows, row, threads=1)
        if one:
            remarks.append("%.2f x one thread" % (row["gbps"] / one["gbps"]))
    return "; ".join(remarks)


def cells(rows, row):
    payload = 4.0 * row["elements"] / row["payload_bytes"] if row["payload_bytes"] else float("inf")
    codec = row["codec"] + (" x %d" % row["workers"] if row["op"] == "aggregate" else "")
    return (codec, "%.2f" % row["gbps"], "%.2f" % row["reference_gbps"], "%.2f" % row["fraction_of_reference"],
            "%.1f" % payload, remark(rows, row))


HEADINGS = ("codec", "GB/s", "reference", "fraction", "ratio", "")


def groups(rows):
    """(heading, rows) by size, operation, threads and instruction set."""
    grouped = {}
    for row in sorted(rows, key=sort_key):
        threads = "1 thread" if row["threads"] == 1 else "%d threads" % row["threads"]
        heading = "%s, %s elements, %s, %s" % (row["op"], count_name(row["elements"]), threads, row["isa"])
        grouped.setdefault(heading, []).append(row)
    return grouped.items()


def table_text(report):
    """For a terminal."""
    rows = report["results"]
    lines = []
    for heading, members in groups(rows):
        lines += ["", heading, "  %-26s %8s %10s %9s %7s  %s" % HEADINGS]
        lines += [("  %-26s %8s %10s %9s %7s  %s" % cells(rows, row)).rstrip() for row in members]
    return "\n".join(lines[1:])


def markdown(report):
    """For docs/performance.md."""
    rows = report["results"]
    machine = report["machine"]
    lines = ["%s, %d cores, %s." % (machine["cpu"], machine["cores"], machine["memory"])]
    for heading, members in groups(rows):
        lines += ["", "### " + heading, "", "| " + " | ".join(HEADINGS) + " |", "|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(cells(rows, row)) + " |" for row in members]
    return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """Says which flag was probably meant."""

    def error(self, message):
        for word in message.split():
            if word.startswith("--") and "unrecognized" in message:
                flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
                near = difflib.get_close_matches(word.split("=")[0], flags, 1, 0.5)
                if near:
                    message += ": did you mean %s?" % near[0]
                break
        super().error(message)


def codec_parser():
    parser = Parser(
        prog="slimps bench codec", allow_abbrev=False,
        description="Measures every codec at memory speed: GB/s of fp32 gradient, and the same as a fraction of a plain "
                    "loop that the same process runs in turn with it. Takes some minutes.")
    parser.add_argument("--quick", action="store_true", help="64 Ki elements, short: to see that it works")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--codecs", default="", metavar="LIST", help="names, or specs such as 1bit:scaling=none (all)")
    parser.add_argument("--ops", default="", metavar="LIST", help="of %s (all)" % ", ".join(OPERATIONS))
    parser.add_argument("--elements", default="", metavar="LIST", help="sizes, such as 64Ki,1Mi (64Ki,1Mi,16Mi)")
    parser.add_argument("--threads", default="", metavar="LIST", help="numbers of threads (1)")
    parser.add_argument("--isa", default="", metavar="LIST", help="of scalar, avx2, avx512 (avx2 and this CPU's best)")
    parser.add_argument("--workers", default="", metavar="LIST", help="payloads that aggregate sums (1,2,4,8,16)")
    parser.add_argument("--program", metavar="FILE", help="a bench_codec that is built already")
    return parser


def codec(arguments):
    options = codec_parser().parse_args(arguments)
    program = options.program
    if program is None:
        slimps_setup.install_packages()
        slimps_setup.build([TARGET])
        program = PROGRAM
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        path = options.json or os.path.join(folder, "bench.json")
        command = [program, "--json=" + path] + (["--quick"] if options.quick else [])
        command += ["--%s=%s" % (name, getattr(options, name))
                    for name in ("codecs", "ops", "elements", "threads", "isa", "workers")]
        status = subprocess.run(command, check=False).returncode
        if status == 2:
            return 2  # the program has said why
        with open(path, encoding="utf-8") as text:
            print(table_text(json.load(text)))
    return status


def render(arguments):
    parser = Parser(prog="slimps bench render", allow_abbrev=False, description=markdown.__doc__)
    parser.add_argument("file", help="what slimps bench codec --json wrote")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, encoding="utf-8") as text:
            print(markdown(json.load(text)))
    except (OSError, ValueError, KeyError) as error:
        raise slimps_setup.SetupError("cannot render %s: %s" % (options.file, error))
    return 0


def main(arguments):
    commands = {"codec": codec, "render": render}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in commands:
        near = difflib.get_close_matches(arguments[0], commands, 1)
        print("slimps bench: unknown bench \"%s\"%s\n\n%s" % (
            arguments[0], ": did you mean %s?" % near[0] if near else "", USAGE), file=sys.stderr)
        return 2
    return commands[arguments[0]](arguments[1:])
