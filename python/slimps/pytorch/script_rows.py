# SPDX-License-Identifier: Apache-2.0
"""The rows of a training script in a trace: forward and backward passes, and steps."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable, Iterator, List, Optional, TypeVar, cast

import torch
from torch import nn

from slimps.native import trace

_Method = TypeVar("_Method", bound=Callable[..., Any])


def is_step(method: _Method) -> _Method:
    """Decorates an optimizer's step(): a traced process records how long it takes."""

    @functools.wraps(method)
    def recorded(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        with trace.span(trace.STEP, "step", optimizer._steps + 1):
            return method(optimizer, *arguments, **named)

    return cast(_Method, recorded)


class Passes:
    """Records the passes of the thread that makes it, until end().

    A forward pass is that of a module which no other module has called: the model, or a loss. A
    backward pass begins when the gradient of such a module's output is there.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._outermost: Optional[nn.Module] = None
        self._forward_began = 0
        self._backward_began = 0
        me = weakref.ref(self)  # torch holds the hooks

        def before_forward(module: nn.Module, _: Any) -> None:
            passes = me()
            if passes is not None:
                passes._enter(module)

        def after_forward(module: nn.Module, _: Any, output: Any) -> None:
            passes = me()
            if passes is not None:
                passes._leave(module, output)

        self._hooks: List[Any] = [
            nn.modules.module.register_module_forward_pre_hook(before_forward),
            nn.modules.module.register_module_forward_hook(after_forward),
        ]

    def end(self) -> None:
        """Records nothing more. A second call does nothing."""
        for hook in self._hooks:
            hook.remove()

    def __del__(self) -> None:
        self.end()

    def _enter(self, module: nn.Module) -> None:
        if threading.get_ident() != self._thread:
            return
        # The same module again: its last pass has ended by an exception.
        if self._outermost is None or self._outermost is module:
            self._outermost, self._forward_began = module, trace.now()

    def _leave(self, module: nn.Module, output: Any) -> None:
        if module is not self._outermost or threading.get_ident() != self._thread:
            return
        self._outermost = None
        if not trace.is_on:
            return
        trace.add(trace.FORWARD, type(module).__name__, self._forward_began)
        me = weakref.ref(self)

        def arrived(_: torch.Tensor) -> None:
            passes = me()
            if passes is not None:
                passes._begin_backward()

        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(arrived)  # type: ignore[no-untyped-call]

    def _begin_backward(self) -> None:
        if self._backward_began or not trace.is_on:
            return
        self._backward_began = trace.now()
        # Autograd calls it at the end of the pass, on the thread that has asked for the pass.
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        began, self._backward_began = self._backward_began, 0
        trace.add(trace.BACKWARD, "backward", began)


def passes() -> Optional[Passes]:
    """Returns Passes if this process is traced, else None."""
    return Passes() if trace.is_on else None


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from _tensors(part)
    elif isinstance(output, dict):
        for part in output.values():
            yield from _tensors(part)
