# SPDX-License-Identifier: Apache-2.0
"""What machines were measured to take, as a file that says whose it is.

    found = calibration.load("ours.json")        # Refused: damaged, or no calibration
    calibration.check_machine(found, calibration.this_machine())   # Refused: another machine's
    costs = calibration.costs_of(found)

Thread-safe: nothing is kept between calls.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Mapping, Sequence

from plan.terms import RAW, CodecCosts, Costs, Curve
from slimps_launch import out_files, schema

VERSION = 4
MACHINE = {"cpu": schema.TEXT, "cores": schema.COUNT, "memory_gib": schema.COUNT}
SHAPE = {
    "slimps_calibration": schema.COUNT,
    "machines": [MACHINE],
    "codecs": [
        {
            "codec": schema.TEXT,
            "spec": schema.TEXT,
            "elements": schema.COUNT,
            "encode_us": schema.POSITIVE,
            "decode_us": schema.POSITIVE,
            "payload_bytes": schema.COUNT,
            # of codecs with phases: all phases of a worker; adding a payload after the first
            "phases_us": schema.Optional(schema.POSITIVE),
            "further_us": schema.Optional(schema.POSITIVE),
        }
    ],
    "memory": {
        "copy_ns_per_byte": schema.POSITIVE,
        "step_ns_per_element": schema.POSITIVE,
        "local_ns_per_element": schema.POSITIVE,
    },
    "messages": {
        "message_us": schema.POSITIVE,
        "item_us": schema.POSITIVE,
        "wire_ns_per_byte": schema.POSITIVE,
    },
    "link": {"bits_per_second": schema.POSITIVE, "round_trip_ms": schema.POSITIVE},
    "sha256": schema.TEXT,
}
Content = Mapping[str, Any]


class Refused(ValueError):
    """A calibration cannot be used. The message says why and what would do."""


def this_machine() -> dict[str, Any]:
    """Returns what tells this machine from others, as far as its speed is concerned."""
    cpu = "unknown"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    cpu = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass  # the other two still tell machines apart
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
        "memory_gib": max(1, round(pages / (1 << 30))),
    }


def digest(content: Content) -> str:
    """Returns the checksum of everything but the checksum."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(content: Content) -> dict[str, Any]:
    """Returns the content with its version and checksum."""
    whole = {"slimps_calibration": VERSION, **content}
    return {**whole, "sha256": digest(whole)}


def load(path: str) -> Content:
    """Returns a calibration.

    Refused: the file cannot be read, is damaged, or is of another version.
    """
    again = "; measure again: slimps plan --calibrate --calibration %s" % path
    try:
        content = out_files.load_json(path)
    except ValueError as error:
        raise Refused("%s: %s%s" % (path, error, again)) from error
    version = content.get("slimps_calibration") if isinstance(content, dict) else None
    if version is None:
        raise Refused("%s: not a calibration%s" % (path, again))
    if version != VERSION:
        raise Refused("%s: version %s of the file, expected %d%s" % (path, version, VERSION, again))
    try:
        schema.check(content, SHAPE)
    except ValueError as error:
        raise Refused("%s: damaged: %s%s" % (path, error, again)) from error
    if digest(content) != content["sha256"]:
        raise Refused("%s: damaged: its checksum disagrees%s" % (path, again))
    if not content["machines"]:
        raise Refused("%s: damaged: machines: expected at least one%s" % (path, again))
    codecs = {row["codec"] for row in content["codecs"]}
    for needed in (RAW, "bf16"):
        if needed not in codecs:
            raise Refused("%s: codec %s was not measured%s" % (path, needed, again))
    return content


def machine_name(machine: Mapping[str, Any]) -> str:
    return "%s, %d cores, %d GiB" % (machine["cpu"], machine["cores"], machine["memory_gib"])


def check_machine(content: Content, machine: Mapping[str, Any], path: str) -> None:
    """Refused: the calibration was not made on a machine like this one."""
    if machine in content["machines"]:
        return
    raise Refused(
        "%s: a calibration of %s, and this is %s; measure here (slimps plan --calibrate "
        "--calibration FILE), or say --other_machine if the plan is for those machines"
        % (path, machine_name(content["machines"][0]), machine_name(machine))
    )


def milliseconds(rows: Sequence[Mapping[str, Any]], field: str) -> Curve:
    return Curve([(row["elements"], row[field] / 1e3) for row in rows])


def costs_of(content: Content) -> Costs:
    points: dict[str, list[Mapping[str, Any]]] = {}
    for row in content["codecs"]:
        points.setdefault(row["codec"], []).append(row)
    codecs = {
        codec: CodecCosts(
            milliseconds(rows, "encode_us"),
            milliseconds(rows, "decode_us"),
            Curve([(row["elements"], float(row["payload_bytes"])) for row in rows]),
            spec=rows[0]["spec"],
            phases=milliseconds(rows, "phases_us") if "phases_us" in rows[0] else None,
            further=milliseconds(rows, "further_us") if "further_us" in rows[0] else None,
        )
        for codec, rows in points.items()
    }
    memory, messages = content["memory"], content["messages"]
    return Costs(
        codecs,
        copy_ns=memory["copy_ns_per_byte"],
        step_ns=memory["step_ns_per_element"],
        local_ns=memory["local_ns_per_element"],
        message_ms=messages["message_us"] / 1e3,
        item_ms=messages["item_us"] / 1e3,
        wire_ns=messages["wire_ns_per_byte"],
    )
