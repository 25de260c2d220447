# SPDX-License-Identifier: Apache-2.0
"""slimps launch --trace with workers in Python: one file has what all processes did."""

import collections
import json
import os
import time

import pytest
from commands import RUNFILES, SLIMPS, SMALL, TRAIN, Command

SKEWED_CLOCK = os.path.join(RUNFILES, "tests", "launch", "libskewed_clock.so")
LAUNCH = SLIMPS + ["launch", "--workers=2", "--servers=2"]
PROCESSES = ["scheduler 0", "worker 0", "worker 1", "server 0", "server 1"]
ROUNDS = 100  # of kvstore_numpy.py
TOLERANCE_US = 50e3  # of clocks that are put together by round trips
JOBS = 3  # the best of which counts: a busy machine delays round trips


class Traced:
    """A job's trace.

    names  of its processes, in their order
    spans  [(process, stage, name, event)]
    """

    def __init__(self, path, command, status=0, **environment):
        path = str(path / "job.json")
        with Command(LAUNCH + ["--trace", path, "--"] + command, **environment) as job:
            assert job.status() == status, job.said
        self.said = job.lines
        with open(path, encoding="utf-8") as text:
            events = json.load(text)["traceEvents"]
        names = {
            event["pid"]: event["args"]["name"]
            for event in events
            if event["name"] == "process_name"
        }
        self.names = [names[pid] for pid in sorted(names)]
        self.spans = [
            (names[event["pid"]], event["cat"], event["name"], event)
            for event in events
            if event["ph"] == "X"
        ]

    def counts(self, process, stage):
        return collections.Counter(
            name for where, what, name, _ in self.spans if (where, what) == (process, stage)
        )

    def times(self, role, stage):
        """Returns [(process, round, began, ended)] of the processes of a role, in microseconds."""
        return [
            (process, event["args"]["round"], event["ts"], event["ts"] + event["dur"])
            for process, what, _, event in self.spans
            if process.startswith(role) and what == stage
        ]


@pytest.fixture(name="trained", scope="module")
def one_trained_job(tmp_path_factory):
    return Traced(tmp_path_factory.mktemp("trace"), TRAIN)


def test_every_process_has_its_part(trained):
    assert trained.names == PROCESSES
    assert not [line for line in trained.said if "left out" in line]


def test_a_worker_has_its_calls_and_what_the_store_did(trained):
    for worker in ("worker 0", "worker 1"):
        calls = trained.counts(worker, "call")
        assert calls["create"] == calls["init"] == calls["close"] == 1
        assert calls["push"] == calls["pull_list"] == ROUNDS
        for stage in ("encode", "send", "decode"):
            assert sum(trained.counts(worker, stage).values()) >= ROUNDS, stage


def test_a_call_encloses_what_the_store_does_in_it(trained):
    calls = trained.times("worker 0", "call")
    for _, _, began, ended in trained.times("worker 0", "wait"):
        assert any(first <= began and ended <= last for _, _, first, last in calls)


def test_the_scheduler_has_the_jobs_phases(trained):
    assert list(trained.counts("scheduler 0", "phase")) == ["forming", "running", "ending"]


def disorder_us(trace):
    """Returns by how much a round seems to be over before its pushes, or after its pulls."""
    over = {number: began for _, number, began, _ in trace.times("server", "aggregate")}
    worst = 0
    for worker in ("worker 0", "worker 1"):
        sent = {number: ended for _, number, _, ended in trace.times(worker, "encode")}
        got = {number: began for _, number, began, _ in trace.times(worker, "decode")}
        rounds = set(sent) & set(got) & set(over)
        assert len(rounds) >= ROUNDS
        for number in rounds:
            worst = max(worst, sent[number] - over[number], over[number] - got[number])
    return worst


def test_clocks_that_differ_are_aligned(tmp_path):
    disorders = []
    while len(disorders) < JOBS and min(disorders, default=TOLERANCE_US) >= TOLERANCE_US:
        trace = Traced(tmp_path, TRAIN, LD_PRELOAD=SKEWED_CLOCK)
        assert trace.names == PROCESSES
        disorders.append(disorder_us(trace))
    assert min(disorders) < TOLERANCE_US, disorders


@pytest.mark.parametrize(
    "ahead, variables",
    [
        (300, {"DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1"}),
        (0, {"DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"}),
        (-200, {"DMLC_ROLE": "server"}),
    ],
)
def test_the_skew_of_these_tests_is_one(ahead, variables):
    """Without the round trips that tell it, parts of a trace would be minutes off."""
    before = time.time()
    command = ["python3", "-c", "import time; print(time.time())"]
    with Command(command, LD_PRELOAD=SKEWED_CLOCK, **variables) as one:
        assert one.status() == 0, one.said
    assert before - 1 < float(one.said) - ahead < time.time() + 1


def test_a_worker_that_fails_leaves_its_part(tmp_path):
    trace = Traced(tmp_path, SMALL + ["fail"], status=1)
    assert trace.counts("worker 1", "call")["init"] == 1
