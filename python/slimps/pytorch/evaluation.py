# SPDX-License-Identifier: Apache-2.0
"""Warns once if a model is evaluated with weights that are only this worker's."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any, Callable, List, Optional

import torch
from torch import nn

from slimps import _said_once


class Watch:
    """Checks every module's forward pass, until it has warned or end() is called.

        # holds_own: the parameters hold this worker's own weights
        watch = Watch(parameters, holds_own=lambda: self._holds_own)
        watch.end()

    A pass counts as evaluation if gradients are off, or if a module with all of `parameters` is in
    evaluation mode. A part of the model in evaluation mode does not count, since it may be frozen
    normalisation. Nor does the first pass of torch.utils.checkpoint, which trains without
    gradients.
    """

    def __init__(self, parameters: List[torch.Tensor], holds_own: Callable[[], bool]) -> None:
        self._parameters = {id(parameter) for parameter in parameters}
        self._holds_own = holds_own
        # How many of the parameters each module has.
        self._ours: "weakref.WeakKeyDictionary[nn.Module, int]" = weakref.WeakKeyDictionary()
        me = weakref.ref(self)

        def before_forward(module: nn.Module, _: Any) -> None:
            watch = me()
            if watch is not None and not (module.training and torch.is_grad_enabled()):
                watch._look_at(module)

        self._handle = nn.modules.module.register_module_forward_pre_hook(before_forward)

    def end(self) -> None:
        self._handle.remove()

    def __del__(self) -> None:
        self.end()

    def _look_at(self, module: nn.Module) -> None:
        if not self._holds_own():
            return
        if module not in self._ours:
            self._ours[module] = len(
                self._parameters & {id(parameter) for parameter in module.parameters()}
            )
        ours = self._ours[module]
        if ours == 0 or (torch.is_grad_enabled() and ours < len(self._parameters)):
            return
        if not torch.is_grad_enabled() and _is_checkpointed():
            return
        self.end()
        _said_once.warn(
            "evaluation",
            "the model is evaluated on this worker's own weights, as backup_model=True has them "
            "between steps: they differ from worker to worker. Expected it inside `with "
            "optimizer.global_weights():`, which holds the weights of all (said once)",
        )


def _is_checkpointed() -> bool:
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False
