# SPDX-License-Identifier: Apache-2.0
"""The environment, and the options of create()."""

import pytest

import slimps
from slimps import _job, _options

DMLC = {
    "DMLC_PS_ROOT_URI": "10.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_WORKER": "4",
    "DMLC_NUM_SERVER": "2",
}
JOB = slimps.Job("10.0.0.1:9091", 4, 2)


def test_dmlc_variables_are_read():
    assert _job.read(DMLC) == JOB
    assert _job.read({**DMLC, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "3"}).rank == 3


def test_torchruns_variables_stand_in():
    torchrun = {"RANK": "1", "WORLD_SIZE": "2"}
    assert _job.read({**DMLC, **torchrun}) == slimps.Job("10.0.0.1:9091", 4, 2, 1)
    without = {name: text for name, text in DMLC.items() if name != "DMLC_NUM_WORKER"}
    assert _job.read({**without, **torchrun}) == slimps.Job("10.0.0.1:9091", 2, 2, 1)
    assert _job.read({**DMLC, **torchrun, "DMLC_WORKER_ID": "0"}).rank == 0


def test_arguments_count_before_the_environment():
    job = _job.read(DMLC, scheduler="b:1", num_workers=9, num_servers=8, rank=7, job_id="j")
    assert job == slimps.Job("b:1", 9, 8, 7, "j")


def test_keys_come_from_the_environment_or_arguments():
    keys = {"SLIMPS_KEY_FILE": "worker0.key", "SLIMPS_SCHEDULER_KEY": 64 * "a"}
    job = _job.read({**DMLC, **keys})
    assert (job.key_file, job.scheduler_key) == ("worker0.key", 64 * "a")
    job = _job.read({**DMLC, **keys}, key_file="own.key", scheduler_key=64 * "b")
    assert (job.key_file, job.scheduler_key) == ("own.key", 64 * "b")
    assert _job.read(DMLC).key_file == ""


@pytest.mark.parametrize(
    "missing, complaint",
    [
        (
            "DMLC_PS_ROOT_PORT",
            "scheduler is not known: DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT are not set",
        ),
        (
            "DMLC_NUM_WORKER",
            "num_workers is not known: DMLC_NUM_WORKER .or torchrun's WORLD_SIZE. is not set",
        ),
        ("DMLC_NUM_SERVER", "num_servers is not known: DMLC_NUM_SERVER is not set.*`slimps launch"),
    ],
)
def test_what_is_missing_is_named(missing, complaint):
    with pytest.raises(slimps.FailedPreconditionError, match=complaint):
        _job.read({name: text for name, text in DMLC.items() if name != missing})


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"DMLC_NUM_WORKER": "two"}, "DMLC_NUM_WORKER=two: expected a number"),
        ({"DMLC_NUM_WORKER": "0"}, "num_workers: expected 1 to 4096, got 0"),
        ({"DMLC_NUM_SERVER": "4097"}, "num_servers: expected 1 to 4096, got 4097"),
        ({"DMLC_WORKER_ID": "4"}, "rank: expected -1 to 3, got 4"),
    ],
)
def test_what_makes_no_sense_is_named(change, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        _job.read({**DMLC, **change})


def test_a_servers_place_is_no_workers():
    with pytest.raises(slimps.FailedPreconditionError, match="DMLC_ROLE=server: expected worker"):
        _job.read({**DMLC, "DMLC_ROLE": "server"})


def test_init_is_kept_for_later_stores(monkeypatch):
    monkeypatch.setattr(_job, "_job", None)
    for name, text in DMLC.items():
        monkeypatch.setenv(name, text)
    assert _job.current() == JOB
    assert slimps.init(num_workers=5) == _job.current() == slimps.Job("10.0.0.1:9091", 5, 2)


def test_options_are_text_or_numbers():
    made = _options.make(
        JOB,
        {
            "compression": "1bit",
            "threshold": 4096,
            "partition_bytes": "1024",
            "grad_scale": 0.5,
            "timeout_s": 2.5,
            "pull_threshold": "auto",
        },
    )
    names = ("compression", "threshold", "partition_bytes", "grad_scale", "timeout_s")
    assert [made.get(name) for name in names] == ["1bit", "4096", "1024", "0.5", "2.5"]
    assert _options.make(slimps.Job("b:1", 4, 2, rank=3), {}).get("rank") == "3"


def test_without_options_the_stores_own_hold():
    made = _options.make(None, {})
    names = ("compression", "threshold", "partition_bytes", "threshold_table")
    assert [made.get(name) for name in names] == ["none", "auto", "1048576", ""]
    with pytest.raises(slimps.InvalidArgumentError, match="no option \"compresion\"; there are "):
        made.get("compresion")


@pytest.mark.parametrize(
    "option, value, complaint",
    [
        ("compresion", "1bit", "no option \"compresion\"; there are compression, "),
        ("num_workers", 2, "create: no option num_workers; the job's are slimps.init's"),
        ("threshold", -1, "option threshold: expected auto or a number of bytes .*, got \"-1\""),
        ("threshold", True, "option threshold: expected a str or a number, got True"),
        ("threshold", None, "option threshold: expected a str or a number, got None"),
        ("partition_bytes", 2.5, "option partition_bytes: expected a whole number from 4"),
        ("timeout_s", float("nan"), "option timeout_s: expected a number"),
    ],
)
def test_options_that_make_no_sense_are_named(option, value, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        _options.make(JOB, {option: value})


def test_a_scheduler_that_is_no_address():
    with pytest.raises(
        slimps.InvalidArgumentError,
        match="option scheduler: expected host:port .*, got \"nowhere\"",
    ):
        _options.make(slimps.Job("nowhere", 1, 1), {})
