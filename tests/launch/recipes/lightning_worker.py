# SPDX-License-Identifier: Apache-2.0
"""A script with Lightning's Trainer: lightning_worker.py WAY FOLDER NORM [CHECKPOINT].

WAY is ddp or hook, NORM what gradients are clipped by. It trains a small model, evaluates and saves
on the way, and prints rank 0's losses. From CHECKPOINT it goes on.
"""

import sys

import lightning
import slimps.lightning
import torch

STEPS = 6


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def loss(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.model(inputs)[:, 0], targets)

    def training_step(self, batch, _):
        loss = self.loss(batch)
        if self.global_rank == 0:
            print("step %d: loss %.6f" % (self.global_step, loss.item()), flush=True)
        return loss

    def validation_step(self, batch, number):
        self.log("val", self.loss(batch), sync_dist=True)

    def on_validation_epoch_end(self):
        if self.global_rank == 0:
            found = self.trainer.callback_metrics["val"].item()
            print("step %d: val %.6f" % (self.global_step, found), flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def main(way, folder, norm, checkpoint=None):
    lightning.seed_everything(1, verbose=False)
    inputs = torch.randn(4 * STEPS, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1).sin())
    saving = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, "{epoch}", save_top_k=-1, every_n_epochs=1
    )
    callbacks = [saving]
    if way == "hook":
        callbacks.append(slimps.lightning.CommHookCallback())
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        gradient_clip_val=float(norm) or None,
        callbacks=callbacks,
        logger=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    trainer.fit(
        Module(), loader, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=checkpoint
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
