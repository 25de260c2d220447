# SPDX-License-Identifier: Apache-2.0
"""Real jobs whose workers begin with 80 calls of init: nodes of every role die or fall silent, and
the job ends with the bits of one in which nothing happened. What it writes is its user's alone."""

import os
import signal
import stat
import sys

import pytest
from process_cluster import ProcessCluster

WORKER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "many_keys_worker.py")
HEARTBEATS = ["--heartbeat_interval_ms=200", "--heartbeat_timeout_ms=3000"]


def has_torch():
    """True if slimps.torch takes the torch that is here."""
    try:
        import slimps.torch  # noqa: F401
    except ImportError:
        return False
    return True


EXTRAS = [
    "",
    pytest.param("torch", marks=pytest.mark.skipif(not has_torch(), reason="needs torch 2.4")),
]


class Job(ProcessCluster):
    """Two workers and two servers, all of which may be started again."""

    def __init__(self, folder, extra):
        super().__init__(2, 2, [], HEARTBEATS, worker=None, snapshots=1)
        self.command = [sys.executable, WORKER, str(folder), extra]
        self.goes_on = folder / "go"

    def __enter__(self):
        super().__enter__()
        try:
            for rank in range(2):
                self.start_worker(rank, self.command)
            for rank in range(2):
                self.wait_for_line("worker%d" % rank, "waits: ")
        except BaseException:
            self.__exit__()
            raise
        return self

    def go_on(self):
        """Lets the workers go on. Returns their weights."""
        self.goes_on.touch()
        ends = self.wait_for_all(120.0)
        said = "\n".join("--- %s\n%s" % (name, self.output(name)[-3000:]) for name in ends)
        assert set(ends.values()) == {0}, said
        lines = [self.output("worker%d" % rank).splitlines()[-1] for rank in range(2)]
        assert all(line.startswith("weights ") for line in lines), said
        return lines

    def kill_and_wait(self, name):
        self.kill(name)
        self.wait_for_end([name])


def kill_scheduler(job):
    job.kill_and_wait("scheduler")
    job.start_scheduler()
    job.wait_for_line("scheduler", "going on by a journal")


def kill_server(job):
    job.kill_and_wait("server0")
    job.start_server(0)
    for rank in range(2):
        job.wait_for_line("worker%d" % rank, "server 0 was started again")


def kill_worker(job, rank=1):
    job.kill_and_wait("worker%d" % rank)
    job.start_worker(rank, job.command)
    job.wait_for_line("worker%d" % rank, "waits: ")


def silence_server_and_worker(job):
    """Stops both until they count as gone, also while the others go on."""
    silent = ["server0", "worker1"]
    for name in silent:
        job.kill(name, signal.SIGSTOP)
    job.goes_on.touch()
    for name in ["server 0", "worker 1"]:
        job.wait_for(lambda name=name: name in gone_of(job), "%s counts as gone" % name)
    for name in silent:
        job.kill(name, signal.SIGCONT)


def gone_of(job):
    lines = job.output("scheduler").splitlines()
    return "\n".join(line for line in lines if "has been silent for over" in line)


def scheduler_then_worker(job):
    kill_scheduler(job)
    kill_worker(job)


def scheduler_twice_then_worker_0(job):
    kill_scheduler(job)
    kill_scheduler(job)
    kill_worker(job, rank=0)


EVENTS = [
    kill_scheduler,
    kill_server,
    kill_worker,
    silence_server_and_worker,
    scheduler_then_worker,
    scheduler_twice_then_worker_0,
]


@pytest.fixture(scope="module", params=EXTRAS)
def calm(request, tmp_path_factory):
    """Returns what the workers are told, and their weights if nothing happens."""
    with Job(tmp_path_factory.mktemp("calm"), request.param) as job:
        return request.param, job.go_on()


@pytest.mark.parametrize("event", EVENTS)
def test_the_job_ends_with_the_bits_of_the_calm_one(event, calm, tmp_path):
    extra, weights = calm
    with Job(tmp_path, extra) as job:
        event(job)
        assert job.go_on() == weights


def mode_of(path):
    """Returns None where a snapshot or a draft is no longer there."""
    try:
        return oct(stat.S_IMODE(os.stat(path).st_mode))
    except FileNotFoundError:
        return None


def files_in(folder):
    return {
        os.path.relpath(os.path.join(root, name), folder): os.path.join(root, name)
        for root, _, names in os.walk(folder)
        for name in names
    }


def test_what_a_job_writes_is_for_its_user_alone(tmp_path):
    before = os.umask(0)
    try:
        with Job(tmp_path, "save") as job:
            job.wait_for(
                lambda: all(
                    any("server-%d/snapshot-" % rank in name for name in files_in(job.path("")))
                    for rank in range(2)
                ),
                "a snapshot of each server",
            )
            written = {**files_in(job.path("")), **files_in(tmp_path)}
            # The logs are the test's own.
            modes = {name: mode_of(path) for name, path in written.items() if ".log" not in name}
            folders = [str(tmp_path / "saved")]
            folders += [job.path("snapshots/slimps/server-%d" % rank) for rank in range(2)]
            folder_modes = {mode_of(folder) for folder in folders}
            job.go_on()
    finally:
        os.umask(before)
    assert {"0o600"} == set(modes.values()) - {None}, modes
    assert {"0o700"} == folder_modes
    for name in [
        "journal",
        "snapshots/slimps/server-0/owner",
        "saved/manifest.json",
        "saved/server-0.images",
        "saved/server-1.images",
        "saved/weights.safetensors",
        "saved/worker-0.state",
        "saved/worker-1.state",
        "states-0",
        "states-1",
    ]:
        assert name in modes, sorted(modes)
