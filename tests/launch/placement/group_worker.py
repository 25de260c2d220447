# SPDX-License-Identifier: Apache-2.0
"""A worker that picks a device and makes a process group of torch's own, by variables alone.

It prints a line "group: {json}" of what it has found.
"""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist

import slimps.torch


def is_held(port):
    """True if nobody who asks for it plainly gets this port of this machine."""
    with socket.socket() as other:
        try:
            other.bind(("", port))
        except OSError:
            return True
    return False


def main():
    held = is_held(int(os.environ["MASTER_PORT"]))
    device = "cuda:" + os.environ["LOCAL_RANK"]
    dist.init_process_group("gloo")
    devices = [None] * dist.get_world_size()
    dist.all_gather_object(devices, device)
    model = torch.nn.Linear(2, 1)
    optimizer = slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = {
        "rank": dist.get_rank(),
        "devices": devices,
        "held": held,
        "local_size": os.environ["LOCAL_WORLD_SIZE"],
        "gloo": os.environ.get("GLOO_SOCKET_IFNAME"),
        "nccl": os.environ.get("NCCL_SOCKET_IFNAME"),
        "node_first": optimizer._node is not None,
        "waits": [os.environ["SLIMPS_JOIN_TIMEOUT_S"], optimizer.store.timeout_s],
    }
    # One write: lines of several processes do not mix.
    sys.stdout.write("group: %s\n" % json.dumps(found))
    sys.stdout.flush()
    optimizer.close()
    dist.destroy_process_group()


main()
