# SPDX-License-Identifier: Apache-2.0
"""Calls that wait: several at once, what is lent to them, and what is left of them."""

import gc
import os
import select
import signal
import threading
import weakref

import jobs
import numpy as np
import pytest
from eventually import eventually

import slimps
from slimps.native import calls
from slimps.native import completions as completions_library
from slimps.native import store as store_library

ONES = np.ones(4, np.float32)


@pytest.fixture(name="other")
def another_worker():
    """The job of this worker and another one, which pushes "w" when it is told to."""
    with jobs.Daemons(2, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=2, num_servers=1, rank=0)
        job.start_scenario(1, "waiting", "give_when_told")
        yield job


def open_store(job):
    store = slimps.kv.create("dist_sync", timeout_s=120)
    store.init(["w", "v"], [ONES, ONES])
    store.push("w", ONES)
    job.wait_for_line("worker1", "waiting")
    return store


def let_give(job, store):
    """Makes the other worker push, and does its barrier with it."""
    job.kill("worker1", signal.SIGUSR1)
    store.barrier()


def under_way(count):
    assert eventually(lambda: len(calls._lent) == count), calls._lent


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_several_threads_wait_at_once(other):
    with open_store(other) as store:
        outs = [np.zeros(4, np.float32) for _ in range(2)]
        threads = [threading.Thread(target=store.pull, args=("w", out)) for out in outs]
        threads.append(threading.Thread(target=store.barrier))
        for thread in threads:
            thread.start()
        under_way(3)
        other.kill("worker1", signal.SIGUSR1)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert all((out == 2).all() for out in outs)
        under_way(0)


def test_arrays_live_as_long_as_a_call_needs_them(other):
    with open_store(other) as store:
        whole, pulled, ended = np.zeros(4, np.float32), [], threading.Event()
        out = whole[:]
        gone = weakref.ref(out)
        store.pull_then("w", out, lambda error: (pulled.append(error), ended.set()))
        del out
        gc.collect()
        assert gone() is not None and not ended.is_set()
        let_give(other, store)
        assert ended.wait(60) and pulled == [None]
        assert (whole == 2).all()
        assert eventually(lambda: gone() is None)


class Interrupted(Exception):
    pass


def interrupted_pull(store, out):
    """Pulls until a signal's handler raises."""

    def interrupt(number, frame):
        raise Interrupted

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR2, interrupt)
    sender = threading.Thread(
        target=lambda: (under_way(1), signal.pthread_kill(main, signal.SIGUSR2))
    )
    try:
        sender.start()
        with pytest.raises(Interrupted):
            store.pull("w", out)
        sender.join(60)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_what_a_call_uses_that_does_not_end_is_kept(other, monkeypatch):
    with open_store(other) as store:
        monkeypatch.setattr(calls, "PATIENCE_MS", 1)
        monkeypatch.setattr(store._store, "interrupt", lambda: None)  # it is not aborted
        whole = np.zeros(4, np.float32)
        out = whole[:]
        gone = weakref.ref(out)
        interrupted_pull(store, out)
        del out
        gc.collect()
        assert gone() is not None
        let_give(other, store)
        assert eventually(lambda: (whole == 2).all()), "the call goes on"
        [call] = calls._lent
        call.finish()
        gc.collect()
        assert gone() is None


def raising_behind(function):
    """Returns a function that does the same and is then interrupted."""

    def run(*arguments):
        function(*arguments)
        raise Interrupted

    return run


EPOLL = select.epoll


class HeldEpoll:
    """An epoll whose poll() holds what has ended back until it is let go."""

    def __init__(self, let_go):
        self._epoll = EPOLL()
        self._let_go = let_go
        self.register, self.unregister = self._epoll.register, self._epoll.unregister
        self.close = self._epoll.close

    def poll(self):
        ended = self._epoll.poll()
        assert self._let_go.wait(60)
        return ended


@pytest.mark.parametrize("is_held", [False, True])
def test_a_pull_whose_start_is_interrupted_harms_no_other(other, monkeypatch, is_held):
    let_go = threading.Event()
    if is_held:
        monkeypatch.setattr(completions_library.select, "epoll", lambda: HeldEpoll(let_go))
    with open_store(other) as store:
        ends, ended = [], threading.Event()
        store.pull_then("w", ONES.copy(), lambda error: (ends.append(error), ended.set()))
        with monkeypatch.context() as patch:
            for each in (store_library.lib, store_library.at_once):
                patch.setattr(each, "slimps_pull", raising_behind(each.slimps_pull))
            with pytest.raises(Interrupted):
                store.pull_then("w", ONES.copy(), ends.append)
        let_go.set()
        assert ended.wait(60), "the thread lives on"
        assert isinstance(ends[0], slimps.Error), "the store was aborted"
        assert completions()
        under_way(0)


def test_a_create_that_is_interrupted_leaves_nothing(monkeypatch):
    create = store_library.lib.slimps_create_in_background
    monkeypatch.setattr(store_library.lib, "slimps_create_in_background", raising_behind(create))
    gc.collect()
    before = descriptors()
    with pytest.raises(Interrupted):
        slimps.kv.create("local")
    under_way(0)
    gc.collect()
    assert descriptors() == before


def test_a_closed_store_starts_no_pull():
    with slimps.kv.create("local") as store:
        store.init("w", ONES)
    with pytest.raises(slimps.FailedPreconditionError, match="closed"):
        store.pull_then("w", ONES.copy(), print)
    assert not completions()


def test_threads_that_end_leave_nothing():
    before = descriptors()
    with jobs.lone_store() as store:
        store.init("w", ONES)
        store.barrier()
        with_one_thread = descriptors()
        for _ in range(10):
            thread = threading.Thread(target=store.barrier)
            thread.start()
            thread.join(60)
        assert descriptors() == with_one_thread
    del store
    gc.collect()
    assert eventually(lambda: descriptors() <= before), descriptors()


def completions():
    return [one for one in threading.enumerate() if one.name == "slimps completions"]


def test_a_store_that_nobody_has_any_more_ends_its_pulls(other):
    store = open_store(other)
    errors, ended = [], threading.Event()
    store.pull_then("w", ONES.copy(), lambda error: (errors.append(error), ended.set()))
    assert completions()
    del store
    gc.collect()
    assert ended.wait(60)
    assert isinstance(errors[0], slimps.Error), errors
    assert eventually(lambda: not completions())


def test_what_a_pulls_callback_raises_is_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda hooked: shown.append(hooked.exc_value))
    error = LookupError("in done")

    def done(failed):
        raise error

    with slimps.kv.create("local") as store:
        store.init("w", ONES)
        store.pull_then("w", ONES.copy(), done)
    assert shown == [error]


def test_a_forked_child_frees_nothing():
    with jobs.Daemons(1, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=1, num_servers=1)
        store = slimps.kv.create("dist_sync")
        store.init("w", ONES)
        child = os.fork()
        if child == 0:
            del store
            gc.collect()
            os._exit(7)
        ends = []
        assert eventually(lambda: ends.append(os.waitpid(child, os.WNOHANG)) or ends[-1][0])
        assert os.waitstatus_to_exitcode(ends[-1][1]) == 7
        store.pushpull("w", ONES.copy())
        store.close()


@pytest.mark.parametrize("end, code", [("end", 0), ("end_by_exit", 0), ("end_by_exception", 1)])
def test_python_ends_with_pulls_under_way(end, code):
    with jobs.Daemons(2, 1) as job:
        job.start_scenario(0, "waiting", "give_when_told")
        job.start_scenario(1, "waiting", end)
        assert job.wait_for_end(["worker1"]) == {"worker1": code}, job.output("worker1")
        said = job.output("worker1")
        assert "done was called" in said, said
        assert ("LookupError: no more data" in said) == (code == 1), said
