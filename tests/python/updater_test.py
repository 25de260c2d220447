# SPDX-License-Identifier: Apache-2.0
"""Updaters of local stores: functions of the user that step in an optimizer's place."""

import gc
import signal
import sys
import threading
import weakref

import numpy as np
import pytest
import slimps
from slimps.native import calls


@pytest.fixture
def store():
    with slimps.kv.create("local") as made:
        yield made


def pulled(store, key, shape):
    out = np.full(shape, np.nan, dtype=np.float32)
    store.pull(key, out=out)
    return out


def test_an_updater_changes_the_weight_in_place_once_per_push_and_key(store):
    seen = []

    def updater(key, gradient, weight):
        seen.append((key, gradient.shape, float(gradient.sum())))
        weight += 2 * gradient

    store.set_updater(updater)
    store.init([1, 2], [np.ones((2, 2), np.float32), np.zeros(3, np.float32)])
    store.push([1, 2], [[np.ones((2, 2), np.float32)] * 2, np.ones(3, np.float32)])
    assert seen == [(1, (2, 2), 8.0), (2, (3,), 3.0)]
    assert (pulled(store, 1, (2, 2)) == 5).all()
    assert (pulled(store, 2, 3) == 2).all()
    store.set_updater(None)
    store.push(2, np.full(3, 9, np.float32))
    assert (pulled(store, 2, 3) == 9).all()


def test_text_keys_reach_the_updater_as_they_are(store):
    keys = []
    store.set_updater(lambda key, gradient, weight: keys.append(key))
    store.init("i:5", np.zeros(1, np.float32))
    store.push("i:5", np.ones(1, np.float32))
    assert keys == ["i:5"]


@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt, slimps.NotFoundError])
def test_what_an_updater_raises_push_raises_and_the_store_lives_on(store, kind):
    error = kind("no rate")
    error.__cause__ = ValueError("the reason")

    def updater(key, gradient, weight):
        raise error

    store.init("w", np.zeros(2, np.float32))
    store.set_updater(updater)
    for push in (store.push, store.pushpull):
        with pytest.raises(kind) as raised:
            push("w", np.ones(2, np.float32))
        assert raised.value is error and isinstance(error.__cause__, ValueError)
    store.set_updater(lambda key, gradient, weight: np.add(weight, gradient, out=weight))
    store.push("w", np.ones(2, np.float32))
    assert (pulled(store, "w", 2) == 1).all()


def test_what_an_updater_gets_is_its_to_keep(store):
    kept = {}

    def momentum(key, gradient, weight):
        kept.setdefault(key, []).extend([gradient, weight])
        weight += gradient
        gradient *= 2  # the updater may change it

    store.init("w", np.zeros(2, np.float32))
    store.set_updater(momentum)
    pushed = np.ones(2, np.float32)
    store.push("w", pushed)
    store.push("w", pushed)
    assert (pushed == 1).all() and (pulled(store, "w", 2) == 2).all()
    store.close()
    assert [float(array[0]) for array in kept["w"]] == [2, 1, 2, 2]


def test_an_updater_that_fails_half_way_has_changed_nothing(store):
    def updater(key, gradient, weight):
        weight += 5
        raise LookupError("half way")

    store.init("w", np.ones(2, np.float32))
    store.set_updater(updater)
    with pytest.raises(LookupError, match="half way"):
        store.push("w", np.ones(2, np.float32))
    assert (pulled(store, "w", 2) == 1).all()
    store.push_nothing("w")  # no push, so no call of the updater


def test_a_store_whose_updater_holds_it_is_freed():
    store = slimps.kv.create("local")
    store.set_updater(lambda key, gradient, weight, store=store: None)
    gone = weakref.ref(store)
    store.close()
    del store
    gc.collect()
    assert gone() is None


def test_totals_do_not_wait_for_an_updater_that_waits_for_python(store):
    running, go = threading.Event(), threading.Event()

    def updater(key, gradient, weight):
        running.set()
        go.wait(60)

    store.init("w", np.zeros(2, np.float32))
    store.set_updater(updater)
    pusher = threading.Thread(target=store.push, args=("w", np.ones(2, np.float32)))
    pusher.start()
    assert running.wait(60)
    watcher = threading.Thread(target=store.totals)
    watcher.start()  # waits for the push, and lets Python run
    go.set()
    pusher.join(60)
    watcher.join(60)
    assert not pusher.is_alive() and not watcher.is_alive()


class Alarm(Exception):
    pass


def test_a_signal_at_any_moment_of_a_push_is_raised_as_it_is(store):
    """Also where it comes between the library and the updater's own code."""

    def ring(number, frame):
        raise Alarm

    store.init("w", np.zeros(4, np.float32))
    store.set_updater(lambda key, gradient, weight: np.add(weight, gradient, out=weight))
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(300):
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * number)
                while True:
                    store.push("w", np.ones(4, np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not store._store._updating.threads
    store.push("w", np.ones(4, np.float32))


def test_what_ctypes_drops_is_raised(store, monkeypatch):
    """As a signal's handler would that runs at the callback's end, once the update is done."""

    class Threads(set):
        def discard(self, thread):
            set.discard(self, thread)
            if sys._getframe(1).f_code.co_name == "call":
                raise Alarm

    store.init("w", np.zeros(4, np.float32))
    store.set_updater(lambda key, gradient, weight: np.add(weight, gradient, out=weight))
    monkeypatch.setattr(store._store._updating, "threads", Threads())
    with pytest.raises(Alarm):
        store.push("w", np.ones(4, np.float32))


def test_what_python_drops_while_it_frees_an_earlier_call_is_raised(store, monkeypatch):
    def interrupted(call):
        del call
        raise Alarm

    interrupted.__qualname__ = calls.Call.__del__.__qualname__
    monkeypatch.setattr(calls.Call, "__del__", interrupted)
    store.init("w", np.zeros(4, np.float32))
    store.set_updater(lambda key, gradient, weight: calls.Call() and None)
    with pytest.raises(Alarm):
        store.push("w", np.ones(4, np.float32))
    monkeypatch.undo()
    store.set_updater(lambda key, gradient, weight: None)
    store.push("w", np.ones(4, np.float32))


def test_an_updater_must_not_call_its_store(store):
    refused = []

    def updater(key, gradient, weight):
        del key, gradient, weight
        rows = slimps.RowSparse([0], np.ones((1, 2), np.float32), (3, 2))
        for call in (
            lambda: store.push("w", rows),
            store.optimizer_states,
            store.wait,
            lambda: store.row_sparse_pull("w", rows, row_ids=[0]),
            lambda: store.push("w", np.ones((3, 2), np.float32)),
            lambda: store.set_updater(None),
        ):
            with pytest.raises(
                slimps.FailedPreconditionError, match="an updater must not call its store"
            ):
                call()
            refused.append(1)

    store.init("w", np.zeros((3, 2), np.float32))
    store.set_updater(updater)
    store.push("w", np.ones((3, 2), np.float32))
    assert len(refused) == 6
    store.push("w", [np.ones((3, 2), np.float32)] * 2)  # the store lives on


def test_nor_through_another_stores_updater(store):
    refused = []
    ones = np.ones((3, 2), np.float32)
    rows = slimps.RowSparse([0], np.ones((1, 2), np.float32), (3, 2))

    def inner(key, gradient, weight):
        del key, gradient, weight
        with pytest.raises(
            slimps.FailedPreconditionError, match="an updater must not call its store"
        ):
            store.push("w", ones)
        refused.append(1)

    with slimps.kv.create("local") as other:
        for each in (store, other):
            each.init("w", ones)
        other.set_updater(inner)
        store.set_updater(
            lambda key, gradient, weight: (other.push("w", ones), other.push("w", rows))
        )
        store.push("w", ones)
    assert len(refused) == 2
