# SPDX-License-Identifier: Apache-2.0
"""Simulates a job's iterations: every partition passes every stage, with the product's own order.

    result = simulate(model, system, cluster, costs)
    result.iteration_ms

    accelerator --gradient--> caller: lend, or copy --> push: encode, coalesce --> I/O --> link up
      --> link down --> server's I/O --> shard: sum, step, encode the change --> I/O --> link up
      --> link down --> I/O --> pull: merge --> step: write --> the next forward pass

With the backup model a local step takes the place of the newest weights. Codecs with phases first
push auxiliary keys the same way, from threads of their own. Of push, pull, phases and step a worker
has as many threads as its node has cores.

Mirrors worker/push, worker/phases, worker/courier, worker/pull, worker/exchange, server/shard and
the loop of tools/bench/cluster.
Left out: acknowledgements, retries, heartbeats, loss. Pure.
"""

from __future__ import annotations

import dataclasses
from typing import Sequence

from plan import exchanges
from plan.engine import Cores, Engine, Link
from plan.node import Node
from plan.server_model import ServerModel
from plan.terms import Cluster, Costs, Model, System
from plan.worker_model import WorkerModel

WARM_UP = 4  # iterations, as in slimps bench cluster


def _pace(times: Sequence[float]) -> float:
    """Returns the mean interval after the warm-up.

    With the backup model rounds pile up for many iterations if the link is a little too slow. The
    accelerator does not feel that before the pile is a round high, but the rounds come no faster
    than the link brings them. So the slower pace of the two is the one that lasts. The last round
    is left out: nothing else is under way while it comes.
    """
    return (times[-2] - times[WARM_UP - 1]) / (len(times) - 1 - WARM_UP)


@dataclasses.dataclass(frozen=True)
class Result:
    """What one job did. Bytes are of the busiest node, busier direction, an iteration."""

    iteration_ms: float
    wire_bytes: float
    cpu_ms: float  # of all cores, an iteration


def simulate(
    model: Model, system: System, cluster: Cluster, costs: Costs, iterations: int = 5
) -> Result:
    """Returns the mean of `iterations` iterations after a warm-up.

    KeyError: `costs` has no codec of this name.
    """
    engine = Engine()
    shared = Cores(engine, cluster.cores)

    def node() -> Node:
        cores = shared if cluster.one_machine else Cores(engine, cluster.cores)
        rate = cluster.bytes_per_ms()
        return Node(cores, Link(engine, rate), Link(engine, rate), cluster.ahead_bytes)

    places = cluster.places()
    nodes = {place: node() for place in sorted(set(places))}
    codecs = exchanges.Codecs(system, costs)
    layout = exchanges.layout_of(model, cluster.servers, codecs)
    servers = [
        ServerModel(rank, nodes[places[rank]], cluster, system, costs, model, codecs)
        for rank in range(cluster.servers)
    ]
    total = WARM_UP + iterations
    workers = [
        WorkerModel(rank, nodes[place], cluster, system, costs, model, codecs, layout, total)
        for rank, place in enumerate(places[cluster.servers :])
    ]
    for worker in workers:
        worker.connect(servers)
    for server in servers:
        server.connect(workers)
    for worker in workers:
        worker.start()
    engine.run()
    for worker in workers:
        if len(worker.ends) != total:
            raise AssertionError(
                "worker %d stopped in iteration %d" % (worker.rank, len(worker.ends))
            )
    paces = [max(_pace(worker.ends), _pace(worker.rounds)) for worker in workers]
    cores = {node.cores for node in nodes.values()}
    return Result(
        max(paces),
        max(max(node.up.carried, node.down.carried) for node in nodes.values()) / total,
        sum(each.used for each in cores) / total,
    )
