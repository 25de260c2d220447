# SPDX-License-Identifier: Apache-2.0
"""Measures planned systems in slimps bench cluster, on nodes that are network namespaces."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any, Callable, Iterator, Mapping, Optional

from bench.cluster import cluster_bench, cluster_options, net
from bench.cluster import systems as bench_systems
from cli import setup
from plan import calibration, systems
from plan.terms import Cluster

ITERATIONS = 20  # so many that rounds of a slightly too slow link have piled up
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


def bench_options(
    nodes: int, placement: str, rate: Optional[str], iterations: int = ITERATIONS
) -> argparse.Namespace:
    """Returns the bench's options for one set-up."""
    parser = cluster_options.make_parser()
    options = parser.parse_args(
        [
            "--nodes=%d" % nodes,
            "--placement=" + placement,
            "--link=" + (rate or "unshaped"),
            "--iterations=%d" % iterations,
        ]
    )
    cluster_options.settle(parser, options)
    return options


Measure = Callable[[str, str, float], float]


@contextlib.contextmanager
def bench(options: argparse.Namespace, programs: Any, specs: Specs) -> Iterator[Measure]:
    """Yields measure(system, model, compute_ms), which returns an iteration's ms.

    SetupError: this machine cannot make the network, or a job fails.
    """
    reason = net.why_not(options.congestion)
    if reason:
        raise setup.SetupError(reason)
    nodes = options.nodes * (2 if options.placement == "apart" else 1)
    with net.Network(nodes, options.congestion) as network:
        run = cluster_bench.Bench(options, programs, network, cluster_bench.Profiles(None))

        def measure(name: str, model: str, compute_ms: float) -> float:
            row = run.measure(bench_system(name, specs), model, compute_ms)
            if not row["workers_are_identical"]:
                raise setup.SetupError("%s: the workers' weights differ" % name)
            return float(row["iteration_ms"])

        yield measure
