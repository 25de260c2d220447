# SPDX-License-Identifier: Apache-2.0
"""launch --restart --checkpoint: a worker and a server die together, and the whole job goes back to
its last checkpoint. Its weights are the bits of a job in which nobody died."""

import os
import re
import signal

import commands
import pytest
from commands import SAVING, SLIMPS, Command
from eventually import eventually

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAINER = (
    "--model logistic --dataset digits --batch 64 --lr 0.2 --lr_schedule cosine --epochs 3 "
    "--log_every 1 --partition_bytes 1000 --optimizer momentum --compression 1bit --threshold 0 "
    "--pull_compression 1bit --pull_threshold 0 --backup_model on"
).split()
TWO = ["--workers=2", "--servers=2"]
GOES_BACK = (
    r"slimps: all of it goes back to its last checkpoint, (\S+) \(round (\d+)\); 2 more rest"
)


def launch(*flags):
    return SLIMPS + ["launch", *TWO, *flags, "--"]


def pids_of(job, variable):
    """Returns the numbers of a job's processes with this variable, as "DMLC_ROLE=server"."""
    found = []
    for pid in job.processes():
        try:
            with open("/proc/%d/environ" % pid, "rb") as variables:
                found += [pid] if variable.encode() in variables.read().split(b"\0") else []
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def kill_together(job):
    """Kills a server and a worker."""
    for pid in pids_of(job, "DMLC_ROLE=server")[:1] + pids_of(job, "DMLC_WORKER_ID=1"):
        os.kill(pid, signal.SIGKILL)


def whole(folder, name):
    return eventually(lambda: os.path.exists(os.path.join(folder, name, "manifest.json")), 60)


def test_a_server_that_somebody_stops_is_started_again(tmp_path):
    with Command(launch("--restart=5", "--snapshot_every=1") + SAVING + [str(tmp_path)]) as job:
        job.wait_for("waits: ", 2)
        os.kill(pids_of(job, "DMLC_ROLE=server")[0], signal.SIGTERM)
        job.wait_for("slimps: server. exited with status 1")
        (tmp_path / "go").touch()
        assert job.status() == 0, job.said
        job.wait_for("slimps: server. was started again")


def test_who_stops_the_scheduler_ends_the_job(tmp_path):
    saved = tmp_path / "saved"
    flags = ["--restart=5", "--snapshot_every=1", "--checkpoint", str(saved)]
    with Command(launch(*flags) + SAVING + [str(tmp_path)]) as job:
        job.wait_for("waits: ", 2)
        assert whole(saved, "step-000000020"), job.said
        os.kill(pids_of(job, "DMLC_WORKER_ID=1")[0], signal.SIGKILL)
        job.wait_for("waits: rank 1", 2)
        os.kill(pids_of(job, "DMLC_ROLE=scheduler")[0], signal.SIGTERM)
        (tmp_path / "go").touch()
        assert job.status() == 1
        job.wait_for("slimps: the job failed: .*the scheduler was stopped by Terminated")
        assert "goes back" not in job.said, job.said
        assert not [line for line in job.lines if "server" in line and " started again" in line]


def test_a_python_job_goes_back_and_ends_with_the_same_bits(tmp_path):
    saved, go = tmp_path / "saved", tmp_path / "go"
    go.touch()
    with Command(launch() + SAVING + [str(tmp_path)]) as calm:
        assert calm.status() == 0, calm.said
        weights = calm.wait_for("weights .*, from round 0", 2)[0].group().split(",")[0]
    go.unlink()
    flags = ["--restart=5", "--snapshot_every=60", "--checkpoint", str(saved)]
    with Command(launch(*flags) + SAVING + [str(tmp_path)]) as job:
        job.wait_for("waits: ", 2)
        assert whole(saved, "step-000000020"), job.said
        kill_together(job)
        go.touch()
        assert job.status() == 0, job.said
        found = job.wait_for(GOES_BACK)[0]
        assert found.groups() == (str(saved / "step-000000020"), "20"), job.said
        # Who sees it first: the scheduler, or the worker that came back.
        seen = "gone together|with the process and the ser|took its rank back|had not sent server"
        job.wait_for("slimps: the job cannot go on: .*(%s)" % seen)
        job.wait_for(re.escape(weights) + ", from round 20", 2)
        assert job.nobody_is_left()
    assert sorted(os.listdir(saved)) == ["step-0000000%d" % step for step in (20, 30, 40)]
    with Command(launch("--checkpoint", str(saved)) + SAVING + [str(tmp_path)]) as job:
        assert job.status() == 1
        assert "got step-000000040 (round 40): give --resume" in job.said
    with Command(launch("--checkpoint", str(saved), "--resume") + SAVING + [str(tmp_path)]) as job:
        assert job.status() == 0, job.said
        job.wait_for(re.escape(weights) + ", from round 40", 2)


@pytest.mark.skipif(
    not os.path.exists(DIGITS), reason="needs Debian's python3-sklearn for its digits"
)
def test_the_trainer_goes_back_and_ends_with_the_same_bits(tmp_path):
    def flags(name):
        return TRAINER + ["--save_weights", str(tmp_path / name) + "{rank}"]

    worker = [os.path.join(commands.RUNFILES, "worker", "slimps_worker")]
    with Command(launch() + worker + flags("calm")) as calm:
        assert calm.status() == 0, calm.said
    saved = tmp_path / "saved"
    restart = ["--restart=5", "--snapshot_every=60", "--checkpoint", str(saved)]
    every = ["--checkpoint_every=10", "--simulate_compute_ms=50"]
    with Command(launch(*restart) + worker + flags("storm") + every) as job:
        assert whole(saved, "step-000000010"), job.said
        kill_together(job)
        assert job.status() == 0, job.said
        assert job.wait_for(GOES_BACK)[0].group(1).startswith(str(saved / "step-0"))
        assert job.nobody_is_left()
    for rank in "01":
        calm_weights = (tmp_path / ("calm" + rank)).read_bytes()
        assert calm_weights == (tmp_path / ("storm" + rank)).read_bytes()
