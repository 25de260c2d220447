# SPDX-License-Identifier: Apache-2.0
"""slimps plan --calibrate: measures the machines of a job that `slimps launch` starts there."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from typing import Any, Iterable, Mapping, Sequence

from cli import progress, setup
from plan import answer, calibration
from plan.simulator import simulate
from plan.terms import RAW, Cluster, Costs, Layer, Model, System, Tensor
from slimps_launch import job_node
from slimps_launch.places import hosts

MARK = "slimps-calibration "  # of calibrate_worker.py
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "calibrate_worker.py")
AGGREGATED = "1bit"  # the codec that bench codec aggregates
# Differences of two measurements may be below 0. These are the least that is believed.
LEAST_NS = 0.01  # of a byte or an element
LEAST_US = 1.0  # of a message
LEAST_MS = 1e-3  # of a round trip


def launch_command(
    where: str, workers: int, servers: int, program: str, quick: bool
) -> Sequence[str]:
    return [
        *setup.slimps_command(),
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
    with progress.Bar(None, "cases") as bar, subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=job_node.die_with_parent()
    ) as job:
        assert job.stdout is not None
        try:
            for line in job.stdout:
                lines.append(line)
                if MARK not in line:
                    bar.show(line)
        except BaseException:
            job.terminate()  # Popen waits for the job in any case
            raise
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


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one report of bench_codec. A codec's figures are those of the last that has it."""
    codecs: dict[str, Any] = {}
    results: list[Mapping[str, Any]] = []
    for report in reports:
        codecs.update(report["codecs"])
        results = [row for row in results if row["codec"] not in report["codecs"]]
        results += report["results"]
    return {"codecs": codecs, "results": results}


def slowest(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one report of bench_codec with the slowest worker's figure for each case."""
    codecs: dict[str, Any] = {}
    rows: dict[tuple[str, str, int, int], Mapping[str, Any]] = {}
    for report in reports:
        found = merged(report["codecs"])
        codecs.update(found["codecs"])
        for row in found["results"]:
            case = (row["codec"], row["op"], row["elements"], row["workers"])
            if case not in rows or row["gbps"] < rows[case]["gbps"]:
                rows[case] = row
    return {"codecs": codecs, "results": list(rows.values())}


def codec_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the calibration's rows, of the codecs that were encoded and decoded.

    A label with "+" is a codec that was measured in another way. A codec with phases is of use
    only where its phases were measured.
    """
    times: dict[tuple[str, int], dict[str, float]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for row in report["results"]:
        codec = (row["codec"], row["elements"])
        case = row["op"] if row["workers"] == 1 else "%s of %d" % (row["op"], row["workers"])
        took = row["workers"] * row["elements"] * 4 / row["gbps"] / 1e3
        times.setdefault(codec, {})[case] = took
        if row["op"] == "decode_add":
            sizes[codec] = int(row["payload_bytes"])
    return [
        codec_row(codec, report["codecs"][codec]["spec"], elements, times[codec, elements], size)
        for (codec, elements), size in sorted(sizes.items())
        if "+" not in codec
        and ("encode_ef" in times[codec, elements] or codec == RAW)
        and ("phases" in times[codec, elements] or not report["codecs"][codec]["has_phases"])
    ]


def codec_row(
    codec: str, spec: str, elements: int, times: Mapping[str, float], payload_bytes: int
) -> dict[str, Any]:
    row = {
        "codec": codec,
        "spec": spec,
        "elements": elements,
        # What is sent as it is costs no encoding; the field is above 0 all the same.
        "encode_us": times.get("encode_ef", times["decode_add"]),
        "decode_us": times["decode_add"],
        "payload_bytes": payload_bytes,
    }
    if "phases" in times:
        row["phases_us"] = times["phases"]
        further = times["aggregate of 2"] - times["aggregate"]
        row["further_us"] = min(max(LEAST_NS * elements / 1e3, further), times["decode_add"])
    return row


def memory(results: Sequence[Mapping[str, Any]], copy_ns: float) -> dict[str, float]:
    """Returns costs by byte and element, from the largest size of the codec that is aggregated.

    The local step reads and writes as d += s does. The optimizer's step is what aggregating one
    payload takes beyond decoding it.
    """
    its = [row for row in results if row["codec"] == AGGREGATED]
    largest = max(row["elements"] for row in its)
    rows = {row["op"]: row for row in its if row["elements"] == largest}
    add_ns = 4 / rows["aggregate"]["reference_gbps"]
    step_ns = 4 / rows["aggregate"]["gbps"] - 4 / rows["decode_add"]["gbps"]
    return {
        "copy_ns_per_byte": copy_ns,
        "step_ns_per_element": max(LEAST_NS, step_ns),
        "local_ns_per_element": add_ns,
    }


def messages(network: Mapping[str, Any], copy_ns: float) -> dict[str, float]:
    """Returns what messages cost the CPU."""
    one, few, small = network["one"], network["few"], network["small"]
    # Each key has a push and an answer; what belongs to them is counted with them.
    item_us = max(LEAST_US, _us_per_message(small, one))
    message_us = max(LEAST_US, _us_per_message(network["many"], few) - item_us)
    # The bytes go out and come in, and are copied once each way.
    spent_ns = 1e6 * few["cpu_ms"] - 1e3 * (message_us + item_us) * 2 * few["keys"]
    wire_ns = spent_ns / few["bytes"] / 2 - copy_ns
    return {
        "message_us": message_us,
        "item_us": item_us,
        "wire_ns_per_byte": max(LEAST_NS, wire_ns),
    }


def _us_per_message(more: Mapping[str, Any], fewer: Mapping[str, Any]) -> float:
    """Returns the CPU time that each further key takes, one way."""
    return float(1e3 * (more["cpu_ms"] - fewer["cpu_ms"]) / (more["keys"] - fewer["keys"]) / 2)


def job_cluster(where: str, workers: int, servers: int) -> Cluster:
    """Returns the cluster as the job has it; its links cost nothing yet.

    On one machine the loopback stands for the links, so each process has a node of its own. A
    hostfile says where the processes are; without one a worker and a server share each node.
    LaunchError: the hostfile cannot be read, or has too few slots.
    """
    path = where.partition(":")[2]
    slots = [host.slots for host in hosts.read(path)] if path else []
    places = hosts.around(slots, servers, workers, path) if path else []
    one_machine = where == "local" or len(set(places)) == 1
    return Cluster(
        workers=workers,
        servers=servers,
        together=not one_machine,
        hosts=() if one_machine else tuple(places),
        bits_per_second=None,
        efficiency=1.0,
        one_machine=one_machine,
        shared_memory=False,  # calibrate_worker.py says so
    )


def exchange_ms(sample: Mapping[str, Any], cluster: Cluster, costs: Costs) -> float:
    """Returns what calibrate_worker.py's exchange would take with this cluster's links."""
    elements = int(sample["bytes"] / 4 / sample["keys"])
    tensors = tuple(Tensor("key%d" % index, elements) for index in range(sample["keys"]))
    model = Model("exchange", tensors, (Layer(0, len(tensors), 0.0, 0.0),))
    return simulate(model, System("fp32"), cluster, costs).iteration_ms


def link(network: Mapping[str, Any], cluster: Cluster, costs: Costs) -> dict[str, float]:
    """Returns the link with which both exchanges take as long as they were measured to take."""
    one, few = network["one"], network["few"]
    round_trip_ms = max(LEAST_MS, one["ms"] - exchange_ms(one, cluster, costs))
    there = dataclasses.replace(cluster, round_trip_ms=round_trip_ms)

    def is_slower(gbit: float) -> bool:
        at_rate = dataclasses.replace(there, bits_per_second=gbit * 1e9)
        return exchange_ms(few, at_rate, costs) > few["ms"]

    gbit = answer.search(is_slower, answer.LOW_GBIT, answer.HIGH_GBIT)
    if gbit is None:  # beyond either end: slower than any, or not what limits
        gbit = answer.HIGH_GBIT if is_slower(answer.HIGH_GBIT) else answer.LOW_GBIT
    return {"bits_per_second": gbit * 1e9, "round_trip_ms": round_trip_ms}


def content_of(reports: Sequence[Mapping[str, Any]], cluster: Cluster) -> dict[str, Any]:
    """Returns the calibration of the workers' reports; `cluster` is their job's."""
    codecs = slowest(reports)
    copy_ns = max(report["copy_ns_per_byte"] for report in reports)
    network = max(reports, key=lambda report: report["network"]["few"]["ms"])["network"]
    machines: list[Mapping[str, Any]] = []
    for report in reports:
        if report["machine"] not in machines:
            machines.append(report["machine"])
    content = {
        "machines": machines,
        "codecs": codec_rows(codecs),
        "memory": memory(codecs["results"], copy_ns),
        "messages": messages(network, copy_ns),
    }
    cluster = dataclasses.replace(cluster, cores=machines[0]["cores"])
    found = link(network, cluster, calibration.costs_of(content))
    return calibration.sealed({**content, "link": found})
