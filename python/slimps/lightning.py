# SPDX-License-Identifier: Apache-2.0
"""slimps for Lightning: two lines make its script a worker of a parameter-server job.

    import slimps.lightning

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        callbacks=[slimps.lightning.CommHookCallback(compression="1bit")],
    )

Start the script with `slimps launch --workers 2 --servers 2 -- python SCRIPT`, or under torchrun
with `slimps run`.
"""

from __future__ import annotations

from typing import Any, Optional

import lightning

import slimps.torch
from slimps.pytorch import frameworks

__all__ = ["CommHookCallback"]


class CommHookCallback(lightning.Callback):  # type: ignore[misc]
    """Sends the gradients of a Trainer's DistributedDataParallel through the servers.

    options   CommHookState's. The Trainer's optimizer is given to it if there is one alone

    Everything else stays Lightning's: clipping (of the mean), accumulation, checkpoints.
    (DDPStrategy(ddp_comm_hook=...) registers hooks on GPUs alone.)
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.state: Optional[slimps.torch.CommHookState] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.state = frameworks.register_hook(trainer.strategy.model, optimizer, self._options)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        assert self.state is not None
        self.state.close()
