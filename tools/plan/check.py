# SPDX-License-Identifier: Apache-2.0
"""Measures planned systems in slimps bench cluster, on nodes that are network namespaces."""

from __future__ import annotations

import argparse
import contextlib
import functools
from typing import Any, Callable, Iterator, Mapping, Optional

from bench.cluster import cluster_bench, cluster_options, net
from bench.cluster import systems as bench_systems
from cli import setup
from plan import calibration, systems
from plan.terms import Cluster

ITERATIONS = 8
# With the backup model a round of a link that is a little too slow hides behind the compute of the
# next iterations. After so many iterations, a link that is 10 % too slow has piled up a round.
BACKUP_WARM_UP = 10
Specs = Mapping[str, str]  # codec of the calibration -> codec spec


def specs_of(content: calibration.Content) -> Specs:
    return {row["codec"]: row["spec"] for row in content["codecs"]}


def bench_system(name: str, specs: Specs) -> bench_systems.System:
    """Returns the bench's system that does what the planned one does."""
    planned = systems.find(name)
    return bench_systems.system(
        name,
        specs.get(planned.push, planned.push),
        pull=specs.get(planned.pull, planned.pull),
        threshold=str(planned.threshold),
        pull_threshold=str(planned.pull_threshold),
        coalesce=planned.coalesce,
        prioritise=planned.prioritise,
        backup=planned.backup,
    )


def bench_cluster_of(cluster: Cluster, cores: int) -> Cluster:
    """Returns the cluster as the bench stands for it: all nodes share this machine's cores."""
    return Cluster(
        workers=cluster.workers,
        servers=cluster.workers,
        together=cluster.together,
        bits_per_second=cluster.bits_per_second,
        cores=cores,
        one_machine=True,
    )


def bench_options(nodes: int, placement: str, rate: Optional[str]) -> argparse.Namespace:
    """Returns the bench's options for one link."""
    parser = cluster_options.make_parser()
    options = parser.parse_args(
        [
            "--nodes=%d" % nodes,
            "--placement=" + placement,
            "--link=" + (rate or "unshaped"),
            "--iterations=%d" % ITERATIONS,
        ]
    )
    cluster_options.settle(parser, options)
    return options


# measure(system, model, compute_ms, rate) returns an iteration's ms; rate None: unshaped
Measure = Callable[[str, str, float, Optional[str]], float]


def refuse(nodes: int, placement: str) -> None:
    """SetupError: this machine cannot make the bench's network."""
    reason = net.why_not(bench_options(nodes, placement, None).congestion)
    if reason:
        raise setup.SetupError(reason)


@contextlib.contextmanager
def bench(nodes: int, placement: str, programs: Any, specs: Specs) -> Iterator[Measure]:
    """Yields a function that measures one system in one network, which all calls share.

    SetupError: this machine cannot make the network, or a job fails.
    """
    refuse(nodes, placement)
    options = functools.partial(bench_options, nodes, placement)
    congestion = options(None).congestion
    benches: dict[Optional[str], cluster_bench.Bench] = {}
    with net.Network(nodes * (2 if placement == "apart" else 1), congestion) as network:

        def measure(name: str, model: str, compute_ms: float, rate: Optional[str]) -> float:
            if rate not in benches:
                benches[rate] = cluster_bench.Bench(
                    options(rate), programs, network, cluster_bench.Profiles(None)
                )
            system = bench_system(name, specs)
            warmup = BACKUP_WARM_UP if system.backup else cluster_bench.WARMUP
            row = benches[rate].measure(system, model, compute_ms, warmup)
            if not row["workers_are_identical"]:
                raise setup.SetupError("%s: the workers' weights differ" % name)
            return float(row["iteration_ms"])

        yield measure
