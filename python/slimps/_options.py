# SPDX-License-Identifier: Apache-2.0
"""The type and the options of slimps.kv.create.

worker/kvstore_options.h has the options' names, ranges and checks.
"""

from __future__ import annotations

import numbers
from typing import Any, Mapping, Optional

from slimps import native
from slimps._job import Job
from slimps.errors import InvalidArgumentError

# Types of stores, as the C++ side names them.
LOCAL = ("local", "device")  # no scheduler, no servers
ROUNDS = ("dist_sync", "dist_device_sync")
PUSH_BY_PUSH = ("dist_async", "dist_ssp")  # the servers step with each push and keep no sums

_OTHER_NAMES = {
    "local_update_cpu": "local",
    "local_allreduce_cpu": "local",
    "local_allreduce_device": "device",
    "dist_sync_device": "dist_device_sync",
    "dist_device_async": "dist_async",
    "dist_async_device": "dist_async",
}

_OF_THE_JOB = (
    "scheduler",
    "num_workers",
    "num_servers",
    "rank",
    "job_id",
    "key_file",
    "scheduler_key",
)
_OF_THE_ENVIRONMENT = ("metrics_port", "watch_bind")


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return str(value)
    raise InvalidArgumentError("option %s: expected a str or a number, got %r" % (name, value))


def make(job: Optional[Job], given: Mapping[str, Any]) -> native.Options:
    """Returns the options `given` for a store of `job`; None: for a local store.

    Raises
        InvalidArgumentError: an option does not exist, or its value makes no sense.
    """
    options = native.Options()
    if job is not None:
        for name in _OF_THE_JOB + _OF_THE_ENVIRONMENT:
            options.set(name, str(getattr(job, name)))
    for name, value in given.items():
        if name in _OF_THE_JOB:
            raise InvalidArgumentError("create: no option %s; the job's are slimps.init's" % name)
        options.set(name, _text(name, value))
    return options


def resolve_type(name: Any) -> str:
    """Returns the C++ side's name of a type; it returns unknown names, which the C++ side refuses.

    InvalidArgumentError: `name` is no str.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError("type: expected a str, got %r" % (name,))
    return _OTHER_NAMES.get(name.lower(), name.lower())
