# SPDX-License-Identifier: Apache-2.0
"""slimps run under torchrun."""

import os
import signal

import commands
from commands import DEMO, SLIMPS, SMALL, TRAIN, Command

RUN = SLIMPS + ["run"]
TORCHRUN = [commands.PYTHON, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no_python"]


def test_two_ranks_train_as_a_local_job_does(tmp_path):
    # "--" before the command, since torchrun would take --logs for a flag of its own.
    lines = commands.trained(
        TORCHRUN + ["--"] + RUN + ["--logs", str(tmp_path / "logs"), "--"] + DEMO
    )
    assert any("scheduler listens at 127.0.0.1:" in line for line in lines)
    logs = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert logs == ["rendezvous.log", "scheduler.log", "server0.log", "worker0.log", "worker1.log"]
    assert "worker0| " + (tmp_path / "logs" / "worker0.log").read_text().splitlines()[-1] in lines


def test_they_meet_where_torchrun_has_no_store_for_them():
    command = TORCHRUN + RUN + ["--"] + TRAIN
    commands.trained(command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


def test_a_restart_is_a_new_job(tmp_path):
    command = TORCHRUN + ["--max_restarts=1"] + RUN + ["--"] + SMALL
    with Command(command + ["once", str(tmp_path / "failed")]) as job:
        assert job.status() == 0, job.said
        assert "slimps: the job failed: worker1 exited with status 1: ValueError: bad luck" in (
            job.lines
        )
        schedulers = job.wait_for("the scheduler listens at (.*) ", 2)
        assert schedulers[0].group(1) != schedulers[1].group(1)
        job.wait_for("trained: .2. 2. 2. 2.", 2)
        assert job.nobody_is_left()


def test_a_killed_process_ends_the_job_and_is_named():
    with Command(TORCHRUN + RUN + ["--"] + SMALL + ["wait"]) as job:
        ready = {match.group(1): match for match in job.wait_for(r"ready: rank (.), pid (\d+)", 2)}
        os.kill(int(ready["1"].group(2)), signal.SIGKILL)
        assert job.status() != 0
        assert "slimps: the job failed: worker1 was killed by SIGKILL" in job.said
        assert job.nobody_is_left(), job.said


def test_what_a_killed_run_has_started_ends_with_it():
    with Command(TORCHRUN + RUN + ["--"] + SMALL + ["wait"]) as job:
        job.wait_for("ready: ", 2)
        daemons = job.processes("slimps_scheduler") + job.processes("slimps_server")
        assert len(daemons) >= 2
        for pid in job.processes("slimps_here.py"):
            os.kill(pid, signal.SIGKILL)
        assert job.status() != 0
        assert job.nobody_is_left(), job.said


def test_ctrl_c_ends_all():
    with Command(TORCHRUN + RUN + ["--"] + SMALL + ["wait"]) as job:
        job.wait_for("ready: ", 2)
        job.process.send_signal(signal.SIGINT)
        assert job.status() != 0
        assert job.nobody_is_left(), job.said


def test_a_count_of_servers_is_refused_in_one_line():
    with Command(TORCHRUN + RUN + ["--servers=3", "--"] + TRAIN) as job:
        assert job.status() != 0
        assert "slimps: --servers 3: under torchrun each node runs one server; leave it out" in (
            job.lines
        )
