# SPDX-License-Identifier: Apache-2.0
"""slimps for Lightning: two lines make its script a worker of a parameter-server job.

    import slimps.lightning

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        callbacks=[slimps.lightning.CommHookCallback(compression="qsgd:bits=4")],
    )

The package `pytorch_lightning` is another one, with classes of its own.

Start the script with `slimps launch --workers 2 --servers 2 -- python SCRIPT`, or under torchrun
with `slimps run`.
"""

from __future__ import annotations

from typing import Any

import lightning

from slimps.pytorch import frameworks

__all__ = ["CommHookCallback"]


class CommHookCallback(frameworks.HookCallback, lightning.Callback):  # type: ignore[misc]
    """Sends the gradients of a Trainer's DistributedDataParallel through the servers.

    options   CommHookState's. The Trainer's optimizer is given to it if there is one alone

    Everything else stays Lightning's: clipping (of the mean), accumulation, checkpoints. A job of
    one worker has nothing to average.
    (DDPStrategy(ddp_comm_hook=...) registers hooks on GPUs alone.)
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.register_hook(trainer.strategy.model, optimizer)
