# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a call waits: the call ends, the store closes, and the other workers are told
(waiting.py)."""

import signal

import jobs
import pytest


@pytest.mark.parametrize(
    "what, other",
    [
        ("pull", "barrier"),
        ("pushpull", "barrier"),
        ("pushpull_list", "barrier"),
        ("barrier", "pull"),
        ("init", "pull"),
    ],
)
def test_ctrl_c_ends_what_waits(what, other):
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "told_at_" + other)
        job.start_scenario(1, "waiting", what)
        interrupt(job, "worker1")
        assert job.wait_for_end(["worker0", "worker1"]) == {"worker0": 0, "worker1": 0}, job.output(
            "worker1"
        )
        assert job.output("worker1").split() == ["waiting", "interrupted", "closed"]
        assert "worker 1 was interrupted, as by Ctrl-C, while it waited" in job.output("worker0")


def test_ctrl_c_ends_joining():
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "create")
        interrupt(job, "worker0")
        assert job.wait_for_end(["worker0"]) == {"worker0": 0}, job.output("worker0")
        assert "interrupted" in job.output("worker0")


def test_handlers_run_while_a_call_waits():
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "told_at_barrier")
        job.start_scenario(1, "waiting", "handler")
        job.wait_for_line("worker1", "waiting")
        # The handler is set after the process says that it waits. An earlier signal would end the
        # process.
        job.wait_for(lambda: handles(job.processes["worker1"].pid, signal.SIGUSR2), "the handlers")
        job.kill("worker1", signal.SIGUSR1)
        job.wait_for_line("worker1", "handled")
        job.kill("worker1", signal.SIGUSR2)
        assert job.wait_for_end(["worker1"]) == {"worker1": 0}, job.output("worker1")
        assert job.output("worker1").split() == ["waiting", "handled", "interrupted", "closed"]


def interrupt(job, name):
    """Sends Ctrl-C once the process has said that it will wait, and sleeps. Before that its main
    thread runs."""
    job.wait_for_line(name, "waiting")
    job.wait_for(lambda: sleeps(job.processes[name].pid), name + " to wait")
    job.kill(name, signal.SIGINT)


def sleeps(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


def handles(pid, number):
    """True if a process has a handler for a signal."""
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_ctrl_c_outside_the_store_tells_the_others_too():
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "told_at_pull")
        job.start_scenario(1, "waiting", "idle")
        interrupt(job, "worker1")
        ends = job.wait_for_end(["worker0", "worker1"])
        assert ends["worker0"] == 0 and ends["worker1"] != 0
        assert "told: " in job.output("worker0") and "worker 1: KeyboardInterrupt" in job.output(
            "worker0"
        )


@pytest.mark.parametrize(
    "end, words",
    [
        ("fail_in_fork", "LookupError: no more data"),
        ("fail_in_spawn", "LookupError: no more data"),
        ("exit_in_fork", "SystemExit: 3"),
    ],
)
def test_an_exception_in_a_child_that_has_the_store_tells_the_others(end, words):
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "told_at_barrier")
        job.start_scenario(1, "waiting", end)
        assert job.wait_for_end(["worker0"]) == {"worker0": 0}
        assert "worker 1: " + words in job.output("worker0"), job.output("worker0")


def test_an_exception_of_any_words_tells_the_others():
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "told_at_pull")
        job.start_scenario(1, "waiting", "fail")
        ends = job.wait_for_end(["worker0", "worker1"])
        assert ends["worker0"] == 0 and ends["worker1"] != 0
        assert "worker 1: LookupError: bad record \\0 \\udcff" in job.output("worker0")
        assert "LookupError: bad record" in job.output("worker1")
