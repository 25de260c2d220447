# SPDX-License-Identifier: Apache-2.0
"""slimps run under torchrun on two nodes, which are network namespaces.

Skipped where namespaces cannot be made.
"""

import os
import signal
import sys

import commands
import pytest
from commands import SLIMPS, SMALL, TRAIN, Command

sys.path.insert(0, os.path.join(commands.ROOT, "tools"))

from bench.cluster import net  # noqa: E402

WHY_NOT = net.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture
def network():
    with net.Network(2, congestion="default") as made:
        yield made


def torchrun(network, node, *flags, command, local_addr=True):
    line = [commands.PYTHON, "-m", "torch.distributed.run", "--no_python", "--nnodes=2"]
    line += ["--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=seven"]
    # Both have the machine's host name, by which torchrun would tell who has the store.
    line += ["--rdzv_endpoint=%s:29400" % network.address(0)]
    line += ["--rdzv_conf=is_host=%d" % (node == 0)]
    line += ["--local_addr=" + network.address(node)] if local_addr else []
    return network.command(node, line + SLIMPS + ["run", "--insecure", *flags, "--", *command])


def started(network, **how):
    return [Command(torchrun(network, node, **how)) for node in (0, 1)]


def ended(jobs):
    for job in jobs:
        job.__exit__()


def test_two_nodes_train_with_a_server_each(network):
    jobs = started(network, command=TRAIN)
    try:
        for job in jobs:
            assert job.status() == 0, job.said
        said = "\n".join(job.said for job in jobs)
        assert commands.TRAINED in said, said
        for rank in (0, 1):
            assert "server %d (host " % rank in said, said
        assert "(interface %s)" % net.INTERFACE in said
    finally:
        ended(jobs)


def test_a_lost_node_ends_the_other(network):
    jobs = started(network, command=SMALL + ["wait"])
    try:
        for job in jobs:
            job.wait_for("ready: ")
        for pid in jobs[1].processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert jobs[0].status() != 0
        assert jobs[0].nobody_is_left(), jobs[0].said
    finally:
        ended(jobs)


def test_a_name_that_only_this_node_knows_is_refused_in_one_line(network):
    # The host's name, which torchrun takes, is that of the loopback here.
    jobs = started(network, command=TRAIN, local_addr=False)
    try:
        jobs[0].wait_for("slimps: MASTER_ADDR=.* is 127.*: give --interface NAME|is not known here")
    finally:
        ended(jobs)
