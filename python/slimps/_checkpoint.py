# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a whole job: the part of KVStore that saves and loads them.

SLIMPS_CHECKPOINT   the folder for the job's checkpoints, each in its step-000000100
SLIMPS_RESUME       the checkpoint that the job goes on from; "" or not set: it begins anew

`slimps launch --checkpoint DIR` sets both.
"""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple, Union

from slimps import _gradient_treatment

_KEPT = 2
_PREFIX = "step-"


class LoadedCheckpoint(NamedTuple):
    """What KVStore.load found."""

    rounds: int  # of the key that this worker had pushed most often
    own_state: bytes  # what this worker gave to save


class Checkpointed(_gradient_treatment.GradientTreatment):
    """Thread-safe."""

    def save(
        self, directory: Union[str, "os.PathLike[str]"], own_state: bytes = b"", wait: bool = True
    ) -> None:
        """Saves the whole job in a directory that every node sees; rank 0 makes it.

        That is: the weights (weights.safetensors, for any tool), the optimizer and its state, what
        compressed pulls keep, each worker's residuals, thresholds and decisions, and each worker's
        `own_state` (a data position, say). `slimps checkpoint show` and `verify` look at it.

        Collective, between two rounds. With wait=False it returns when everything is copied, and it
        is written while training goes on; wait_saved() then tells how that went. A directory whose
        writing failed is no checkpoint, and load refuses it.

        Raises
            FailedPreconditionError: there is a checkpoint already, a node does not see the
                directory, or this worker has left the rounds.
            UnavailableError: this worker's disk refused it, or a server was started again.
            AbortedError: another node could not do its part.
        """
        self._store.save(os.path.expanduser(os.fspath(directory)), own_state)
        if wait:
            self.wait_saved()

    def wait_saved(self) -> None:
        """Waits until the newest save is written, and raises what went wrong with it."""
        self._store.await_saved()

    def load(self, directory: Union[str, "os.PathLike[str]"]) -> LoadedCheckpoint:
        """Makes the job what it was when `directory` was saved.

        Keys that were pushed n times go on with round n + 1. Collective, after init of the same
        keys (with any values) and before the first push. The number of servers may differ. The
        optimizer is that of the checkpoint; set another one afterwards if it is wanted. A worker
        that came back into its job (former_rounds > 0) must skip this: the others call it no more.

        The errors below change nothing. Another one, as when a server is lost meanwhile, fails the
        store.

        Raises
            NotFoundError: there is no checkpoint.
            DataLossError: a file is damaged.
            InvalidArgumentError: one of other keys, shapes, compression, type of store, kind of
                optimizer (if one was set), or number of workers.
            FailedPreconditionError: a push was made, or workers found different checkpoints.
            AbortedError: another worker could not do its part.
        """
        return LoadedCheckpoint(*self._store.load(os.path.expanduser(os.fspath(directory))))

    def resume(self) -> LoadedCheckpoint:
        """Returns where the job goes on: how many rounds there were, and this worker's own state.

        Loads the checkpoint that SLIMPS_RESUME names. A worker that came back into its job goes on
        after former_rounds, without an own state. A job that begins anew has had 0 rounds.
        Collective, where load may be called, and for all keys; pull the weights afterwards.

            slimps launch --restart 5 --checkpoint DIR ... -- python3 train.py

            for step in range(store.resume().rounds, STEPS):
                ...                                     # push and pull
                if (step + 1) % 100 == 0:
                    store.save_step(step + 1)

        Raises
            load's errors
        """
        if self.former_rounds > 0:
            return LoadedCheckpoint(self.former_rounds, b"")
        directory = os.environ.get("SLIMPS_RESUME")
        return self.load(directory) if directory else LoadedCheckpoint(0, b"")

    def save_step(self, step: int, own_state: bytes = b"") -> None:
        """Saves the job after so many steps in SLIMPS_CHECKPOINT, while training goes on.

        The newest two are kept beside the one that is being written. Does nothing if the variable
        is not set. Collective, between two rounds; errors as of save(wait=False).
        """
        parent = os.path.expanduser(os.environ.get("SLIMPS_CHECKPOINT", ""))
        if not parent:
            return
        name = "%s%09d" % (_PREFIX, step)
        self.save(os.path.join(parent, name), own_state, wait=False)
        if self.rank == 0:
            _remove_old(parent, name)


def _remove_old(parent: str, newest: str) -> None:
    """Removes the checkpoints of steps before `newest`, but for the last _KEPT whole ones."""
    whole = 0
    for name in sorted(os.listdir(parent), reverse=True):
        if not name.startswith(_PREFIX) or name >= newest:
            continue
        is_whole = os.path.exists(os.path.join(parent, name, "manifest.json"))
        whole += is_whole
        if whole > _KEPT or not is_whole:
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
