# SPDX-License-Identifier: Apache-2.0
"""Lets forward passes wait for weights module by module, with overlap_forward."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Set

import torch
from torch import nn

from slimps.errors import FailedPreconditionError, InvalidArgumentError
from slimps.pytorch import evaluation


# torch's modules that read their parts' parameters without calling the parts.
_READ_PARTS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


class ForwardWaits:
    """Shows a parameter's new weights before a module that has it is called.

        waits = ForwardWaits(model, parameters, owner.show)
        waits.begin_step()       # the parameters may lack the step's weights
        waits.check(3, name)     # the gradient of parameter 3 is there
        waits.show_all()
        waits.end()

    show(index) waits until the parameter has the step's weights; its owner is held weakly. A
    state_dict() of the model, or of a part, comes after all. What else reads parameters, as a copy
    of the model, has to come after show_all().

    InvalidArgumentError: there is no model, or it is compiled: its modules are not called then.
    """

    def __init__(
        self,
        model: Optional[nn.Module],
        parameters: List[torch.Tensor],
        show: Callable[[int], None],
    ) -> None:
        if model is None:
            raise InvalidArgumentError(
                "overlap_forward: expected the model as named_parameters, whose modules wait"
            )
        for name, module in model.named_modules():
            if getattr(module, "_compiled_call_impl", None) or hasattr(module, "_orig_mod"):
                raise InvalidArgumentError(
                    "overlap_forward: %s is compiled, and calls none of the modules that have to "
                    "wait; expected overlap_forward=False, or a model without torch.compile"
                    % (name or "the model")
                )
        self._show = weakref.WeakMethod(show)
        self._missing: Set[int] = set()
        indices = {id(parameter): index for index, parameter in enumerate(parameters)}
        self._of = {
            module: [
                indices[id(one)]
                for one in module.parameters(recurse=isinstance(module, _READ_PARTS))
                if id(one) in indices
            ]
            for module in model.modules()
        }
        hook = evaluation.EagerHook(self._before_forward)
        self._handles: List[Any] = [
            module.register_forward_pre_hook(hook) for module, found in self._of.items() if found
        ]
        before_saving = evaluation.EagerHook(self.show_all)
        for module in self._of:
            register: Any = module.register_state_dict_pre_hook
            self._handles.append(register(before_saving))

    def begin_step(self) -> None:
        self._missing = {index for found in self._of.values() for index in found}

    def check(self, index: int, name: str) -> None:
        """Raises FailedPreconditionError if no module has waited for a parameter of this step."""
        if index in self._missing:
            raise FailedPreconditionError(
                "parameter %s: has a gradient, but the module that it belongs to was not called in "
                "this step, so it was read before its weights were known to be there; expected "
                "overlap_forward=False, or optimizer.await_weights() before it is read" % name
            )

    def show_all(self, *_: Any) -> None:
        for index in sorted(self._missing):
            self._show_one(index)

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        for index in self._of.get(module, ()):
            if index in self._missing:
                self._show_one(index)

    def _show_one(self, index: int) -> None:
        show = self._show()
        if show is not None:
            show(index)
        self._missing.discard(index)
