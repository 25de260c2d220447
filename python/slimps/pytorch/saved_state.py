# SPDX-License-Identifier: Apache-2.0
"""The state of a DistributedOptimizer: what state_dict() saves and load_state_dict() restores."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch

from slimps import kv
from slimps.errors import InvalidArgumentError

_PARTS = ("optimizer", "servers", "residuals", "rank", "num_workers")


def saved(optimizer: Dict[str, Any], store: kv.KVStore) -> Dict[str, Any]:
    """Returns an optimizer's own state_dict(), the servers' state and the residuals. Collective."""
    parts = (
        optimizer,
        _as_tensor(store.optimizer_states()),
        _as_tensor(store.residuals()),
        store.rank,
        store.num_workers,
    )
    return dict(zip(_PARTS, parts))


def check(state: Dict[str, Any], store: kv.KVStore) -> None:
    """Raises InvalidArgumentError unless saved() of this rank in as large a job gave the state."""
    missing = set(_PARTS) - set(state)
    if missing:
        raise InvalidArgumentError(
            "load_state_dict: expected a DistributedOptimizer's, got one without %s"
            % ", ".join(sorted(missing))
        )
    _check_place((state["rank"], state["num_workers"]), (store.rank, store.num_workers))


def restore(state: Dict[str, Any], store: kv.KVStore) -> None:
    """Gives the servers' state and the residuals back. Collective."""
    store.put_optimizer_states(_as_bytes(state["servers"]))
    store.put_residuals(_as_bytes(state["residuals"]))


def _check_place(saved: Tuple[int, int], here: Tuple[int, int]) -> None:
    """Raises InvalidArgumentError unless a state was saved by this worker's rank in as large a job.

    Both arguments are (rank, number of workers). Residuals belong to one rank.
    """
    if saved == here:
        return
    what = (
        "load_state_dict: this state was saved by worker %d of %d, and this is worker %d of %d"
        % (*saved, *here)
    )
    if saved[1] != here[1]:
        raise InvalidArgumentError("%s: expected a job of %d workers" % (what, saved[1]))
    raise InvalidArgumentError(
        "%s: load what worker %d saved, or start this worker with DMLC_WORKER_ID=%d"
        % (what, here[0], saved[0])
    )


def _as_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[: len(content)].clone()


def _as_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
