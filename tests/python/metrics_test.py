# SPDX-License-Identifier: Apache-2.0
"""Workers that export their own metrics, by SLIMPS_METRICS_PORT."""

import re
import socket
import threading

import pytest

import jobs
import slimps
from filled import expect, full
from slimps import _job, _options

JOB = {"scheduler": "127.0.0.1:1", "num_workers": 1, "num_servers": 1}


def push_two_keys_in_three_rounds():
    store = slimps.kv.create("dist_sync")
    store.init(["a", "b"], [full(0), full(0)])
    for _ in range(3):
        store.push(["a", "b"], [full(1), full(2)])
        expect(store, "a", 2)
        expect(store, "b", 4)
    print("pushed", flush=True)
    threading.Event().wait()  # until the test kills this process


def test_each_worker_exports_what_it_has_pushed(monkeypatch):
    monkeypatch.setenv("SLIMPS_METRICS_PORT", "0")
    with jobs.Daemons(2, 1) as job:
        for rank in range(2):
            job.start_scenario(rank, "metrics_test")
        for rank in range(2):
            job.wait_for_line("worker%d" % rank, "pushed\n")
            text = job.metrics_of("worker%d" % rank)
            worker = 'role="worker",rank="%d"' % rank
            assert set(re.findall(r'role="\w+",rank="\d+"', text)) == {worker}
            assert "slimps_round{%s} 3\n" % worker in text
            assert "slimps_pushes_total{%s} 6\n" % worker in text
            # 3 rounds of 2 keys of 12 elements of 4 bytes.
            assert 'slimps_raw_bytes_total{%s,direction="push"} 288\n' % worker in text


def test_a_port_in_use_is_named_with_its_variable(monkeypatch):
    with socket.socket() as taken, jobs.Daemons(1, 1) as job:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("SLIMPS_METRICS_PORT", str(port))
        slimps.init(**{**JOB, "scheduler": "127.0.0.1:%d" % job.port})
        complaint = r"metrics_port=%d \(SLIMPS_METRICS_PORT\), .*: Address already in use" % port
        with pytest.raises(slimps.UnavailableError, match=complaint):
            slimps.kv.create("dist_sync")
        assert job.wait_for_end(["server0"]) != {"server0": 0}, "the job goes on"


@pytest.mark.parametrize(
    "value, complaint",
    [
        ("any", "SLIMPS_METRICS_PORT=any: expected a number"),
        ("65536", "SLIMPS_METRICS_PORT: expected -1 to 65535, got 65536"),
    ],
)
def test_a_value_that_is_no_port_is_named(monkeypatch, value, complaint):
    monkeypatch.setattr(_job, "_job", None)
    for name in ("DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "127.0.0.1")
    monkeypatch.setenv("SLIMPS_METRICS_PORT", value)
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        slimps.kv.create("dist_sync")


def test_an_option_counts_before_the_environment():
    found = {"SLIMPS_METRICS_PORT": "9101", "SLIMPS_WATCH_BIND": "::1"}
    job = _job.read(found, **JOB)
    names = ("metrics_port", "watch_bind")
    options = _options.make(job, {})
    assert [options.get(name) for name in names] == ["9101", "::1"]
    options = _options.make(job, {"metrics_port": 0, "watch_bind": "127.0.0.1"})
    assert [options.get(name) for name in names] == ["0", "127.0.0.1"]
    assert _options.make(_job.read({}, **JOB), {}).get("metrics_port") == "-1"


if __name__ == "__main__":
    push_two_keys_in_three_rounds()
