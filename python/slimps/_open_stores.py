# SPDX-License-Identifier: Apache-2.0
"""This process's open stores.

When Python ends, they are closed; after an uncaught exception, they are aborted.
SystemExit does not abort them: when Python ends, the argument of sys.exit() is no longer known.
A child of multiprocessing ends otherwise, with its exception still at hand.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref
from typing import TYPE_CHECKING, List, Optional

from slimps import _end_report
from slimps.errors import FailedPreconditionError

if TYPE_CHECKING:
    from slimps._job import Job
    from slimps._kvstore import KVStore

_open: "weakref.WeakSet[KVStore]" = weakref.WeakSet()


def add(store: "KVStore") -> None:
    _open.add(store)
    # Whoever runs in a child has these modules loaded.
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # A child that was forked in an `except` clause has the parent's exception.
        handled = (sys.exc_info()[1],)
        sys.modules["multiprocessing.util"].Finalize(None, _close_all, handled, exitpriority=0)


def discard(store: "KVStore") -> None:
    _open.discard(store)


def distributed() -> "List[KVStore]":
    """Returns the open stores that belong to a job."""
    return [store for store in _open if not store.is_local]


def check_none_of(job: "Job") -> None:
    """Raises FailedPreconditionError if this process has a store of `job`.

    A process is one worker of a job, with one store.
    """
    for store in distributed():
        if store.job is not None and (store.job.scheduler, store.job.job_id) == (
            job.scheduler,
            job.job_id,
        ):
            raise FailedPreconditionError(
                "create: this process has a %s store of the job at %s already, as worker %d of %d; "
                "expected that one to be used (DistributedOptimizer, CommHookState and "
                "broadcast_parameters take store=), or closed before"
                % (store.type, job.scheduler, store.rank, store.num_workers)
            )


def abort_for(store: "KVStore", error: BaseException) -> None:
    """Aborts and closes `store`; the other workers are told `error`.

    Errors of doing so are dropped, since `error` is being raised already.
    """
    why = "worker %d: %s: %s" % (store.rank, type(error).__name__, error)
    with contextlib.suppress(Exception):
        # As text that the library takes: without NUL and halves of surrogate pairs.
        store.abort(why.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0"))
    with contextlib.suppress(Exception):
        store.close()


def _close_all(handled: Optional[BaseException] = None) -> None:
    """Runs at the end of Python, so that no other worker waits for this one."""
    uncaught = sys.exc_info()[1]  # of a child
    if uncaught is handled:
        uncaught = None
    if isinstance(uncaught, SystemExit):  # torch's children turn errors into this
        uncaught = (uncaught.__context__ or uncaught) if uncaught.code else None
    elif uncaught is None and not hasattr(sys, "ps1"):
        uncaught = getattr(sys, "last_value", None)
    if uncaught is not None:
        _end_report.write(uncaught)  # first: the launcher then knows it before others are told
    for store in list(_open):
        if uncaught is not None:
            abort_for(store, uncaught)
            continue
        try:
            store.close()
        except Exception as error:
            print("slimps: closing the store: %s" % error, file=sys.stderr)


atexit.register(_close_all)
# A forked child has none of the store's threads.
os.register_at_fork(after_in_child=_open.clear)
