# SPDX-License-Identifier: Apache-2.0
"""Which worker's part of a trace is written: after creates that fail, and in forks."""

import os

import numpy as np
import pytest

import jobs
import slimps
from slimps import _job, _trace, native


@pytest.fixture(name="path")
def path_of_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMPS_TRACE", str(tmp_path / "job.json"))
    return tmp_path / "job.json"


def part_of(path):
    return path.with_name("job.worker0.json")


def fail(*_):
    raise slimps.DeadlineExceededError("nobody is there")


def test_a_job_is_recorded_after_a_create_that_fails(path, monkeypatch):
    lost = _job.Job("127.0.0.1:1", 1, 1, trace=str(path))
    with monkeypatch.context() as broken:
        broken.setattr(native.Store, "create", fail)
        broken.setattr(_job, "current", lambda: lost)
        with pytest.raises(slimps.DeadlineExceededError):
            slimps.kv.create("dist_sync")
    assert not part_of(path).exists()
    with jobs.lone_store() as store:
        store.init("w", np.zeros(3, np.float32))
    assert part_of(path).exists()


def test_a_fork_leaves_the_part_to_its_parent(path):
    job = _job.Job("127.0.0.1:1", 1, 1, trace=str(path))
    assert _trace.start(job)
    child = os.fork()
    if child == 0:
        _trace.finish(job, 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not part_of(path).exists()
    _trace.finish(job, 0)
    assert part_of(path).exists()
