# SPDX-License-Identifier: Apache-2.0
"""What two workers of a calibration might print, with round numbers."""

import functools
import json

from plan import calibrate

PARTS = {"none": 1.0, "bf16": 0.5, "1bit": 1 / 32, "powersgd": 1.0}  # of fp32's bytes
MACHINE = {"cpu": "A CPU", "cores": 4, "memory_gib": 16}


def row(codec, op, elements, gbps, payload_bytes, workers=1):
    return {
        "codec": codec,
        "op": op,
        "workers": workers,
        "elements": elements,
        "gbps": gbps,
        "reference_gbps": 2.0,
        "payload_bytes": payload_bytes,
    }


def codec_reports(speed=1.0):
    """Returns a report of vectors, then one of matrices."""
    results = []
    for elements in (1000, 10000):
        for codec, part in (*PARTS.items(), ("1bit+check", 1 / 32)):
            size = int(4 * elements * part)
            ops = ("decode_add", "aggregate") + (("encode_ef",) if codec != "none" else ())
            for op in ops:
                gbps = 1.0 if op == "aggregate" else 4.0 if op == "decode_add" else 2.0
                results.append(row(codec, op, elements, gbps * speed, size))
    vectors = {
        "codecs": {
            name: {"spec": name, "has_phases": name == "powersgd"}
            for name in (*PARTS, "1bit+check")
        },
        "results": results,
    }
    return [vectors, matrix_report(speed)]


def matrix_report(speed):
    """Returns a report of powersgd4, whose phases take 1 GB/s, and another 1bit."""
    results = []
    for elements in (1024, 16384):
        for op, gbps, workers in (
            ("encode_ef", 2.0, 1),
            ("decode_add", 4.0, 1),
            ("aggregate", 2.0, 1),
            ("aggregate", 3.2, 2),
            ("phases", 1.0, 1),
        ):
            results.append(row("powersgd4", op, elements, gbps * speed, 512, workers))
    return {
        "codecs": {"powersgd4": {"spec": "powersgd:rank=4", "has_phases": True}},
        "results": results,
    }


def network(factor):
    return {
        "one": {"ms": 1.0 * factor, "cpu_ms": 0.04, "bytes": 64.0, "keys": 1},
        "small": {"ms": 2.0 * factor, "cpu_ms": 1.04, "bytes": 6464.0, "keys": 101},
        "few": {"ms": 20.0 * factor, "cpu_ms": 20.0, "bytes": 16e6, "keys": 10},
        "many": {"ms": 25.0 * factor, "cpu_ms": 24.0, "bytes": 16e6, "keys": 110},
    }


def reports():
    return [
        {
            "rank": 0,
            "machine": MACHINE,
            "codecs": codec_reports(),
            "copy_ns_per_byte": 0.1,
            "network": network(1),
        },
        {
            "rank": 1,
            "machine": MACHINE,
            "codecs": codec_reports(1.5),
            "copy_ns_per_byte": 0.05,
            "network": network(2),
        },
    ]


@functools.cache
def content_text(where):
    return json.dumps(calibrate.content_of(reports(), calibrate.job_cluster(where, 2, 2)))


def content(where="local"):
    """Returns a calibration that the caller may change."""
    return json.loads(content_text(where))


def job(system, predicted, measured, compute_ms=1.0):
    """Returns a job of a validation, as it is kept."""
    return {
        "model": "m",
        "link": "1gbit",
        "compute_ms": compute_ms,
        "system": system,
        "measured_ms": measured,
        "others": 0.0,
        "predicted_ms": predicted,
    }
