# SPDX-License-Identifier: Apache-2.0
"""The options of slimps.kv.create. worker/kvstore_options.h has their names, ranges and checks."""

from __future__ import annotations

import numbers
from typing import Any, Mapping, Optional

from slimps import _slimps
from slimps._job import Job
from slimps.errors import InvalidArgumentError

_OF_THE_JOB = ("scheduler", "num_workers", "num_servers", "rank", "job_id")


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return str(value)
    raise InvalidArgumentError("option %s: expected a str or a number, got %r" % (name, value))


def make(job: Optional[Job], given: Mapping[str, Any]) -> _slimps.Options:
    """Returns the options `given` for a store of `job`; None: for a local store.

    Raises
        InvalidArgumentError: an option does not exist, or its value makes no sense.
    """
    options = _slimps.Options()
    if job is not None:
        for name in _OF_THE_JOB:
            options.set(name, str(getattr(job, name)))
    for name, value in given.items():
        if name in _OF_THE_JOB:
            raise InvalidArgumentError("create: no option %s; the job's are slimps.init's" % name)
        options.set(name, _text(name, value))
    return options
