# SPDX-License-Identifier: Apache-2.0
"""Shares the cores of a machine out between its servers and workers: whole cores, by NUMA node.

A server has a thread that sums and one that moves bytes: it gets at most two cores. The workers
share the others. A worker is at home on the NUMA node of its GPU, or else the workers are spread
over the nodes; a node that is nobody's home goes to the nearest home. So workers of different homes
share no node. Nobody gets cores of its own where a process would get less than two, or where a
cgroup's quota grants fewer CPUs than there are: the system's own scheduling serves such a machine
better, and two containers would choose the same cores.
"""

import os

from slimps_launch.placement import topology

LEAST = 2
SERVER_MOST = 2


def of_machine(servers, workers, say):
    """Returns a set of CPU numbers, or None, for each server and then each worker of this machine.

    Calls `say` with a line in words if it shares out, or if a quota keeps it from that.
    """
    machine = topology.read(os.sched_getaffinity(0), os.environ.get("CUDA_VISIBLE_DEVICES"))
    shared = share(machine, servers, workers)
    if shared is not None:
        say(words(shared, servers))
        return [frozenset().union(*(core.cpus for core in cores)) for cores in shared]
    if machine.quota < machine.cpus():
        say("no cores of their own: the quota is %g of %d CPUs" % (machine.quota, machine.cpus()))
    return [None] * (servers + workers)


def share(machine, servers, workers):
    """Returns a list of cores for each server and then each worker, or None.

    `machine` is a Topology. Without workers the servers share all.
    """
    nodes = servers + workers
    if nodes < 2 or len(machine.cores) < LEAST * nodes or machine.quota < machine.cpus():
        return None
    homes = _homes(machine, workers or servers, machine.gpu_nodes if workers else [])
    of_home = _deal(machine, homes)
    shared = []
    for _ in range(servers if workers else 0):
        cores = max(of_home.items(), key=lambda item: len(item[1]) / homes.count(item[0]))[1]
        shared.append(cores[:SERVER_MOST])
        del cores[:SERVER_MOST]
    for rank, home in enumerate(homes):
        left = homes[rank:].count(home)
        size = -(-len(of_home[home]) // left)
        shared.append(of_home[home][:size])
        del of_home[home][:size]
    return None if min(map(len, shared)) < LEAST else shared


def _homes(machine, count, gpu_nodes):
    """Returns the home, a NUMA node, of each of `count` processes."""
    nodes = sorted({core.node for core in machine.cores})
    spread = [nodes[rank * len(nodes) // count] for rank in range(count)]
    return [
        gpu if gpu in nodes else home for gpu, home in zip([*gpu_nodes, *[None] * count], spread)
    ]


def _deal(machine, homes):
    """Returns {home: its cores}, with the cores of each node that is no home at the nearest one."""
    of_home = {home: [] for home in homes}
    for node in sorted({core.node for core in machine.cores}, key=lambda node: node not in of_home):
        nearest = min(
            of_home,
            key=lambda home: (
                home != node,
                machine.distances.get((node, home), 0),
                len(of_home[home]) / homes.count(home),
            ),
        )
        of_home[nearest] += [core for core in machine.cores if core.node == node]
    return of_home


def words(shared, servers):
    """Returns what was shared out, in words: "2 cores for each server, 6 cores for each worker"."""
    said = []
    for who, part in (("server", shared[:servers]), ("worker", shared[servers:])):
        if part:
            sizes = sorted({len(cores) for cores in part})
            said.append("%s cores for each %s" % (" or ".join(map(str, sizes)), who))
    return ", ".join(said)
