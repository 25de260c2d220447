# SPDX-License-Identifier: Apache-2.0
"""The rows of a training script in a trace: forward and backward passes, and steps."""

from __future__ import annotations

import functools
import sys
import threading
import types
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
        self._depth = 0  # number of frames up to that of its call
        self._forward_began = 0
        self._forwards = 0  # number of forward passes so far
        self._backward_of = 0  # that number when the backward pass began that goes on; 0: none does
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
        if self._outermost is None or self._outermost is module or not self._goes_on():
            self._outermost, self._depth = module, len(_stack(3))
            self._forward_began = trace.now()
            self._forwards += 1

    def _goes_on(self) -> bool:
        """True if the outermost module's call is on the stack. If it has failed, it is not."""
        stack = _stack(0)
        at = len(stack) - self._depth
        return at >= 0 and stack[at].f_locals.get("self") is self._outermost

    def _leave(self, module: nn.Module, output: Any) -> None:
        if module is not self._outermost or threading.get_ident() != self._thread:
            return
        self._outermost = None
        if not trace.is_on:
            return
        trace.add(trace.FORWARD, type(module).__name__, self._forward_began)
        me = weakref.ref(self)
        number = self._forwards

        def arrived(_: torch.Tensor) -> None:
            passes = me()
            if passes is not None:
                passes._begin_backward(number)

        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(arrived)  # type: ignore[no-untyped-call]

    def _begin_backward(self, forward: int) -> None:
        # A gradient of a later forward pass says that the backward pass before it has failed.
        if forward <= self._backward_of or not trace.is_on:
            return
        self._backward_of = self._forwards
        began = trace.now()
        # Autograd calls it at the end of the pass, on the thread that has asked for the pass.
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end_backward(began))

    def _end_backward(self, began: int) -> None:
        self._backward_of = 0
        trace.add(trace.BACKWARD, "backward", began)


def _stack(outside: int) -> List[types.FrameType]:
    """Returns this thread's frames, without the innermost `outside` of them."""
    frame: Optional[types.FrameType] = sys._getframe(outside)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


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
