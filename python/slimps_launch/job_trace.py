# SPDX-License-Identifier: Apache-2.0
"""Traces of jobs: merges the processes' parts into one file, and shows it.

The file is for Perfetto and chrome://tracing.
proto/base/trace/trace_json.h describes a part: one event per line, with times since the part's own
base. Files are read line by line. A merge reads each part twice, since a part that is broken
anywhere is left out as a whole.
"""

import argparse
import collections
import contextlib
import json
import os
import sys

from slimps_launch import job_folders
from slimps_launch import out_files
from slimps_launch import trace_svg
from slimps_launch.schema import COUNT, NUMBER, SIZE, TEXT, Cases, Kind, Optional, check

VARIABLE = "SLIMPS_TRACE"  # means --trace for every process that the launcher starts
FLAG_HELP = (
    "record what every process did with every partition, and write it here, for ui.perfetto.dev"
)
HEADER_END = '"traceEvents":['
ROLES = ("scheduler", "worker", "server")


# The fields that are read of an event, by its "ph".
NOT_NEGATIVE = Kind("a number from 0 on", lambda value: NUMBER.holds(value) and value >= 0)
SPAN = {
    "pid": SIZE,
    "name": TEXT,
    "cat": TEXT,
    "ts": NUMBER,
    "dur": NOT_NEGATIVE,
    "args": {"key": TEXT, "partition": SIZE, "round": SIZE, "elements": Optional(COUNT)},
}
EVENT = Cases(
    "ph",
    {
        "X": SPAN,
        "M": Cases(
            "name",
            {
                "process_name": {"pid": SIZE, "args": {"name": TEXT}},
                "process_sort_index": {"pid": SIZE},
                "thread_name": {"pid": SIZE},
                "thread_sort_index": {"pid": SIZE},
            },
        ),
    },
)


class TraceError(Exception):
    """A trace cannot be read or written. The message names the file, the error and the line."""


class Trace:
    """One trace file. Its methods raise TraceError for a file that slimps did not write."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, encoding="utf-8") as text:
                header = text.readline()
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(
                "%s: %s" % (path, getattr(error, "strerror", None) or error)
            ) from error
        try:
            if not header.endswith(HEADER_END + "\n"):
                raise ValueError
            self.about = json.loads(header + "]}")["otherData"]
            self.base_ns = int(self.about["base_unix_ns"])
            self.dropped = int(self.about["dropped"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TraceError("%s: line 1: not a trace that slimps wrote" % path) from error

    def events(self):
        """Yields all events, including metadata, as dicts."""
        number = 1
        try:
            with open(self.path, encoding="utf-8") as text:
                next(text)
                for number, line in enumerate(text, 2):
                    line = line.strip()
                    if line == "]}":
                        return
                    event = json.loads(line[:-1] if line.endswith(",") else line)
                    check(event, EVENT, "the event")
                    yield event
        except OSError as error:
            raise TraceError("%s: %s" % (self.path, error.strerror)) from error
        except (ValueError, RecursionError) as error:
            raise TraceError(
                "%s: line %d: not an event that slimps wrote: %s" % (self.path, number, error)
            ) from error
        raise TraceError("%s: ends after line %d, in the middle" % (self.path, number))

    def processes(self):
        """Returns {pid: name}. Reads the whole file, and so finds any error in it."""
        names = {}
        for event in self.events():
            names.setdefault(event["pid"], "process %s" % event["pid"])
            if event["ph"] == "M" and event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
        return names


def part_path(path, node):
    """Returns "out/job.worker0.json" for "out/job.json" and "worker0", as TracePartPath does.

    TracePartPath is in proto/base/trace/trace.h.
    """
    folder, name = os.path.split(path)
    stem, extension = os.path.splitext(name)
    return os.path.join(folder, "%s.%s%s" % (stem, node, extension))


def node_parts(path, workers, servers):
    """Returns [(node, path)] of the parts that a job's processes write with --trace=path."""
    nodes = [("scheduler", 0)]
    nodes += [("worker", rank) for rank in range(workers)]
    nodes += [("server", rank) for rank in range(servers)]
    return [("%s%d" % node, part_path(path, "%s%d" % node)) for node in nodes]


def process_order(name):
    """Returns a sort key: by run (the prefix of "fp32: worker 0"), then by role, then by rank."""
    run, _, node = name.rpartition(": ")
    role, _, rank = node.partition(" ")
    known = role in ROLES and rank.isdigit()
    return (run, ROLES.index(role) if known else len(ROLES), int(rank) if known else 0, name)


def merge(parts, out):
    """Writes the parts as one file and returns complaints about the parts that are left out.

    `parts` has (name for complaints, run or "", path) of each part.
    TraceError: no part can be read, or `out` cannot be written.
    """
    complaints = []
    readable = []
    for name, run, path in parts:
        try:
            trace = Trace(path)
            names = trace.processes()
        except TraceError as error:
            complaints.append("trace of %s left out: %s" % (name, error))
            continue
        readable.append(
            (trace, {pid: "%s: %s" % (run, said) if run else said for pid, said in names.items()})
        )
    if not readable:
        raise TraceError("no trace to merge: " + "; ".join(complaints))
    try:
        out_files.save(out, lambda text: write_merged(readable, text))
    except OSError as error:
        raise TraceError("cannot write trace %s: %s" % (out, error.strerror)) from error
    return complaints


def write_merged(readable, text):
    base = min(trace.base_ns for trace, _ in readable)
    order = sorted(
        (
            (name, index, pid)
            for index, (_, names) in enumerate(readable)
            for pid, name in names.items()
        ),
        key=lambda entry: process_order(entry[0]),
    )
    pids = {(index, pid): number for number, (_, index, pid) in enumerate(order, 1)}
    about = {
        "process": "%d processes" % len(order),
        "base_unix_ns": str(base),
        "dropped": str(sum(trace.dropped for trace, _ in readable)),
    }
    text.write('{"displayTimeUnit":"ms","otherData":%s,%s' % (json.dumps(about), HEADER_END))
    separator = "\n"

    def write(event):
        nonlocal separator
        text.write(separator + json.dumps(event, separators=(",", ":")))
        separator = ",\n"

    for number, (name, _, _) in enumerate(order, 1):
        write({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}})
        write(
            {
                "ph": "M",
                "name": "process_sort_index",
                "pid": number,
                "tid": 0,
                "args": {"sort_index": number},
            }
        )
    for index, (trace, _) in enumerate(readable):
        shift = (trace.base_ns - base) / 1000.0
        for event in trace.events():
            if event["name"].startswith("process_") and event["ph"] == "M":
                continue
            event["pid"] = pids[index, event["pid"]]
            if event["ph"] == "X":
                event["ts"] = round(event["ts"] + shift, 3)
            write(event)
    text.write("\n]}\n")


class Gathering:
    """A folder beside `out` in which the processes of jobs leave their parts, to be merged.

    A context manager, which removes the folder.
    """

    def __init__(self, out):
        self.out = out
        beside = None if out_files.is_special(out) else os.path.dirname(os.path.realpath(out))
        self.until_the_end = contextlib.ExitStack()
        self.folder = self.until_the_end.enter_context(job_folders.folder("trace", beside))
        self.parts = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.until_the_end.close()

    def of_job(self, workers, servers, run=""):
        """Returns the environment in which the next job's processes record.

        `run` names the job if there are several.
        """
        base = os.path.abspath(os.path.join(self.folder, "%d.json" % len(self.parts)))
        self.parts += [
            (("%s, %s" % (run, node)) if run else node, run, path)
            for node, path in node_parts(base, workers, servers)
        ]
        return {VARIABLE: base}

    def merge(self, say):
        """Merges the parts. Returns True if the file was written.

        Calls say(line) for each complaint and for the file.
        """
        try:
            for complaint in merge(self.parts, self.out):
                say("slimps: " + complaint)
            say(
                "slimps: trace in %s (for ui.perfetto.dev, chrome://tracing and slimps trace)"
                % self.out
            )
        except TraceError as error:
            say("slimps: %s" % error)
            return False
        return True


# ---- slimps trace --------------------------------------------------------------------------------

Box = collections.namedtuple("Box", "process stage name round began_ms ended_ms")


def boxes_of(trace, first_ms, last_ms, processes):
    """Returns (the boxes inside the window, the end of the whole trace in ms)."""
    names = {}
    boxes = []
    end_ms = 0.0
    for event in trace.events():
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        if event["ph"] != "X":
            continue
        began, ended = event["ts"] / 1000.0, (event["ts"] + event["dur"]) / 1000.0
        end_ms = max(end_ms, ended)
        process = names.get(event["pid"], "process %s" % event["pid"])
        if (
            ended < first_ms
            or began > last_ms
            or (processes and not any(part in process for part in processes))
        ):
            continue
        boxes.append(
            Box(process, event["cat"], event["name"], event["args"]["round"], began, ended)
        )
    boxes.sort(key=lambda box: (process_order(box.process), box.began_ms))
    return boxes, end_ms


def summary_text(boxes, end_ms, dropped):
    """Returns a table of the window's events, by process and stage."""
    rows = collections.OrderedDict()
    for box in boxes:
        row = rows.setdefault((box.process, box.stage), [0, 0.0])
        row[0] += 1
        row[1] += box.ended_ms - box.began_ms
    width = max([7] + [len(process) for process, _ in rows])
    lines = [
        "%-*s  %-12s %9s %12s %10s" % (width, "process", "stage", "events", "total ms", "mean ms")
    ]
    for (process, stage), (count, total) in rows.items():
        lines.append(
            "%-*s  %-12s %9d %12.3f %10.4f" % (width, process, stage, count, total, total / count)
        )
    lines.append(
        "%.3f ms in all%s"
        % (end_ms, "; %d events beyond the bound were not kept" % dropped if dropped else "")
    )
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps trace",
        description="Shows what --trace of slimps launch, slimps demo, slimps_worker or "
        "slimps_server wrote: a table of stages, or a picture of a window of time. Several FILEs, "
        "as processes on several machines leave them, are put together with --merge.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument(
        "--merge", metavar="OUT.json", help="write all FILEs as one, for ui.perfetto.dev"
    )
    parser.add_argument("--svg", metavar="OUT.svg", help="write a picture")
    parser.add_argument(
        "--from",
        dest="first",
        metavar="MS",
        type=float,
        default=0.0,
        help="where the window begins, from the beginning of the trace (default 0)",
    )
    parser.add_argument(
        "--to",
        dest="last",
        metavar="MS",
        type=float,
        default=float("inf"),
        help="where the window ends (default: the end of the trace)",
    )
    parser.add_argument(
        "--process",
        metavar="NAME",
        action="append",
        help="only processes whose name holds this (\"worker 0\"); may be given several times",
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.first < options.last:
        parser.error("--from %g --to %g: expected 0 <= from < to" % (options.first, options.last))
    if options.merge is None and len(options.files) > 1:
        parser.error("%d FILEs: expected one, or --merge OUT.json" % len(options.files))
    out_files.refuse_unwritable(parser, "--merge", options.merge)
    out_files.refuse_unwritable(parser, "--svg", options.svg)
    if options.merge and options.svg and out_files.is_special(options.merge):
        parser.error("--merge %s: expected a file, which --svg is drawn from" % options.merge)
    try:
        return show(options)
    except TraceError as error:
        print("slimps trace: %s" % error, file=sys.stderr)
        return 1


def show(options):
    shown = options.files[0]
    left_out = []
    if options.merge:
        left_out = merge([(path, "", path) for path in options.files], options.merge)
        for complaint in left_out:
            print("slimps trace: " + complaint, file=sys.stderr)
        if not options.svg:
            return 1 if left_out else 0
        shown = options.merge
    trace = Trace(shown)
    boxes, end_ms = boxes_of(trace, options.first, options.last, options.process)
    if not boxes:
        raise TraceError(
            "%s: nothing to show from %g to %g ms%s; the trace ends at %.3f ms"
            % (
                shown,
                options.first,
                options.last,
                " of " + " or ".join(options.process) if options.process else "",
                end_ms,
            )
        )
    if options.svg:
        try:
            picture, remark = trace_svg.render(boxes, options.first, min(options.last, end_ms))
        except ValueError as error:
            raise TraceError("%s: %s" % (shown, error)) from error
        if remark:
            print("slimps trace: " + remark, file=sys.stderr)
        try:
            out_files.save(options.svg, lambda out: out.write(picture))
        except OSError as error:
            raise TraceError("cannot write %s: %s" % (options.svg, error.strerror)) from error
    else:
        print(summary_text(boxes, end_ms, trace.dropped))
    return 1 if left_out else 0
