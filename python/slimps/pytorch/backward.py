# SPDX-License-Identifier: Apache-2.0
"""Tells when backward passes have completed a parameter's gradient."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List

import torch


class Backward:
    """Counts the backward passes that reach each parameter in one step.

        backward = Backward(parameters, 2, owner.ready)
        ...backward passes call owner.ready(index, passes), from the second pass of a step on...
        backward.begin_step()

    `ready` is a method. Its owner is held weakly, as this object is by the hooks: autograd holds
    the hooks, and would otherwise keep both alive.
    """

    def __init__(
        self, parameters: List[torch.Tensor], wanted: int, ready: Callable[[int, int], None]
    ) -> None:
        self._wanted = wanted
        self._ready = weakref.WeakMethod(ready)
        self._passes = [0] * len(parameters)
        self._hooks = [self._hook(index, parameter) for index, parameter in enumerate(parameters)]

    def begin_step(self) -> None:
        self._passes = [0] * len(self._passes)

    def end(self) -> None:
        """Removes the hooks. A second call does nothing."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, index: int, parameter: torch.Tensor) -> Any:
        me = weakref.ref(self)

        def completed(*_: Any) -> None:
            backward = me()
            if backward is not None:
                backward._count(index)

        register: Any = getattr(parameter, "register_post_accumulate_grad_hook")
        return register(completed)

    def _count(self, index: int) -> None:
        self._passes[index] += 1
        ready = self._ready()
        if ready is not None and self._passes[index] >= self._wanted:
            ready(index, self._passes[index])
