# SPDX-License-Identifier: Apache-2.0
"""A model's buffers (batch normalisation's statistics), taken from rank 0 as training goes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from slimps import kv
from slimps.errors import FailedPreconditionError
from slimps.pytorch import evaluation, params


class Buffers:
    """Gives a model rank 0's buffers before the first forward pass of each step, in training.

    buffers = Buffers(model, store)
    buffers.begin_step()  # the next pass is the first of a step
    buffers.settle()      # in place of a pass: the other workers wait for this one
    buffers.end()

    FailedPreconditionError: this worker was started again. The others, in the middle of a step,
        would wait for its part in sums that it knows nothing of.
    """

    def __init__(self, model: nn.Module, store: kv.KVStore) -> None:
        if store.former_rounds > 0:
            raise FailedPreconditionError(
                "broadcast_buffers: this worker was started again, and the others are in a step "
                "whose buffers they have; expected a job without it, or without restarts of workers"
            )
        self._model = model
        self._store = store
        self._due = True
        self._handle = model.register_forward_pre_hook(evaluation.EagerHook(self._before_forward))

    def begin_step(self) -> None:
        self._due = True

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self.settle()

    def settle(self) -> None:
        if not self._due:
            return
        self._due = False
        params.broadcast_tensors([buffer for _, buffer in self._model.named_buffers()], self._store)

    def end(self) -> None:
        self._handle.remove()
