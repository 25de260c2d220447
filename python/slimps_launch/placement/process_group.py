# SPDX-License-Identifier: Apache-2.0
"""The variables by which a worker finds its place in the job, alike wherever slimps starts it.

DMLC_WORKER_ID, RANK                  the worker's rank
WORLD_SIZE                            how many workers there are
LOCAL_RANK, LOCAL_WORLD_SIZE          its number among the workers of its machine, and their count
MASTER_ADDR, MASTER_PORT              where rank 0 lets a script's own process group meet
GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME  the network interface towards it, unless they are set, or
                                      it leads to no other machine

RANK to MASTER_PORT are torchrun's, so init_process_group() finds them. Ranks of a machine follow
each other, as under torchrun.
"""

import dataclasses

from slimps_launch import network


@dataclasses.dataclass(frozen=True)
class Member:
    """A worker's place in the job."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str  # where rank 0 is
    port: int  # held for rank 0 (network.hold_port)


def variables(member, environment):
    """Returns the variables of a worker that gets `environment` otherwise, on its own machine."""
    own = {
        "DMLC_WORKER_ID": str(member.rank),
        "RANK": str(member.rank),
        "WORLD_SIZE": str(member.size),
        "LOCAL_RANK": str(member.local_rank),
        "LOCAL_WORLD_SIZE": str(member.local_size),
        "MASTER_ADDR": member.address,
        "MASTER_PORT": str(member.port),
    }
    interface = environment.get("DMLC_INTERFACE") or network.interface_towards(member.address)
    # A host's own name may be that of its loopback, which says nothing of the way to the others.
    is_own = interface == network.interface_of("127.0.0.1")
    if interface and not (is_own and member.local_size < member.size):
        own["GLOO_SOCKET_IFNAME"] = environment.get("GLOO_SOCKET_IFNAME") or interface
        # NCCL takes a name for the beginning of one, unless there is a "=".
        own["NCCL_SOCKET_IFNAME"] = environment.get("NCCL_SOCKET_IFNAME") or "=" + interface
    return own
