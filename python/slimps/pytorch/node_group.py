# SPDX-License-Identifier: Apache-2.0
"""What the workers of a node add up in: a process group of torch's gloo.

A group does not use torch.distributed's default group, which a script may have or make: its members
find each other at a TCP store, on a free port of the leader's loopback interface (of all interfaces
with torch 1.13).
"""

from __future__ import annotations

import datetime
import socket
from typing import Any

from torch import distributed

_HOST = "127.0.0.1"


def tcp_store(port: int, timeout_s: float) -> Any:
    """Connects to the store at `port`; 0: makes one. torch 1.13's listens on all interfaces."""
    timeout = datetime.timedelta(seconds=timeout_s)
    of: Any = distributed  # its types lack TCPStore
    if port or "master_listen_fd" not in of.TCPStore.__init__.__doc__:
        return of.TCPStore(_HOST, port, None, not port, timeout, False)
    listening = socket.create_server((_HOST, 0))
    port = listening.getsockname()[1]
    of_listening = {"master_listen_fd": listening.detach()}
    return of.TCPStore(_HOST, port, None, True, timeout, False, **of_listening)


def gloo(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    """Returns a group whose members meet on the loopback interface."""
    of: Any = distributed.ProcessGroupGloo
    options = of._Options()
    options._devices = [of.create_device(hostname=_HOST)]
    options._timeout = datetime.timedelta(seconds=timeout_s)
    return of(store, rank, size, options)
