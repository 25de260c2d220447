# SPDX-License-Identifier: Apache-2.0
"""What the callbacks for other frameworks' trainers share."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from slimps.errors import FailedPreconditionError
from slimps.pytorch import ddp

_DDP: Any = torch.nn.parallel.DistributedDataParallel


def register_hook(
    model: Any, optimizer: Optional[torch.optim.Optimizer], options: Dict[str, Any]
) -> ddp.CommHookState:
    """Makes a CommHookState and registers comm_hook for it. Collective.

    model      what a trainer has wrapped: DistributedDataParallel, which torch.compile may wrap
    optimizer  the trainer's only one, or None
    options    CommHookState's

    FailedPreconditionError: the model is not in DistributedDataParallel.
    """
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, _DDP):
        raise FailedPreconditionError(
            "CommHookCallback: expected a trainer that wraps the model in DistributedDataParallel, "
            "as under slimps launch or torchrun with several workers; got %s" % type(model).__name__
        )
    state = ddp.CommHookState(model.module, optimizer=optimizer, **options)
    model.register_comm_hook(state, ddp.comm_hook)
    return state
