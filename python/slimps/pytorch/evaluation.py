# SPDX-License-Identifier: Apache-2.0
"""Warns once if a model is evaluated, or saved, with weights that are only this worker's."""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from types import FrameType
from typing import Any, Callable, List, Optional

import torch
from torch import nn

from slimps import _said_once
from slimps.pytorch import params

_EXPECTED = (
    "as backup_model=True has them between steps: they differ from worker to worker. Expected it "
    "inside `with optimizer.global_weights():`, which holds the weights of all (said once)"
)


def model_of(named: Optional[params.Named]) -> Optional[nn.Module]:
    """Returns the model whose parameters `named` are: itself, or that of its named_parameters()."""
    if isinstance(named, types.GeneratorType):
        named = inspect.getgeneratorlocals(named).get("self")
    return named if isinstance(named, nn.Module) else None


class Watch:
    """Checks each forward pass and each state_dict() of a model, until end().

        # holds_own: the parameters hold this worker's own weights
        watch = Watch(model, parameters, holds_own=lambda: self._holds_own)
        watch.end()

    A pass counts as evaluation if gradients are off, or if a module with all of `parameters` is in
    evaluation mode. A part of the model in evaluation mode does not count, since it may be frozen
    normalisation. Nor does the first pass of torch.utils.checkpoint, which trains without
    gradients. Passes that torch.compile has compiled are not seen.
    """

    def __init__(
        self, model: nn.Module, parameters: List[torch.Tensor], holds_own: Callable[[], bool]
    ) -> None:
        ids = {id(parameter) for parameter in parameters}
        self._holds_own = holds_own
        self._whole = weakref.WeakSet(
            module
            for module in model.modules()
            if ids <= {id(parameter) for parameter in module.parameters()}
        )
        hook = Hook(self.look_at)
        self._handles: List[Any] = [
            module.register_forward_pre_hook(hook)
            for module in model.modules()
            if any(id(parameter) in ids for parameter in module.parameters())
        ]
        register: Any = model.register_state_dict_pre_hook
        self._handles.append(register(Hook(self.look_at_saving)))

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()

    def look_at(self, module: nn.Module, _: Any) -> None:
        """Warns if the module's pass is an evaluation."""
        if not self._holds_own():
            return
        if torch.is_grad_enabled() and (module.training or module not in self._whole):
            return
        if not torch.is_grad_enabled() and _is_checkpointed():
            return
        _said_once.warn(
            "evaluation", "the model is evaluated on this worker's own weights, " + _EXPECTED
        )

    def look_at_saving(self, *_: Any) -> None:
        if self._holds_own():
            _said_once.warn(
                "state_dict", "the model's state_dict() has this worker's own weights, " + _EXPECTED
            )


class Hook:
    """A module's hook, which calls a method. Copies of the module have one that does nothing.

    So have pickled ones. The method's owner is held weakly. Compiled passes are left out.
    """

    def __init__(self, method: Optional[Callable[..., None]] = None) -> None:
        self._method: Any = weakref.WeakMethod(method) if method else _nothing

    def __call__(self, *arguments: Any) -> None:
        if not _is_compiling():
            self._call(*arguments)

    def _call(self, *arguments: Any) -> None:
        method = self._method()
        if method is not None:
            method(*arguments)

    def __reduce__(self) -> Any:
        return type(self), ()


class EagerHook(Hook):
    """A hook that compiled passes call, too, since it is never compiled itself."""

    __call__ = getattr(torch, "compiler").disable(lambda self, *arguments: self._call(*arguments))


_is_compiling: Any = getattr(torch, "compiler").is_compiling


def _nothing() -> None:
    return None


def _is_checkpointed() -> bool:
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False
