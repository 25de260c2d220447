# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on mpi, and slimps run, with the mpirun of OpenMPI and of MPICH."""

import os
import signal

import commands
import pytest
from commands import DEMO, SAVING, SLIMPS, SMALL, TRAIN, Command

OPENMPI, MPICH = "mpirun.openmpi --oversubscribe", "mpirun.mpich"
# OpenMPI would not run as root, as which tests may run.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LAUNCH = SLIMPS + ["launch", "--on", "mpi", "--workers=2", "--servers=2"]


@pytest.fixture(params=[OPENMPI, MPICH], ids=["openmpi", "mpich"])
def mpirun(request):
    return request.param


def launched(mpirun, *command):
    return Command(LAUNCH + ["--"] + SMALL + list(command), SLIMPS_MPIRUN=mpirun, **AS_ROOT)


def test_it_trains_as_a_local_job_does(mpirun, tmp_path):
    lines = commands.trained(
        LAUNCH + ["--logs", str(tmp_path), "--"] + DEMO, SLIMPS_MPIRUN=mpirun, **AS_ROOT
    )
    assert "worker0| " + (tmp_path / "worker0.log").read_text().splitlines()[-1] in lines
    assert {"server0.log", "server1.log", "worker1.log"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_an_mpirun_with_a_prefix_does_not_hide_the_environment_s_python3(tmp_path):
    own = tmp_path / "python3"
    own.write_text('#!/bin/sh\necho own python3\nexec %s "$@"\n' % commands.PYTHON)
    own.chmod(0o755)
    lines = commands.trained(
        LAUNCH + ["--", "python3"] + TRAIN[1:],
        SLIMPS_MPIRUN="/usr/bin/%s --prefix /usr" % OPENMPI,
        PATH="%s:%s" % (tmp_path, os.environ["PATH"]),
        **AS_ROOT,
    )
    assert {"worker0| own python3", "worker1| own python3"} <= set(lines), lines


def test_without_launch_the_scheduler_is_where_it_is_said_to_be(mpirun):
    port = commands.free_port()
    run = SLIMPS + ["run", "--servers=2", "--scheduler=127.0.0.1:%d" % port, "--"] + TRAIN
    lines = commands.trained(mpirun.split() + ["-n", "4"] + run, **AS_ROOT)
    assert any("scheduler listens at 127.0.0.1:%d" % port in line for line in lines)


def test_without_launch_and_scheduler_one_line_says_what_to_give(mpirun):
    run = SLIMPS + ["run", "--servers=1", "--"] + TRAIN
    with Command(mpirun.split() + ["-n", "2"] + run, **AS_ROOT) as job:
        assert job.status() != 0
        assert "does not say where the scheduler is: give --scheduler HOST:PORT" in job.said


def test_an_error_of_a_rank_is_told_with_its_name_and_status(mpirun):
    with launched(mpirun, "fail") as job:
        assert job.status() == 1
        job.wait_for("slimps: the job failed: worker1 exited with status 1 on .*: ValueError: bad")
        assert job.nobody_is_left(), job.said


def test_a_killed_process_ends_the_job_and_is_named(mpirun):
    with launched(mpirun, "wait") as job:
        ready = {match.group(1): match for match in job.wait_for(r"ready: rank (.), pid (\d+)", 2)}
        os.kill(int(ready["1"].group(2)), signal.SIGKILL)
        assert job.status() == 128 + signal.SIGKILL
        assert "slimps: the job failed: worker1 was killed by SIGKILL on " in job.said
        assert job.nobody_is_left(), job.said


def test_ctrl_c_ends_all(mpirun):
    with launched(mpirun, "wait") as job:
        job.wait_for("ready: ", 2)
        job.process.send_signal(signal.SIGINT)
        assert job.status() == 128 + signal.SIGINT
        assert job.nobody_is_left(), job.said


def test_a_killed_launcher_leaves_nobody_behind(mpirun):
    with launched(mpirun, "wait") as job:
        job.wait_for("ready: ", 2)
        job.process.kill()
        assert job.nobody_is_left(), job.said


def test_a_job_that_is_started_again_goes_on_from_its_checkpoint(mpirun, tmp_path):
    (tmp_path / "go").touch()
    resume = ["--checkpoint", str(tmp_path / "saved"), "--resume", "--"] + SAVING + [str(tmp_path)]
    ended = []
    for launches in (True, False):
        line = LAUNCH
        if not launches:
            run = ["run", "--servers=2", "--scheduler=127.0.0.1:%d" % commands.free_port()]
            line = mpirun.split() + ["-n", "4"] + SLIMPS + run
        with Command(line + resume, SLIMPS_MPIRUN=mpirun, **AS_ROOT) as job:
            assert job.status() == 0, job.said
            ended.append(job.wait_for("weights (.*), from round (.*)", 2)[0].groups())
    assert ended == [(ended[0][0], "0"), (ended[0][0], "40")]


def test_what_is_no_mpirun_is_refused_in_one_line():
    for command, words in (
        ("/no/mpirun", "cannot run /no/mpirun: No such file"),
        ("true", "true is neither OpenMPI's nor MPICH's: true (GNU coreutils)"),
    ):
        with launched(command, "wait") as job:
            assert job.status() == 1
            assert job.lines == ["slimps: --on mpi: " + job.lines[0].partition("mpi: ")[2]]
            assert words in job.said


def test_a_hostfile_that_is_too_small_is_refused_in_one_line(tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=3\n")
    launch = SLIMPS + ["launch", "--on", "mpi:%s" % (tmp_path / "hosts")]
    with Command(launch + ["--workers=2", "--servers=2", "--"] + TRAIN, **AS_ROOT) as job:
        assert job.status() == 1
        assert job.lines == [
            "slimps: hostfile %s has room for 3 processes; 2 workers and 2 servers need 4"
            % (tmp_path / "hosts")
        ]
