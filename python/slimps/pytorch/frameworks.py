# SPDX-License-Identifier: Apache-2.0
"""What the callbacks for other frameworks' trainers share."""

from __future__ import annotations

import os
from typing import Any, Optional

import torch

from slimps.errors import FailedPreconditionError
from slimps.pytorch import ddp

_DDP: Any = torch.nn.parallel.DistributedDataParallel


class HookCallback:
    """A trainer's callback that has a CommHookState, whose options it is given.

    Trainers call on_train_end. At the beginning the subclass calls register_hook.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.state: Optional[ddp.CommHookState] = None

    def register_hook(self, model: Any, optimizer: Optional[torch.optim.Optimizer]) -> None:
        """Makes the state and registers comm_hook, unless the job has one worker. Collective.

        model      what a trainer has wrapped: DistributedDataParallel, which torch.compile may wrap
        optimizer  the trainer's only one, or None

        FailedPreconditionError: the model is not in DistributedDataParallel, or the state was made.
        """
        check_is_first(self.state is not None)
        if os.environ.get("WORLD_SIZE", "1") == "1":
            return
        model = getattr(model, "_orig_mod", model)
        if not isinstance(model, _DDP):
            raise FailedPreconditionError(
                "CommHookCallback: expected a trainer that wraps the model in "
                "DistributedDataParallel, as under slimps launch or torchrun with several workers; "
                "got %s" % type(model).__name__
            )
        self.state = ddp.CommHookState(model.module, optimizer=optimizer, **self._options)
        model.register_comm_hook(self.state, ddp.comm_hook)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.state is not None:
            self.state.close()


def check_is_first(has_trained: bool) -> None:
    """Raises FailedPreconditionError if a trainer trains again after the job's end."""
    if has_trained:
        raise FailedPreconditionError(
            "the job has ended with the first training, and this process has one job; expected a "
            "second training in a job of its own, or one training with more steps"
        )
