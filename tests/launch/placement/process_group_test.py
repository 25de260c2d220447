# SPDX-License-Identifier: Apache-2.0
"""A script with a process group of its own and a device per worker runs alike at each place.

Places with several machines are network namespaces: skipped where these cannot be made.
"""

import contextlib
import json
import os

import commands
import kubernetes_test
import pytest
import slurm_test
import ssh_test
from commands import SLIMPS, Command
from kubernetes_test import net
from mpi_test import AS_ROOT, MPICH, OPENMPI

HERE = os.path.dirname(os.path.realpath(__file__))
WORKER = [commands.PYTHON, os.path.join(HERE, "group_worker.py")]
WHY_NOT = net.why_not()
needs_machines = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
WAITS = ["--join_timeout_s=78", "--timeout_s=77"]
LAUNCH = [*SLIMPS, "launch", *WAITS]
RUN = [*SLIMPS, "run", *WAITS]
SIX = ["--workers=4", "--servers=2", "--insecure"]
ONE_MACHINE = ["cuda:0", "cuda:1"]
TWO_MACHINES = ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]


def assert_same_everywhere(jobs, devices, interface, local_size=2):
    """Fails unless all workers of a job, which may be several commands, have found that."""
    lines = []
    for job in jobs:
        assert job.status() == 0, job.said
    for job in jobs:
        lines += [line.partition("group: ")[2] for line in job.lines if "group: " in line]
    found = sorted(map(json.loads, lines), key=lambda one: one["rank"])
    assert [one["rank"] for one in found] == list(range(len(devices))), lines
    for one in found:
        assert one["devices"] == devices
        assert one["local_size"] == str(local_size)
        assert (one["gloo"], one["nccl"]) == (interface, "=" + interface)
        assert one["waits"] == ["78", 77.0]
        assert one["node_first"] == (1 < local_size < len(devices))
    assert found[0]["held"]


@pytest.fixture(name="machines")
def _machines(tmp_path):
    with net.Network(2, congestion="default") as network:
        # As Debian's installer writes it.
        hosts = tmp_path / "etc_hosts"
        hosts.write_text("127.0.0.1 localhost\n127.0.1.1 m1 m2\n")
        made = ssh_test.Machines(network, str(tmp_path), etc_hosts=str(hosts))
        made.hosts("10.77.0.1 slots=3", "10.77.0.2 slots=3")
        with contextlib.closing(made):
            yield made


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory):
    with net.Network(2, congestion="default") as network:
        made = slurm_test.Cluster(network, str(tmp_path_factory.mktemp("slurm")))
        try:
            yield made
        finally:
            made.end()


def test_on_this_machine():
    with Command(LAUNCH + ["--workers=2", "--servers=1", "--", *WORKER]) as job:
        assert_same_everywhere([job], ONE_MACHINE, "lo")


def test_an_interface_that_the_user_has_set_stays():
    variables = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "ib,eth"}
    with Command(LAUNCH + ["--workers=1", "--servers=1", "--", *WORKER], **variables) as job:
        assert job.status() == 0, job.said
        assert '"nccl": "ib,eth"' in job.said


@pytest.mark.parametrize("mpirun", [OPENMPI, MPICH], ids=["openmpi", "mpich"])
def test_by_mpirun(mpirun):
    line = LAUNCH + ["--on=mpi", "--workers=2", "--servers=1", "--", *WORKER]
    with Command(line, SLIMPS_MPIRUN=mpirun, **AS_ROOT) as job:
        assert_same_everywhere([job], ONE_MACHINE, "lo")


@pytest.mark.parametrize("mpirun", [OPENMPI, MPICH], ids=["openmpi", "mpich"])
def test_by_mpirun_without_launch(mpirun):
    run = RUN + ["--scheduler=127.0.0.1:%d" % commands.free_port(), "--", *WORKER]
    with Command(mpirun.split() + ["-n", "2"] + run, **AS_ROOT) as job:
        assert_same_everywhere([job], ONE_MACHINE, "lo")


def test_by_torchrun():
    torchrun = [commands.PYTHON, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    with Command(torchrun + ["--no_python", *RUN, "--", *WORKER]) as job:
        assert_same_everywhere([job], ONE_MACHINE, "lo")


@needs_machines
def test_by_torchrun_on_two_machines():
    with net.Network(2, congestion="default") as network:
        line = [commands.PYTHON, "-m", "torch.distributed.run", "--no_python", "--nnodes=2"]
        line += ["--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_id=seven"]
        line += ["--rdzv_endpoint=%s:29400" % network.address(0)]
        run = [*RUN, "--insecure", "--", *WORKER]
        with contextlib.ExitStack() as running:
            jobs = [
                running.enter_context(
                    Command(
                        network.command(
                            node,
                            line
                            + ["--rdzv_conf=is_host=%d" % (node == 0)]
                            + ["--local_addr=" + network.address(node)]
                            + run,
                        )
                    )
                )
                for node in (0, 1)
            ]
            assert_same_everywhere(jobs, TWO_MACHINES, net.INTERFACE)


@needs_machines
def test_by_ssh_where_host_names_are_of_the_loopback(machines):
    line = LAUNCH + ["--on", "ssh:" + machines.hostfile, *SIX, "--", *WORKER]
    with Command(machines.network.command(net.HUB, line), SLIMPS_SSH=machines.ssh) as job:
        assert_same_everywhere([job], TWO_MACHINES, net.INTERFACE)


@needs_machines
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_by_mpirun_on_two_machines(machines, mpi):
    line = LAUNCH + ["--on", "mpi:" + machines.hostfile, *SIX, "--", *WORKER]
    mpirun = ssh_test.mpirun_of(machines, mpi)
    with Command(machines.network.command(net.HUB, line), SLIMPS_MPIRUN=mpirun, **AS_ROOT) as job:
        assert_same_everywhere([job], TWO_MACHINES, net.INTERFACE)


@needs_machines
def test_in_pods_of_kubernetes(tmp_path):
    with kubernetes_test.pods(tmp_path, WAITS, WORKER) as pods:
        assert_same_everywhere(pods, ["cuda:0", "cuda:0"], net.INTERFACE, local_size=1)


# The last tests: the cluster has the names of the namespaces until the end.
@needs_machines
def test_in_an_allocation_of_slurm(cluster):
    line = LAUNCH + ["--on=slurm", *SIX, "--", *WORKER]
    command = cluster.command(*line, tasks=6, flags=["--nodes=2", "--overcommit"])
    with Command(command, SLURM_CONF=cluster.config) as job:
        assert_same_everywhere([job], TWO_MACHINES, net.INTERFACE)


@needs_machines
@pytest.mark.parametrize("distribution", ["block", "cyclic"])
def test_by_srun_without_launch(cluster, distribution):
    run = RUN + ["--insecure", "--scheduler=10.77.0.1:%d" % commands.free_port()]
    srun = ["srun", "--distribution=" + distribution, *run, "--", *WORKER]
    with Command(cluster.command(*srun), SLURM_CONF=cluster.config) as job:
        assert_same_everywhere([job], TWO_MACHINES, net.INTERFACE)
