# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer(node_first=...) on two nodes of two workers, with a link between them."""

import os
import sys

import jobs
import pytest
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "..", "tools"))

from bench.cluster import net  # noqa: E402

WHY_NOT = net.why_not()
LOCAL = 2  # workers of a node, which has a server too


class Nodes(jobs.Daemons):
    """A job in two network namespaces. The scheduler is on the first."""

    def __init__(self, network):
        super().__init__(2 * LOCAL, 2)
        self.network = network
        self.scheduler_flags = ["--bind", network.address(0), "--insecure"]

    def _start(self, name, role, command, port, own=None):
        number = int(name[len(role) :] or 0)
        node = number
        if role == "worker":
            node = number // LOCAL
            own = dict(own, LOCAL_RANK=str(number % LOCAL), LOCAL_WORLD_SIZE=str(LOCAL))
        elif role == "server":
            command = command + ["--bind", self.network.address(node), "--insecure"]
        root = ["env", "DMLC_PS_ROOT_URI=" + self.network.address(0)]
        super()._start(name, role, self.network.command(node, root + command), port, own)


def train(network, node_first, path):
    """Trains in all workers. Returns the link's bytes and the weights."""
    with Nodes(network) as job:
        names = ["worker%d" % rank for rank in range(2 * LOCAL)]
        for rank in range(2 * LOCAL):
            job.start_scenario(rank, "torch_node_scenarios", "trains_over_a_link", node_first, path)
        ends = job.wait_for_end(names, 120.0)
        assert set(ends.values()) == {0}, "\n".join(job.output(name) for name in names)
        said = job.output("worker0").split("link ")[1]
    return int(said.split()[0]), torch.load(path)


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_the_link_carries_half_the_bytes_for_the_same_weights(tmp_path):
    with net.Network(2, congestion="default") as network:
        of_all, weights_of_all = train(network, "False", str(tmp_path / "all"))
        of_nodes, weights_of_nodes = train(network, "default", str(tmp_path / "nodes"))
    gradients = 10 * sum(4 * weight.numel() for weight in weights_of_all.values())
    # A worker sends half of its gradients to the other node's server, and gets half of the weights.
    assert 4 * gradients < of_all < 1.1 * 4 * gradients, (of_all, gradients)
    assert 0.47 < of_nodes / of_all < 0.53, (of_nodes, of_all)
    for name, weight in weights_of_all.items():
        assert float((weight - weights_of_nodes[name]).abs().max()) <= 1e-6, name
