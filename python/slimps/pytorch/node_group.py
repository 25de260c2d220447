# SPDX-License-Identifier: Apache-2.0
"""What the workers of a node add up in: a process group of torch's gloo, or of its NCCL on GPUs.

A group does not use torch.distributed's default group, which a script may have or make: its members
find each other at a TCP store, on a free port of the leader's loopback interface.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import zlib
from typing import Any, List, Sequence

import torch
from torch import distributed

from slimps import native
from slimps.pytorch import gpu

_HOST = "127.0.0.1"
NO_GPU = -1


def tcp_store(port: int, timeout_s: float) -> Any:
    """Connects to the store at `port`; 0: makes one."""
    timeout = datetime.timedelta(seconds=timeout_s)
    of: Any = distributed  # its types lack TCPStore
    if port:
        return of.TCPStore(_HOST, port, None, False, timeout, False)
    listening = socket.create_server((_HOST, 0))
    port = listening.getsockname()[1]
    return of.TCPStore(_HOST, port, None, True, timeout, False, master_listen_fd=listening.detach())


def gloo(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    """Returns a group for tensors on the host, whose members meet on the loopback interface."""
    of: Any = distributed.ProcessGroupGloo
    options = of._Options()
    options._devices = [of.create_device(hostname=_HOST)]
    options._timeout = datetime.timedelta(seconds=timeout_s)
    return of(store, rank, size, options)


def nccl(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    """Returns a group for tensors on GPUs.

    torch ends the process when work takes longer than the group's own timeout. It counts from the
    start of the work, which may be long before the first wait for it: Node.wait is to end first.
    """
    of: Any = distributed.ProcessGroupNCCL
    options = of.Options()
    options._timeout = datetime.timedelta(seconds=2 * timeout_s)
    return of(store, rank, size, options)


def end_nccl(group: Any, timeout_s: float) -> None:
    """Ends a group of nccl() that has no work under way, as its other members do.

    TimeoutError: some have not done so yet.
    RuntimeError: of NCCL.
    """
    native.run_beside(getattr(group, "shutdown", None) or group._shutdown, timeout_s)


def abort_nccl(group: Any) -> None:
    """Ends a group of nccl(), and its work with an error."""
    with contextlib.suppress(RuntimeError):  # the work's error was told before
        group.abort()


def gpu_for_nccl(tensors: Sequence[torch.Tensor]) -> int:
    """Returns a number of the GPU that holds all tensors, the same in every process.

    Returns NO_GPU if there is none, or if torch has no NCCL, does not tell GPUs apart, or takes
    NCCL's failed sums for complete ones: before 2.6, wait() does not raise their errors.
    """
    of: Any = distributed
    raises = hasattr(of.Work, "get_future_result")  # came with 2.6, as the errors did
    if not (of.is_nccl_available() and raises and all(gpu.is_on(tensor) for tensor in tensors)):
        return NO_GPU
    devices = {tensor.device for tensor in tensors}
    uuids = [getattr(torch.cuda.get_device_properties(device), "uuid", None) for device in devices]
    return NO_GPU if len(uuids) != 1 or uuids[0] is None else zlib.crc32(str(uuids[0]).encode())


def nccl_can(sizes: Sequence[int], gpus: List[int]) -> bool:
    """True if each worker of a node of several has a GPU of its own; NCCL takes no others.

    sizes  of the nodes
    gpus   each rank's gpu_for_nccl()
    """
    for size in sizes:
        of_node, gpus = gpus[:size], gpus[size:]
        if size > 1 and (NO_GPU in of_node or len(set(of_node)) < size):
            return False
    return True
