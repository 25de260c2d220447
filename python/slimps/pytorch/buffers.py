# SPDX-License-Identifier: Apache-2.0
"""A model's buffers (batch normalisation's statistics), taken from rank 0 as training goes on."""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch
from torch import nn

from slimps import kv
from slimps.errors import InvalidArgumentError
from slimps.pytorch import params


class Buffers:
    """Gives a model rank 0's buffers before the first forward pass of each step, in training.

    buffers = Buffers(model, store)
    buffers.begin_step()  # the next pass is the first of a step
    buffers.settle()      # in place of a pass: the other workers wait for this one
    buffers.end()
    """

    def __init__(self, model: nn.Module, store: kv.KVStore) -> None:
        self._model = model
        self._store = store
        self._due = True
        me = weakref.ref(self)

        def before_forward(module: nn.Module, _: Any) -> None:
            buffers = me()
            if buffers is not None and module.training and torch.is_grad_enabled():
                buffers.settle()

        # A collective call is nothing to compile.
        hook = getattr(torch, "compiler").disable(before_forward)
        self._handle = model.register_forward_pre_hook(hook)

    def begin_step(self) -> None:
        self._due = True

    def settle(self) -> None:
        if not self._due:
            return
        self._due = False
        params.broadcast_tensors([buffer for _, buffer in self._model.named_buffers()], self._store)

    def end(self) -> None:
        self._handle.remove()


def of(model: Optional[nn.Module], store: kv.KVStore) -> Buffers:
    """Returns the buffers of a model. InvalidArgumentError: the model is not known."""
    if model is None:
        raise InvalidArgumentError(
            "broadcast_buffers: expected the model as named_parameters, whose buffers they are"
        )
    return Buffers(model, store)
