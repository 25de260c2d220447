# SPDX-License-Identifier: Apache-2.0
"""The servers' optimizer state in torch's layout, which DistributedOptimizer saves and loads.

    {"state": {0: {"step": tensor(3.), "exp_avg": ..., "exp_avg_sq": ...}, 1: ...},
     "param_groups": [...],
     "round": 3,                                                    # after which the state is so
     "residuals": {"num_workers": 2, "by_rank": {0: tensor}}}       # if asked for

SGD has momentum_buffer alone, and {} without momentum. 1-bit Adam has exp_avg_sq as Adam would have
it at that step, and server_error once its variance is frozen.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np
import torch

from slimps import _said_once, kv, native
from slimps.errors import AbortedError, InvalidArgumentError

State = Dict[str, Any]  # of one parameter
Given = List[Tuple[List[np.ndarray], int]]  # each parameter's tensors, and how often updated

_ERROR = "server_error"  # what 1-bit Adam's answers left out; there is none before the freeze
_MOMENTS = ("exp_avg", "exp_avg_sq")
_TENSORS = {
    "SGD": ("momentum_buffer",),
    "ADAM": _MOMENTS,
    "ADAMW": _MOMENTS,
    "ONEBIT_ADAM": (*_MOMENTS, _ERROR),
}


class ServerState:
    """What the servers' optimizer keeps of some parameters. Tensors are float32 on the CPU."""

    def __init__(
        self,
        store: kv.KVStore,
        names: List[str],
        parameters: List[torch.Tensor],
        spec: native.OptimizerSpec,
    ) -> None:
        self._store, self._names, self._parameters = store, names, parameters
        self._beta2 = spec.beta2
        self._counts_steps = spec.kind != "SGD"
        self._tensors = () if spec.kind == "SGD" and not spec.momentum else _TENSORS[spec.kind]
        self._needed = [name for name in self._tensors if name != _ERROR]

    def placeholders(self) -> Dict[torch.Tensor, State]:
        """Returns states of the right shapes, which take no memory and hold no number."""
        return {
            parameter: self._state_of(
                [torch.tensor(float("nan")).expand(parameter.shape) for _ in self._needed], 0
            )
            for parameter in self._parameters
        }

    def pull(self) -> Tuple[Dict[torch.Tensor, State], Optional[int]]:
        """Returns the parameters' states, and the round after which they are so; None: no rounds.

        This worker alone calls it.
        """
        arrays = [
            [np.empty(parameter.numel(), np.float32) for _ in self._tensors]
            for parameter in self._parameters
        ]
        pulled = self._store.pull_states(self._names, arrays)
        found = {
            parameter: self._state_of(
                [torch.from_numpy(one).view(parameter.shape) for one in of_key[:count]], updates
            )
            for parameter, of_key, (count, updates, _) in zip(self._parameters, arrays, pulled)
        }
        has_rounds = self._store.has_rounds
        return found, max(round for _, _, round in pulled) if has_rounds else None

    def read(self, states: Mapping[Any, Mapping[str, Any]]) -> Given:
        """Returns what put() takes, of states by parameter. A parameter without has zeros.

        InvalidArgumentError: a state of another kind of optimizer, or of another shape.
        """
        given = [
            self._read_one(name, parameter, states.get(parameter) or {})
            for name, parameter in zip(self._names, self._parameters)
        ]
        lacking = [
            name
            for name, (tensors, _) in zip(self._names, given)
            if len(tensors) < len(self._tensors)
        ]
        if lacking:
            if len(lacking) < len(given):
                _said_once.warn(
                    "freeze",
                    "load_state_dict: parameter %s: expected a step above 0 and %s, as others "
                    "have: 1-bit Adam begins with its warm-up, without any %s (said once)"
                    % (lacking[0], _ERROR, _ERROR),
                )
            given = [(tensors[: len(self._needed)], updates) for tensors, updates in given]
        elif _ERROR in self._tensors:
            for tensors, updates in given:
                tensors[1] = tensors[1] / np.float32(1 - self._beta2**updates)
        return given

    def put(self, given: Optional[Given]) -> None:
        """Gives rank 0's states to the servers; the others' are None. Collective."""
        arrays, updates = zip(*(given or [([], 0)] * len(self._names)))
        self._store.put_states(self._names, arrays, updates)

    def _state_of(self, tensors: List[torch.Tensor], updates: int) -> State:
        state: State = {"step": torch.tensor(float(updates))} if self._counts_steps else {}
        state.update(zip(self._tensors, tensors))
        if _ERROR in state:  # the frozen variance is the corrected one
            state["exp_avg_sq"] *= 1 - self._beta2**updates
        return state

    def _read_one(
        self, name: str, parameter: torch.Tensor, state: Mapping[str, Any]
    ) -> Tuple[List[np.ndarray], int]:
        has = [key for key, value in state.items() if value is not None]
        step = int(state["step"]) if self._counts_steps and "step" in has else 0
        if not has:  # as of a parameter that never had a gradient
            return [np.zeros(parameter.numel(), np.float32) for _ in self._needed], 0
        expected = ["step"] * self._counts_steps + self._needed
        if sorted(set(has) - {_ERROR}) != sorted(expected):
            raise InvalidArgumentError(
                "load_state_dict: parameter %s: expected a state with %s, got one with %s"
                % (name, ", ".join(expected) or "nothing", ", ".join(has))
            )
        # Without updates there is nothing that could be frozen.
        wanted = [key for key in self._tensors if key in has and (key != _ERROR or step)]
        return [_array_of(state[key], key, name, parameter) for key in wanted], step


def _array_of(value: Any, what: str, name: str, parameter: torch.Tensor) -> np.ndarray:
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        raise InvalidArgumentError(
            "load_state_dict: parameter %s: %s: expected a tensor of shape %s, got %s"
            % (name, what, tuple(parameter.shape), getattr(value, "shape", type(value).__name__))
        )
    on_host = value.detach().to("cpu", torch.float32).contiguous()
    if not bool(on_host.isfinite().all()):
        raise InvalidArgumentError(
            "load_state_dict: parameter %s: %s: expected finite values, got NaN or infinity"
            % (name, what)
        )
    return on_host.numpy().reshape(-1)


def by_parameter(
    given: Mapping[str, Any], groups: List[Dict[str, Any]]
) -> Mapping[Any, Mapping[str, Any]]:
    """Returns the states of a state_dict() of torch's layout by parameter of `groups`.

    InvalidArgumentError: it is something else, or has other groups.
    """
    if not {"state", "param_groups"} <= set(given):
        raise InvalidArgumentError(
            "load_state_dict: expected a dictionary with state and param_groups, as torch's "
            "optimizers have, got one with %s" % (", ".join(map(str, given)) or "nothing")
        )
    sizes, saved = (
        [len(group["params"]) for group in some] for some in (groups, given["param_groups"])
    )
    if sizes != saved:
        raise InvalidArgumentError(
            "load_state_dict: expected parameter groups of sizes %s, got %s" % (sizes, saved)
        )
    homes = zip(_all(given["param_groups"]), _all(groups))
    return {parameter: given["state"].get(number) for number, parameter in homes}


def _all(groups: List[Dict[str, Any]]) -> Iterable[Any]:
    return itertools.chain.from_iterable(group["params"] for group in groups)


def agreed(store: kv.KVStore, read: Callable[[], Any]) -> Any:
    """Returns what `read` returns. Collective: if it raises on one worker, all of them raise.

    AbortedError: on the others.
    """
    result, error = None, None
    try:
        result = read()
    except Exception as raised:  # told to the others first
        error = raised
    (failed,) = store.all_reduce_sum([float(error is not None)])
    if error is not None:
        raise error
    if failed:
        raise AbortedError(
            "load_state_dict: %d of %d workers could not read theirs" % (failed, store.num_workers)
        )
    return result


def residuals_of(store: kv.KVStore) -> Dict[str, Any]:
    """Returns what the codecs keep on this worker, by its rank."""
    content = torch.frombuffer(bytearray(store.residuals()), dtype=torch.uint8)
    return {"num_workers": store.num_workers, "by_rank": {store.rank: content}}


def put_residuals(saved: Mapping[str, Any], store: kv.KVStore) -> None:
    """Gives the codecs what residuals_of() saved. Warns once if it is of other workers."""
    content = saved["by_rank"].get(store.rank)
    if content is None or saved["num_workers"] != store.num_workers:
        _said_once.warn(
            "residuals of others",
            "load_state_dict: expected residuals of worker %d of %d, got those of %s of %d: they "
            "begin at zero, so what compression left out of gradients before is lost (said once)"
            % (
                store.rank,
                store.num_workers,
                " and ".join(map(str, saved["by_rank"])) or "none",
                saved["num_workers"],
            ),
        )
        return
    store.put_residuals(content.cpu().numpy().tobytes())
