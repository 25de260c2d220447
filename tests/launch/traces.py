# SPDX-License-Identifier: Apache-2.0
"""Parts of traces, and what merged traces and pictures hold."""

import json
import xml.etree.ElementTree

from slimps_launch import job_trace

BASE = 1700000000000000000
SVG = "{http://www.w3.org/2000/svg}"


def event(stage, began_us, duration_us, key="s:w", partition=0, round_number=1, pid=77, tid=1):
    return {
        "ph": "X",
        "name": "%s[%d]" % (key, partition),
        "cat": stage,
        "ts": began_us,
        "dur": duration_us,
        "pid": pid,
        "tid": tid,
        "args": {"key": key, "partition": partition, "round": round_number},
    }


def name_event(what, name, pid=77, tid=0):
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def part_text(process, events, base_ns=BASE, dropped=0):
    """Returns a part as proto/base/trace/trace_json.cc writes it."""
    about = {"process": process, "base_unix_ns": str(base_ns), "dropped": str(dropped)}
    lines = [
        name_event("process_name", process),
        name_event("thread_name", "encode (push)", tid=1),
    ] + events
    return '{"displayTimeUnit":"ms","otherData":%s,"traceEvents":[\n%s\n]}\n' % (
        json.dumps(about),
        ",\n".join(map(json.dumps, lines)),
    )


def spans(trace):
    return [entry for entry in trace["traceEvents"] if entry["ph"] == "X"]


def metadata(trace, what):
    return {
        entry["pid"]: entry["args"]
        for entry in trace["traceEvents"]
        if entry["ph"] == "M" and entry["name"] == what
    }


def box(stage="encode", began=0.0, ended=1.0, process="worker 0", name="s:w[0]"):
    return job_trace.Box(process, stage, name, 1, began, ended)


def elements(picture, tag, kind):
    root = xml.etree.ElementTree.fromstring(picture)
    return [element for element in root.iter(SVG + tag) if element.get("class") == kind]
