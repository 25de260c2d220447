# SPDX-License-Identifier: Apache-2.0
"""A worker that waits for something that never comes, until it is interrupted: waiting.py WHAT.

No call here ends by itself within the test's patience: the store's own deadline is minutes away.
"""

import contextlib
import multiprocessing
import signal
import sys
import threading
import time

import numpy as np
import slimps

ONES = np.ones(4, np.float32)


def open_store():
    return slimps.kv.create("dist_sync", timeout_s=600)


def interrupted(call, kind=KeyboardInterrupt):
    """Runs `call`, which a signal must end."""
    print("waiting", flush=True)
    try:
        call()
    except kind:
        print("interrupted", flush=True)
        return
    raise AssertionError("it did not wait")


def with_store(call, kind=KeyboardInterrupt):
    """An interrupted store closes without complaint, and refuses later calls."""
    store = open_store()
    store.init(["w", "v"], [ONES, ONES])
    interrupted(lambda: call(store), kind)
    store.close()
    try:
        store.push("w", ONES)
    except slimps.FailedPreconditionError as error:
        assert "closed" in str(error), error
        print("closed", flush=True)


def pull(store):
    store.push("w", ONES)
    store.pull("w", out=np.zeros(4, np.float32))


def pull_with_a_handler(store):
    """A handler that does not raise lets the wait go on, and may call the store itself. A handler
    that raises ends the wait."""

    def handle(number, frame):
        store.push("v", ONES)
        store.wait()
        print("handled", flush=True)

    def give_up(number, frame):
        raise LookupError("given up")

    signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGUSR2, give_up)
    pull(store)


def idle():
    """At Ctrl-C the worker is not in a call of the store, and has no handler."""
    store = open_store()
    store.init(["w", "v"], [ONES, ONES])
    print("waiting", flush=True)
    while True:
        time.sleep(0.1)  # pause() would miss a signal just before it


def give_when_told():
    """The other worker of a test, which pushes once it gets SIGUSR1."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with open_store() as store:
        store.init(["w", "v"], [ONES, ONES])
        print("waiting", flush=True)
        signal.sigwait([signal.SIGUSR1])
        store.push("w", ONES)
        store.barrier()


def end_with_pulls(end):
    """Python ends while a pull, and a thread's pull, are under way."""
    store = open_store()
    store.init(["w", "v"], [ONES, ONES])
    store.push(["w", "v"], [ONES, ONES])
    store.pull_then(
        "w", np.zeros(4, np.float32), lambda error: print("done was called", flush=True)
    )
    threading.Thread(target=pull_in_vain, args=(store,), daemon=True).start()
    end()


def pull_in_vain(store):
    # A traceback that a daemon thread prints while Python ends would end Python.
    with contextlib.suppress(slimps.Error):
        store.pull("v", np.zeros(4, np.float32))


def fail_with_words_that_c_cannot_take():
    with open_store() as store:
        store.init(["w", "v"], [ONES, ONES])
        raise LookupError("bad record \0 \udcff")


def in_child(method, target, *arguments):
    """The store is that of a child, and this process ends well."""
    child = multiprocessing.get_context(method).Process(target=target, args=arguments)
    child.start()
    child.join()


def exit_by_3():
    sys.exit(3)


def fail():
    raise LookupError("no more data")


def told(call):
    """The other worker. It waits for something else, and learns why it waits in vain."""
    store = open_store()
    store.init(["w", "v"], [ONES, ONES])
    try:
        call(store)
    except slimps.Error as error:
        print("told: %s" % error, flush=True)


WHAT = {
    "create": lambda: interrupted(open_store),
    "pull": lambda: with_store(pull),
    "pushpull": lambda: with_store(lambda store: store.pushpull("w", ONES.copy())),
    "pushpull_list": lambda: with_store(
        lambda store: store.pushpull(["w", "v"], [ONES.copy(), ONES.copy()])
    ),
    "barrier": lambda: with_store(lambda store: store.barrier()),
    "init": lambda: with_store(lambda store: store.init("new", ONES)),
    "handler": lambda: with_store(pull_with_a_handler, LookupError),
    "idle": idle,
    "fail": fail_with_words_that_c_cannot_take,
    "fail_in_fork": lambda: in_child("fork", end_with_pulls, fail),
    "fail_in_spawn": lambda: in_child("spawn", end_with_pulls, fail),
    "exit_in_fork": lambda: in_child("fork", end_with_pulls, exit_by_3),
    "give_when_told": give_when_told,
    "end": lambda: end_with_pulls(lambda: None),
    "end_by_exit": lambda: end_with_pulls(sys.exit),
    "end_by_exception": lambda: end_with_pulls(fail),
    "told_at_barrier": lambda: told(lambda store: store.barrier()),
    "told_at_pull": lambda: told(pull),
    "leave": lambda: open_store().close(),
}

if __name__ == "__main__":
    WHAT[sys.argv[1]]()
