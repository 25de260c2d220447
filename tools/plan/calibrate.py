# SPDX-License-Identifier: Apache-2.0
"""slimps plan --calibrate: measures the machines of a job that `slimps launch` starts there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Iterable, Mapping, Sequence

from cli import setup
from plan import calibration
from plan.terms import RAW
from slimps_launch import job_node

MARK = "slimps-calibration "  # of calibrate_worker.py
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "calibrate_worker.py")
PROGRAM = {"bench_codec": ("//tools/bench/codec:bench_codec", "tools/bench/codec/bench_codec")}
AGGREGATED = "1bit"  # the codec that bench codec aggregates
# Differences of two measurements may be below 0. These are the least that is believed.
LEAST_NS = 0.01  # of a byte or an element
LEAST_US = 1.0  # of a message


def launch_command(
    where: str, workers: int, servers: int, program: str, quick: bool
) -> Sequence[str]:
    return [
        os.path.join(setup.REPOSITORY, "tools", "slimps"),
        "launch",
        "--on",
        where,
        "--workers",
        str(workers),
        "--servers",
        str(servers),
        "--",
        "python3",
        WORKER,
        program,
    ] + (["--quick"] if quick else [])


def reports_of(lines: Iterable[str]) -> list[Mapping[str, Any]]:
    """Returns what the workers printed, by rank."""
    found = [json.loads(line.split(MARK, 1)[1]) for line in lines if MARK in line]
    return sorted(found, key=lambda report: report["rank"])


def run(command: Sequence[str], workers: int) -> list[Mapping[str, Any]]:
    """Runs the job; its other lines go to stderr. SetupError: it failed."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=job_node.die_with_parent()
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            if MARK not in line:
                print(line, end="", file=sys.stderr, flush=True)
    try:
        reports = reports_of(lines)
    except (ValueError, KeyError) as error:
        raise setup.SetupError("--calibrate: a worker's figures are broken: %s" % error) from error
    if job.returncode != 0 or len(reports) != workers:
        raise setup.SetupError(
            "--calibrate: the job ended with status %d and figures of %d of %d workers; its lines "
            "above say why" % (job.returncode, len(reports), workers)
        )
    return reports


def slowest(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one report of bench_codec with the slowest worker's figure for each case."""
    codecs: dict[str, Any] = {}
    rows: dict[tuple[str, str, int], Mapping[str, Any]] = {}
    for report in reports:
        codecs.update(report["codecs"]["codecs"])
        for row in report["codecs"]["results"]:
            case = (row["codec"], row["op"], row["elements"])
            if case not in rows or row["gbps"] < rows[case]["gbps"]:
                rows[case] = row
    return {"codecs": codecs, "results": list(rows.values())}


def codec_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the calibration's rows, of the codecs that were encoded and decoded.

    A label with "+" is a codec that was measured in another way.
    """
    times: dict[tuple[str, int], dict[str, float]] = {}
    for row in report["results"]:
        entry = times.setdefault((row["codec"], row["elements"]), {})
        entry[row["op"]] = row["elements"] * 4 / row["gbps"] / 1e3
        entry["payload_bytes"] = row["payload_bytes"]
    return [
        {
            "codec": codec,
            "spec": report["codecs"][codec]["spec"],
            "elements": elements,
            # What is sent as it is costs no encoding; the field is above 0 all the same.
            "encode_us": entry.get("encode_ef", entry["decode_add"]),
            "decode_us": entry["decode_add"],
            "payload_bytes": int(entry["payload_bytes"]),
        }
        for (codec, elements), entry in sorted(times.items())
        if "+" not in codec and "decode_add" in entry and ("encode_ef" in entry or codec == RAW)
    ]


def memory(results: Sequence[Mapping[str, Any]], copy_ns: float) -> dict[str, float]:
    """Returns costs by byte and element, from the largest size.

    The local step reads and writes as d += s does. The optimizer's step is what aggregating one
    payload takes beyond decoding it.
    """
    largest = max(row["elements"] for row in results)
    rows = {(row["codec"], row["op"]): row for row in results if row["elements"] == largest}
    add_ns = 4 / rows[AGGREGATED, "aggregate"]["reference_gbps"]
    step_ns = 4 / rows[AGGREGATED, "aggregate"]["gbps"] - 4 / rows[AGGREGATED, "decode_add"]["gbps"]
    return {
        "copy_ns_per_byte": copy_ns,
        "step_ns_per_element": max(LEAST_NS, step_ns),
        "local_ns_per_element": add_ns,
    }


def messages_and_link(
    reports: Sequence[Mapping[str, Any]], copy_ns: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns what messages cost the CPU, and what the slowest worker's way to the servers is."""
    worst = max(reports, key=lambda report: report["network"]["few"]["ms"])["network"]
    one, few, many = worst["one"], worst["few"], worst["many"]
    # Each key has a push and an answer here; what belongs to them is counted with them.
    message_us = 1e3 * (many["cpu_ms"] - few["cpu_ms"]) / (many["keys"] - few["keys"]) / 2
    message_us = max(LEAST_US, message_us)
    # The bytes go out and come in, and are copied once each way.
    spent_ns = 1e6 * few["cpu_ms"] - 1e3 * message_us * 2 * few["keys"]
    wire_ns = spent_ns / few["bytes"] / 2 - copy_ns
    return (
        {"message_us": message_us, "wire_ns_per_byte": max(LEAST_NS, wire_ns)},
        {
            "bits_per_second": 8e3 * few["bytes"] / max(few["ms"] - one["ms"], 1e-3),
            "round_trip_ms": one["ms"],
        },
    )


def content_of(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the calibration of the workers' reports."""
    codecs = slowest(reports)
    copy_ns = max(report["copy_ns_per_byte"] for report in reports)
    messages, link = messages_and_link(reports, copy_ns)
    machines: list[Mapping[str, Any]] = []
    for report in reports:
        if report["machine"] not in machines:
            machines.append(report["machine"])
    return calibration.sealed(
        {
            "machines": machines,
            "codecs": codec_rows(codecs),
            "memory": memory(codecs["results"], copy_ns),
            "messages": messages,
            "link": link,
        }
    )
