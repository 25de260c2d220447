# SPDX-License-Identifier: Apache-2.0
"""Signals at each place: a program may save, with its DataLoader and the servers still there.

Slurm runs in network namespaces: skipped where these cannot be made.
"""

import contextlib
import os
import signal

import commands
import pytest
import slurm_test
from commands import SLIMPS, Command
from mpi_test import AS_ROOT, MPICH, OPENMPI
from slurm_test import net

HERE = os.path.dirname(os.path.realpath(__file__))
WORKER = [commands.PYTHON, os.path.join(HERE, "loading_worker.py")]
LAUNCH = SLIMPS + ["launch", "--workers=2", "--servers=1"]
SAVED = r"saved: \[80. 80. 80. 80.\]"
WHY_NOT = net.why_not()


@contextlib.contextmanager
def here():
    with Command(LAUNCH + ["--", *WORKER]) as job:
        yield job, job.process.pid


@contextlib.contextmanager
def by_mpirun(mpirun):
    line = LAUNCH + ["--on=mpi", "--", *WORKER]
    with Command(line, SLIMPS_MPIRUN=mpirun, **AS_ROOT) as job:
        yield job, job.process.pid


@contextlib.contextmanager
def by_mpirun_alone():
    run = SLIMPS + ["run", "--scheduler=127.0.0.1:%d" % commands.free_port(), "--", *WORKER]
    with Command(MPICH.split() + ["-n", "2"] + run, **AS_ROOT) as job:
        yield job, job.process.pid


@contextlib.contextmanager
def by_torchrun():
    torchrun = [commands.PYTHON, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    with Command(torchrun + ["--no_python", *SLIMPS, "run", "--", *WORKER]) as job:
        yield job, job.process.pid


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory):
    if WHY_NOT is not None:
        pytest.skip(str(WHY_NOT))
    with net.Network(2, congestion="default") as network:
        # As proctrack/cgroup, it signals the tasks alone. linuxproc signals what they started, too.
        made = slurm_test.Cluster(network, str(tmp_path_factory.mktemp("slurm")), "pgid")
        try:
            yield made
        finally:
            made.end()


PLACES = {
    "here": here,
    "openmpi": lambda: by_mpirun(OPENMPI),
    "mpich": lambda: by_mpirun(MPICH),
    "mpich_without_launch": by_mpirun_alone,
    "torchrun": by_torchrun,
}


def assert_saves(job, pid, number):
    job.wait_for("ready: ", 2)
    os.kill(pid, number)
    assert job.status() != 0
    job.wait_for(SAVED, 2)
    assert job.nobody_is_left(), job.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl_c"])
@pytest.mark.parametrize("place", PLACES)
def test_a_program_may_draw_batches_and_train_after_a_signal(place, number):
    with PLACES[place]() as (job, pid):
        assert_saves(job, pid, number)


@pytest.mark.parametrize("place", ["here", "openmpi", "mpich", "mpich_without_launch"])
def test_sigusr1_goes_to_the_workers_and_the_job_goes_on(place):
    with PLACES[place]() as (job, pid):
        job.wait_for("ready: ", 2)
        os.kill(pid, signal.SIGUSR1)
        job.wait_for("noted: SIGUSR1", 2)
        assert_saves(job, pid, signal.SIGTERM)


# The last tests: the cluster has the names of the namespaces until the end.
def test_in_a_batch_job_of_slurm(cluster):
    line = cluster.command(*LAUNCH, "--on=slurm", "--insecure", "--", *WORKER, tasks=3)
    with Command(line, SLURM_CONF=cluster.config) as job:
        job.wait_for("ready: ", 2)
        (pid,) = cluster.launchers(job)
        os.kill(pid, signal.SIGUSR1)  # as --signal=B:USR1@120
        job.wait_for("noted: SIGUSR1", 2)
        assert_saves(job, pid, signal.SIGTERM)


def test_in_a_step_of_slurm(cluster):
    run = SLIMPS + ["run", "--insecure", "--scheduler=10.77.0.1:%d" % commands.free_port()]
    line = cluster.command("srun", "--job-name=step", *run, "--", *WORKER, tasks=2)
    with Command(line, SLURM_CONF=cluster.config) as job:
        job.wait_for("ready: ", 2)
        number = cluster.output("squeue", "--noheader", "--format=%i")
        cluster.output("scancel", "--signal=USR1", number)  # as --signal=USR1@120
        job.wait_for("noted: SIGUSR1", 2)
        cluster.output("scancel", "--signal=TERM", number)  # as at the time limit
        job.wait_for(SAVED, 2)
        job.status()
        assert job.nobody_is_left(), job.said
