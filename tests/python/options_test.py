"""The environment, and the options of create()."""

import pytest

import slimps
from slimps import _job, _options

DMLC = {"DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9091", "DMLC_NUM_WORKER": "4", "DMLC_NUM_SERVER": "2"}
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


@pytest.mark.parametrize("missing, complaint", [
    ("DMLC_PS_ROOT_PORT", "scheduler is not known: DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT are not set"),
    ("DMLC_NUM_WORKER", "num_workers is not known: DMLC_NUM_WORKER .or torchrun's WORLD_SIZE. is not set"),
    ("DMLC_NUM_SERVER", "num_servers is not known: DMLC_NUM_SERVER is not set.*tools/slimps launch"),
])
def test_what_is_missing_is_named(missing, complaint):
    with pytest.raises(slimps.FailedPreconditionError, match=complaint):
        _job.read({name: text for name, text in DMLC.items() if name != missing})


@pytest.mark.parametrize("change, complaint", [
    ({"DMLC_NUM_WORKER": "two"}, "DMLC_NUM_WORKER=two: expected a number"),
    ({"DMLC_NUM_WORKER": "0"}, "num_workers: expected 1 to 4096, got 0"),
    ({"DMLC_NUM_SERVER": "4097"}, "num_servers: expected 1 to 4096, got 4097"),
    ({"DMLC_WORKER_ID": "4"}, "rank: expected -1 to 3, got 4"),
])
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


def test_options_reach_the_store_by_the_flags_names():
    made = _options.make(JOB, {"compression": "1bit", "threshold": 4096, "pull_compression": "fp16", "pre_steps": 8,
                               "pull_threshold": "auto", "partition_bytes": 1024, "encode_threads": 2, "timeout_s": 2.5,
                               "same_host": "ipc", "emulate_link": "100mbit", "emulate_latency_ms": 3,
                               "remeasure_every": 12, "grad_scale": 32, "threshold_table": "t.json", "staleness": 3})
    assert (made.scheduler_address, made.num_workers, made.num_servers, made.wanted_rank, made.job_id) == (
        "tcp://10.0.0.1:9091", 4, 2, -1, "slimps")
    assert (made.compression, made.fixed_threshold_bytes, made.pull_compression, made.fixed_pull_threshold_bytes) == (
        "1bit", 4096, "fp16", None)
    assert (made.pre_steps, made.partition_bytes, made.encode_threads, made.timeout_s) == (8, 1024, 2, 2.5)
    assert (made.same_host, made.emulate_link_bytes_per_second) == ("ipc", 12.5e6)
    assert made.emulate_link_latency_s == pytest.approx(3e-3)
    assert (made.remeasure_every, made.grad_scale, made.threshold_table_file, made.staleness) == (12, 32.0, "t.json", 3)


def test_without_options_the_stores_own_hold():
    made = _options.make(JOB, {})
    assert (made.compression, made.fixed_threshold_bytes, made.partition_bytes, made.same_host) == (
        "none", None, 4 << 20, "shm")


@pytest.mark.parametrize("option, value, complaint", [
    ("compresion", "1bit", "create: no option compresion; there are compression, "),
    ("threshold", -1, "threshold: expected \"auto\" or a number of bytes from 0, got -1"),
    ("threshold", "some", "threshold: expected \"auto\""),
    ("threshold", True, "threshold: expected \"auto\""),
    ("pre_steps", 3, "pre_steps: expected an int from 4 to 1000000, got 3"),
    ("partition_bytes", 2.5, "partition_bytes: expected an int"),
    ("timeout_s", 0, "timeout_s: expected a number from 0.001"),
    ("timeout_s", float("nan"), "timeout_s: expected a number"),
    ("emulate_link", "fast", "emulate_link: expected a rate as"),
    ("emulate_link", "0mbit", "emulate_link: expected a rate as"),
    ("same_host", "udp", "same_host: expected shm, ipc or tcp, got 'udp'"),
    ("compression", 1, "compression: expected a str, got 1"),
])
def test_options_that_make_no_sense_are_named(option, value, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        _options.make(JOB, {option: value})


@pytest.mark.parametrize("text, bytes_per_second", [
    ("8kbit", 1e3), ("1gbit", 125e6), ("12.5MB", 12.5e6), ("1GB", 1e9), ("64kB", 64e3)])
def test_rates(text, bytes_per_second):
    assert _options.rate("emulate_link", text) == bytes_per_second
