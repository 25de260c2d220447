# SPDX-License-Identifier: Apache-2.0
"""Accelerate over slimps, in jobs of two workers with real servers, and what the callbacks for
transformers' and Lightning's trainers refuse, in jobs of one."""

import jobs
import lightning
import pytest
import slimps
import slimps.lightning
import slimps.transformers
import torch
import transformers
from conftest import refused


@pytest.mark.parametrize(
    "scenario", ["accelerate_with_the_hook", "accelerate_with_distributed_optimizer"]
)
def test_a_recipe_trains_as_one_process(scenario, tmp_path):
    jobs.run("torch_recipe_scenarios", scenario, str(tmp_path / "group"))


# ---- one worker ---------------------------------------------------------------------------------


class Squares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, inputs, labels):
        found = self.layer(inputs)
        return {"loss": (found - labels).square().mean(), "logits": found}


class OwnOptimizer(transformers.Trainer):
    def create_optimizer(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return self.optimizer


def trainer_in(folder, **arguments):
    data = [{"inputs": torch.full((3,), 1.0 + one), "labels": torch.ones(1)} for one in range(4)]
    return OwnOptimizer(
        Squares(),
        transformers.TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            max_steps=3,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=data,
        eval_dataset=data,
    )


def test_a_trainer_that_makes_its_optimizer_trains_once(store, tmp_path):
    trainer = trainer_in(tmp_path)
    slimps.transformers.distribute(trainer, store=store)
    trainer.train()
    norms = [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one]
    assert len(norms) == 3 and all(norm > 0 for norm in norms)
    with refused("the job has ended with the first train", slimps.FailedPreconditionError):
        trainer.train()


@pytest.mark.parametrize(
    "option, complaint",
    [
        ({"clip_norm": 0.5}, "clip_norm is TrainingArguments' max_grad_norm"),
        ({"backward_passes_per_step": 2}, "TrainingArguments' gradient_accumulation_steps"),
        ({"freeze_after": "auto"}, r"expected TrainingArguments\(max_grad_norm=0\), got 1.0"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
def test_options_that_a_trainers_arguments_set(option, complaint, tmp_path):
    with refused(complaint):
        slimps.transformers.distribute(trainer_in(tmp_path), **option)


def ends(self):
    raise slimps.FailedPreconditionError("worker 1 has ended")


@pytest.mark.parametrize("error", [None, "worker 1 has ended"])
def test_the_job_ends_before_the_best_weights_are_loaded(error, store, tmp_path, monkeypatch):
    trainer = trainer_in(
        tmp_path, eval_strategy="steps", eval_steps=1, save_steps=1, load_best_model_at_end=True
    )
    slimps.transformers.distribute(trainer, store=store)
    if error is not None:
        monkeypatch.setattr(slimps.torch.DistributedOptimizer, "close", ends)
        with refused(error, slimps.FailedPreconditionError):
            trainer.train()
        return
    trainer.train()
    losses = {
        one["step"]: one["eval_loss"] for one in trainer.state.log_history if "eval_loss" in one
    }
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses.values()))


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.squares = Squares()

    def training_step(self, batch, _):
        return self.squares(batch, 1.0)["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_a_callback_in_a_job_of_one_worker_does_nothing(tmp_path, monkeypatch):
    callback = slimps.lightning.CommHookCallback(compression="1bit")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(4, 3)))
    assert callback.state is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused("wraps the model in .*; got Squares", slimps.FailedPreconditionError):
        callback.register_hook(Squares(), None)
    callback.state = "of the first training"
    with refused("the job has ended with the first train", slimps.FailedPreconditionError):
        callback.register_hook(Squares(), None)
