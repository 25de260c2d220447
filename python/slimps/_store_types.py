"""The types of stores that create() takes: the C++ side's, and MXNet's other names for them."""

from __future__ import annotations

from typing import Any

from slimps.errors import InvalidArgumentError

LOCAL = ("local", "device")  # no scheduler, no servers
ROUNDS = ("dist_sync", "dist_device_sync")
PUSH_BY_PUSH = ("dist_async", "dist_ssp")  # the servers step by each, and keep no sums

_OTHER_NAMES = {
    "local_update_cpu": "local", "local_allreduce_cpu": "local", "local_allreduce_device": "device",
    "dist_sync_device": "dist_device_sync", "dist_device_async": "dist_async", "dist_async_device": "dist_async",
}


def resolve(name: Any) -> str:
    """As the C++ side calls it, which refuses what it does not know."""
    if not isinstance(name, str):
        raise InvalidArgumentError("type: expected a str, got %r" % (name,))
    return _OTHER_NAMES.get(name.lower(), name.lower())
