"""What slimps.kv.create takes beside the type: named and meant as slimps_worker's flags are."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Optional, Tuple, Union

from slimps import _slimps
from slimps._job import Job
from slimps.errors import InvalidArgumentError

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit|kb|mb|gb)$")
_BYTES_PER_SECOND = {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def _refuse(name: str, expected: str, got: Any) -> InvalidArgumentError:
    return InvalidArgumentError("%s: expected %s, got %r" % (name, expected, got))


def _count(low: int, high: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _refuse(name, "an int from %d to %d" % (low, high), value)
        return value
    return check


def _number(low: float, high: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise _refuse(name, "a number from %g to %g" % (low, high), value)
        return float(value)
    return check


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse(name, "a str", value)
    return value


def _same_host(name: str, value: Any) -> str:
    if value not in ("shm", "ipc", "tcp"):
        raise _refuse(name, "shm, ipc or tcp", value)
    return value


def _threshold(name: str, value: Union[int, str]) -> Optional[int]:
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2 ** 64:
        raise _refuse(name, "\"auto\" or a number of bytes from 0", value)
    return value


def rate(name: str, value: Any) -> float:
    """Bytes per second of "100mbit" (bits), "12.5MB" (bytes); units are decimal."""
    found = _RATE.match(value.lower()) if isinstance(value, str) else None
    if found is None or float(found.group(1)) == 0:
        raise _refuse(name, "a rate as \"100mbit\", \"1gbit\" or \"12.5MB\"", value)
    return float(found.group(1)) * _BYTES_PER_SECOND[found.group(2)]


def _milliseconds(name: str, value: Any) -> float:
    return _number(0, 1e6)(name, value) / 1e3


# Option -> the C++ field and what checks the value.
_OPTIONS: Dict[str, Tuple[str, Callable[[str, Any], Any]]] = {
    "compression": ("compression", _text),
    "threshold": ("fixed_threshold_bytes", _threshold),
    "pull_compression": ("pull_compression", _text),
    "pull_threshold": ("fixed_pull_threshold_bytes", _threshold),
    "pre_steps": ("pre_steps", _count(4, 1_000_000)),
    "remeasure_every": ("remeasure_every", _count(0, 1_000_000)),
    "threshold_table": ("threshold_table_file", _text),
    "partition_bytes": ("partition_bytes", _count(4, 1 << 30)),
    "encode_threads": ("encode_threads", _count(1, 1024)),
    "staleness": ("staleness", _count(0, (1 << 31) - 1)),
    "grad_scale": ("grad_scale", _number(1e-30, 1e30)),
    "same_host": ("same_host", _same_host),
    "emulate_link": ("emulate_link_bytes_per_second", rate),
    "emulate_latency_ms": ("emulate_link_latency_s", _milliseconds),
    "timeout_s": ("timeout_s", _number(0.001, 1e6)),
}


def make(job: Optional[Job], given: Dict[str, Any]) -> _slimps.Options:
    """Those of `job`; None: of a local store. Raises InvalidArgumentError: an option that does not exist, or a value that makes no sense."""
    options = _slimps.Options()
    if job is not None:
        options.scheduler_address = "tcp://" + job.scheduler
        options.num_workers = job.num_workers
        options.num_servers = job.num_servers
        options.wanted_rank = job.rank
        options.job_id = job.job_id
    for name, value in given.items():
        if name not in _OPTIONS:
            raise InvalidArgumentError("create: no option %s; there are %s" % (name, ", ".join(sorted(_OPTIONS))))
        field, check = _OPTIONS[name]
        setattr(options, field, check(name, value))
    return options
