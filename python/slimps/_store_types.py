# SPDX-License-Identifier: Apache-2.0
"""The types of stores that create() takes: the C++ side's names, and MXNet's other names."""

from __future__ import annotations

from typing import Any

from slimps.errors import InvalidArgumentError

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


def resolve(name: Any) -> str:
    """Returns the C++ side's name of a type; it returns unknown names, which the C++ side refuses.

    InvalidArgumentError: `name` is no str.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError("type: expected a str, got %r" % (name,))
    return _OTHER_NAMES.get(name.lower(), name.lower())
