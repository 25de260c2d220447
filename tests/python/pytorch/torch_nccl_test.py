# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer(node_first=...) of workers with GPUs, which add up gradients over NCCL.

Where there are no two GPUs, gloo stands in for NCCL (torch_nccl_scenarios.py).
"""

import gc
import os
import signal
import threading
import types
from unittest import mock

import jobs
import numpy as np
import pytest
import slimps
import torch
from slimps import native
from slimps.pytorch import gpu, node, node_exchange, node_group

FAKE = os.path.abspath("tests/worker/device/cuda/fake_libcuda")
NO_GPU = node_group.NO_GPU

needs_nccl = pytest.mark.skipif(
    torch.cuda.device_count() < 2
    or node_group.gpu_for_nccl([torch.zeros(1, device="cuda")]) == NO_GPU,
    reason="needs two GPUs, and a torch from 2.6 on with NCCL",
)


@pytest.fixture(name="fake_libcuda")
def set_fake_libcuda(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)


@pytest.mark.usefixtures("fake_libcuda")
def test_sums_on_gpus_are_those_on_the_host():
    jobs.run("torch_nccl_scenarios", "sums_on_gpus_are_those_on_the_host", workers=4)


@pytest.mark.usefixtures("fake_libcuda")
@pytest.mark.parametrize(
    "sizes, gpus, expected",
    [("3+1", "0 1 2 -1", "nccl"), ("2+2", "0 1 1 -1", "gloo"), ("2+2", "0 1 1 1", "gloo")],
    ids=["one_alone_without", "one_without", "two_on_one_gpu"],
)
def test_all_workers_choose_the_same(sizes, gpus, expected):
    jobs.run(
        "torch_nccl_scenarios", "all_workers_choose_the_same", sizes, gpus, expected, workers=4
    )


@pytest.mark.usefixtures("fake_libcuda")
def test_a_lost_member_is_an_error():
    said = jobs.run("torch_nccl_scenarios", "a_member_is_lost", "stand-in", workers=4)
    assert "lost: node_first: worker 2 waited for" in said[2], said


@needs_nccl
def test_a_lost_member_of_nccl_is_an_error():
    said = jobs.run("torch_nccl_scenarios", "a_member_is_lost", "nccl", workers=2)
    assert "lost: node_first: worker 0 waited for" in said[0], said


@needs_nccl
def test_nccl_sums_as_gloo():
    jobs.run("torch_nccl_scenarios", "nccl_sums_as_gloo", workers=2)


@pytest.mark.parametrize(
    "sizes, gpus, can",
    [
        ([2, 2], [5, 6, 6, 5], True),
        ([1, 3], [NO_GPU, 1, 2, 3], True),
        ([2, 2], [5, 6, 7, 7], False),
        ([2, 2], [5, 6, 7, NO_GPU], False),
    ],
)
def test_nccl_needs_a_gpu_for_each_worker_of_a_node(sizes, gpus, can):
    assert node_group.nccl_can(sizes, gpus) == can


def test_tensors_on_the_cpu_have_no_gpu():
    assert node_group.gpu_for_nccl([torch.zeros(1)]) == NO_GPU


def test_gpus_are_told_apart_by_their_uuids(monkeypatch):
    def number_of(*devices):
        return node_group.gpu_for_nccl([types.SimpleNamespace(device=one) for one in devices])

    uuids = {"cuda:0": "one", "cuda:1": "two", "cuda:2": "one"}
    work = types.SimpleNamespace(get_future_result=None)
    monkeypatch.setattr(torch.distributed, "Work", work)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(gpu, "is_on", lambda tensor: tensor.device != "cpu")
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: types.SimpleNamespace(
            **({"uuid": uuids[device]} if device in uuids else {})
        ),
    )
    assert number_of("cuda:0", "cuda:0") == number_of("cuda:2") != NO_GPU
    assert number_of("cuda:1") not in (number_of("cuda:0"), NO_GPU)
    for none in (["cuda:0", "cpu"], ["cuda:0", "cuda:1"], ["cuda:3"], ["cpu"], []):
        assert number_of(*none) == NO_GPU, none
    del work.get_future_result  # as before torch 2.6, where failed work raises no error
    assert number_of("cuda:0") == NO_GPU


def test_torchs_watchdog_waits_longer_than_the_store(monkeypatch):
    made = mock.Mock()
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", made, raising=False)
    group = node_group.nccl("store", 1, 2, 30.0)
    assert group == made.return_value
    made.assert_called_once_with("store", 1, 2, made.Options.return_value)
    assert made.Options.return_value._timeout.total_seconds() > 30.0


class Endless:
    """Work over NCCL whose other members are gone."""

    def is_completed(self):
        return False


class Failed:
    """What NCCL has an error of: a group whose work does not start, and work that has."""

    def is_completed(self):
        return True

    def fail(self, *_):
        raise RuntimeError("NCCL error: remote process exited\nLast error: ...")

    reduce = broadcast = wait = abort = fail


def node_over_nccl(timeout_s, group=None):
    store = types.SimpleNamespace(rank=1, timeout_s=timeout_s)
    return node.Node(store, group or mock.Mock(), 0, 0.5, torch.device("cuda"))


def check_ended(over_nccl):
    with pytest.raises(slimps.FailedPreconditionError, match="an earlier step of this worker fail"):
        over_nccl.sum(torch.zeros(1))


def test_a_wait_for_nccl_ends_after_the_timeout():
    waits = node_over_nccl(timeout_s=0.05)
    with pytest.raises(slimps.UnavailableError, match="led by worker 0: not done after 0.05 s"):
        waits.wait(Endless())
    check_ended(waits)


@pytest.mark.parametrize("call", ["sum", "share", "wait"])
def test_an_error_of_nccl_says_who_was_waited_for(call):
    fails = node_over_nccl(60.0, Failed())
    with pytest.raises(slimps.UnavailableError, match="by worker 0: NCCL error: remote .* exited$"):
        getattr(fails, call)(Failed() if call == "wait" else torch.zeros(1))
    check_ended(fails)


def test_ctrl_c_ends_a_wait_for_nccl():
    waits = node_over_nccl(timeout_s=60.0)
    main = threading.get_ident()
    threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        waits.wait(Endless())
    check_ended(waits)


@pytest.fixture(name="group")
def nccls_group():
    return mock.Mock(spec=["abort", "shutdown"])


def test_close_ends_the_group_in_order_and_once(group):
    over_nccl = node_over_nccl(60.0, group)
    over_nccl.close()
    over_nccl.close()
    del over_nccl
    gc.collect()
    assert group.mock_calls == [mock.call.shutdown()]


def test_a_group_that_nobody_closed_is_aborted(group):
    node_over_nccl(60.0, group)
    gc.collect()
    assert group.mock_calls == [mock.call.abort()]


def test_a_failed_group_is_aborted_at_once(group):
    over_nccl = node_over_nccl(60.0, group)
    with pytest.raises(slimps.UnavailableError):
        over_nccl.wait(Failed())
    assert group.mock_calls == [mock.call.abort()]
    over_nccl.close()
    assert group.mock_calls == [mock.call.abort()]


def test_a_close_does_not_wait_for_ever_for_the_others(group):
    never = threading.Event()
    group.shutdown.side_effect = never.wait
    over_nccl = node_over_nccl(0.05, group)
    over_nccl.close()
    assert not never.is_set()
    del over_nccl
    gc.collect()
    assert group.mock_calls == [mock.call.shutdown()], "which still runs"
    never.set()


def test_a_close_that_fails_aborts_the_group(group):
    group.shutdown.side_effect = RuntimeError("NCCL error")
    node_over_nccl(60.0, group).close()
    assert group.mock_calls == [mock.call.shutdown(), mock.call.abort()]


class Stream:
    """A stream of a GPU, which notes whom it waits for."""

    def __init__(self):
        self.awaited = []

    def wait_stream(self, other):
        self.awaited.append(other)


def exchange_of_a_lone_worker(monkeypatch, count):
    alone = node.Node(types.SimpleNamespace(rank=0), None, 0, 0.5, torch.device("cpu"))
    monkeypatch.setattr(alone, "leave_rounds_to_leader", lambda: None)
    names = ["w%d" % index for index in range(count)]
    weights = [np.ones(3, np.float32) for _ in names]
    settings = native.ExchangeSettings()
    return node_exchange.NodeExchange(mock.Mock(), alone, names, weights, settings)


def test_a_sum_awaits_each_stream_that_made_a_gradient_of_it(monkeypatch):
    first, second, third = streams = [Stream() for _ in range(3)]
    exchange = exchange_of_a_lone_worker(monkeypatch, count=3)
    for step in (1, 2):
        exchange.begin_step()
        for index, stream in reversed(list(enumerate(streams))):
            monkeypatch.setattr(gpu, "current_stream", lambda tensor, stream=stream: stream)
            exchange.on_gradient(index, torch.ones(3))
        exchange.end_step()
        assert sorted(map(id, first.awaited)) == sorted(step * [id(second), id(third)])
        assert not second.awaited and not third.awaited


def test_each_gpu_has_one_side_stream(monkeypatch):
    made = mock.Mock(side_effect=lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "Stream", made)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    tensors = [types.SimpleNamespace(device=torch.device("cuda", one)) for one in (0, 1, 0)]
    gpu._side_stream.cache_clear()
    found = [gpu.beside_other_work(tensor) for tensor in tensors]
    gpu._side_stream.cache_clear()
    assert found[0] is found[2] is not found[1] and made.call_count == 2


def test_a_worker_alone_on_its_node_copies_no_weights(monkeypatch):
    exchange = exchange_of_a_lone_worker(monkeypatch, count=1)
    with mock.patch.object(torch.Tensor, "copy_") as copied:
        exchange.begin_step()
    copied.assert_not_called()
