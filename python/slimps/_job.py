# SPDX-License-Identifier: Apache-2.0
"""This process's place in the job, from the environment that a launcher sets.

DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT   the scheduler's address
DMLC_NUM_WORKER, DMLC_NUM_SERVER      what the job consists of
DMLC_WORKER_ID                        the rank to ask for; if it is not set, any rank
RANK, WORLD_SIZE                      torchrun's; used if DMLC_WORKER_ID or DMLC_NUM_WORKER is not
                                      set
SLIMPS_KEY_FILE                       the file with this worker's secret key; with it comes
SLIMPS_SCHEDULER_KEY                  the scheduler's public key, in hexadecimal
SLIMPS_TRACE                          where this worker leaves its part of the job's trace
SLIMPS_METRICS_PORT                   the port where it serves its own metrics; 0: any free one;
                                      -1 or not set: none
SLIMPS_WATCH_BIND                     the address of that port; 127.0.0.1 if it is not set
LOCAL_RANK, LOCAL_WORLD_SIZE          torchrun's too: the place among the workers of this machine
"""

from __future__ import annotations

import dataclasses
import os
from typing import Mapping, Optional, Tuple

from slimps.errors import FailedPreconditionError, InvalidArgumentError

MOST_NODES = 4096


@dataclasses.dataclass(frozen=True)
class Job:
    """A job: the scheduler's address, the number of nodes, and the `rank` to ask for (-1: any)."""

    scheduler: str  # "host:port"
    num_workers: int
    num_servers: int
    rank: int = -1
    job_id: str = "slimps"
    key_file: str = ""  # with this worker's secret key; "": the job has no keys
    scheduler_key: str = ""  # its public key, in hexadecimal
    trace: str = ""  # the trace's file; "": none is recorded
    metrics_port: int = -1  # of this worker's own metrics; 0: any free one; -1: none are served
    watch_bind: str = "127.0.0.1"  # its address


def _number(environment: Mapping[str, str], *names: str) -> Optional[int]:
    """Returns the number in the first of these variables that is set; None if none is."""
    for name in names:
        text = environment.get(name, "")
        if text:
            try:
                return int(text)
            except ValueError:
                raise InvalidArgumentError("%s=%s: expected a number" % (name, text)) from None
    return None


def _check(name: str, number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise InvalidArgumentError("%s: expected %d to %d, got %d" % (name, low, high, number))
    return number


def _missing(what: str, variables: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        "%s is not known: %s not set. Start the script by `slimps launch --workers 2 --servers 2 "
        "-- python3 SCRIPT`, set the variables, or pass %s to slimps.init()"
        % (what, variables, what)
    )


def read(
    environment: Optional[Mapping[str, str]] = None,
    *,
    scheduler: Optional[str] = None,
    num_workers: Optional[int] = None,
    num_servers: Optional[int] = None,
    rank: Optional[int] = None,
    job_id: Optional[str] = None,
    key_file: Optional[str] = None,
    scheduler_key: Optional[str] = None,
) -> Job:
    """Returns the job that `environment` (default os.environ) describes; arguments override it.

    Raises
        FailedPreconditionError: a variable is missing.
        InvalidArgumentError: a variable or an argument makes no sense.
    """
    environment = os.environ if environment is None else environment
    role = environment.get("DMLC_ROLE", "worker")
    if role != "worker":
        raise FailedPreconditionError(
            "DMLC_ROLE=%s: expected worker; this process was to run slimps_%s" % (role, role)
        )
    if scheduler is None:
        host, port = environment.get("DMLC_PS_ROOT_URI"), environment.get("DMLC_PS_ROOT_PORT")
        if not host or not port:
            raise _missing("scheduler", "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT are")
        scheduler = "%s:%s" % (host, port)
    if num_workers is None:
        num_workers = _number(environment, "DMLC_NUM_WORKER", "WORLD_SIZE")
        if num_workers is None:
            raise _missing("num_workers", "DMLC_NUM_WORKER (or torchrun's WORLD_SIZE) is")
    if num_servers is None:
        num_servers = _number(environment, "DMLC_NUM_SERVER")
        if num_servers is None:
            raise _missing("num_servers", "DMLC_NUM_SERVER is")
    if rank is None:
        rank = _number(environment, "DMLC_WORKER_ID", "RANK")
    metrics_port = _number(environment, "SLIMPS_METRICS_PORT")
    _check("num_workers", num_workers, 1, MOST_NODES)
    _check("num_servers", num_servers, 1, MOST_NODES)
    return Job(
        scheduler,
        num_workers,
        num_servers,
        -1 if rank is None else _check("rank", rank, -1, num_workers - 1),
        job_id or "slimps",
        os.path.expanduser(
            environment.get("SLIMPS_KEY_FILE", "") if key_file is None else key_file
        ),
        environment.get("SLIMPS_SCHEDULER_KEY", "") if scheduler_key is None else scheduler_key,
        os.path.expanduser(environment.get("SLIMPS_TRACE", "")),
        -1 if metrics_port is None else _check("SLIMPS_METRICS_PORT", metrics_port, -1, 65535),
        environment.get("SLIMPS_WATCH_BIND") or Job.watch_bind,
    )


_job: Optional[Job] = None


def init(
    *,
    scheduler: Optional[str] = None,
    num_workers: Optional[int] = None,
    num_servers: Optional[int] = None,
    rank: Optional[int] = None,
    job_id: Optional[str] = None,
    key_file: Optional[str] = None,
    scheduler_key: Optional[str] = None,
) -> Job:
    """Reads this worker's place in the job from DMLC_* and returns it as a Job.

    Under torchrun it also reads RANK and WORLD_SIZE. Arguments override the environment. Stores
    that are created later use the result; init() itself connects to nothing. Without a call to
    init(), slimps.kv.create reads the environment.

    scheduler                 "host:port"
    num_workers, num_servers  from 1
    rank                      the rank to ask for; -1: any
    key_file, scheduler_key   the file with this worker's secret key, and the scheduler's public key
                              in hexadecimal (environment: SLIMPS_KEY_FILE, SLIMPS_SCHEDULER_KEY)

    Raises
        FailedPreconditionError: a value is neither given nor set.
        InvalidArgumentError: a value makes no sense.
    """
    global _job
    _job = read(
        scheduler=scheduler,
        num_workers=num_workers,
        num_servers=num_servers,
        rank=rank,
        job_id=job_id,
        key_file=key_file,
        scheduler_key=scheduler_key,
    )
    return _job


def current() -> Job:
    """Returns the job that init() found, or else the environment's."""
    return _job if _job is not None else read()


def place_on_node(environment: Optional[Mapping[str, str]] = None) -> Tuple[int, int]:
    """Returns (LOCAL_RANK, LOCAL_WORLD_SIZE) of `environment` (default os.environ).

    Returns (0, 1) if they are not set.
    InvalidArgumentError: they make no sense.
    """
    environment = os.environ if environment is None else environment
    size = _number(environment, "LOCAL_WORLD_SIZE")
    rank = _number(environment, "LOCAL_RANK")
    if size is None or rank is None:
        return 0, 1
    _check("LOCAL_WORLD_SIZE", size, 1, MOST_NODES)
    return _check("LOCAL_RANK", rank, 0, size - 1), size
