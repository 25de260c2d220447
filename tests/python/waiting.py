# SPDX-License-Identifier: Apache-2.0
"""A worker that waits for something that never comes, until it is interrupted: waiting.py WHAT.

No call here ends by itself within the test's patience: the store's own deadline is minutes away.
"""

import signal
import sys

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
    """A handler that does not raise lets the wait go on. A handler that raises ends it."""

    def handle(number, frame):
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
    signal.pause()
    store.close()


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
    "told_at_barrier": lambda: told(lambda store: store.barrier()),
    "told_at_pull": lambda: told(pull),
    "leave": lambda: open_store().close(),
}

if __name__ == "__main__":
    WHAT[sys.argv[1]]()
