# SPDX-License-Identifier: Apache-2.0
"""slimps for transformers' Trainer: two lines make its script a worker of a parameter-server job.

    import slimps.transformers

    trainer = transformers.Trainer(model=model, args=args, ...)
    slimps.transformers.distribute(trainer, compression="qsgd:bits=4,norm=max,error_feedback=on")
    trainer.train()

The servers step then, as with slimps.torch.DistributedOptimizer. Or the Trainer's own optimizer
steps on every worker, and the servers average gradients, as with slimps.torch.comm_hook:

    codec = "qsgd:bits=4,norm=max,error_feedback=on"
    trainer.add_callback(slimps.transformers.CommHookCallback(trainer, compression=codec))

Start the script with `slimps launch --workers 2 --servers 2 -- python SCRIPT`, or under torchrun
with `slimps run`. `accelerate launch` and DataParallel are not needed.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, ContextManager, Dict, Optional

import transformers

import slimps.torch
from slimps.errors import InvalidArgumentError
from slimps.pytorch import frameworks

__all__ = ["CommHookCallback", "distribute"]

# DistributedOptimizer's options that a Trainer's arguments set.
_OF_ARGUMENTS = {
    "backward_passes_per_step": "gradient_accumulation_steps",
    "clip_norm": "max_grad_norm",
}


class CommHookCallback(frameworks.HookCallback, transformers.TrainerCallback):  # type: ignore[misc]
    """Sends the gradients of a Trainer's DistributedDataParallel through the servers.

    trainer   the Trainer that gets the callback
    options   CommHookState's. The Trainer's optimizer is given to it

    Everything else stays the Trainer's: clipping (of the mean), saving, resuming. A job of one
    worker has nothing to average, and no DistributedDataParallel.
    """

    def __init__(self, trainer: transformers.Trainer, **options: Any) -> None:
        super().__init__(**options)
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.register_hook(self._trainer.model_wrapped, self._trainer.optimizer.optimizer)


def distribute(trainer: transformers.Trainer, **options: Any) -> None:
    """Makes the servers step for a Trainer: its optimizer becomes a DistributedOptimizer.

    trainer   before train(). Its optimizer is the one that it was given or makes by its arguments;
              learning rates, accumulation of gradients and the norm to clip by are those of its
              arguments
    options   DistributedOptimizer's, without clip_norm and backward_passes_per_step

    The mean is clipped at the servers, which costs no pass over the gradients here; the norm that
    the Trainer logs is that of the mean. Evaluating and saving show the servers' weights. The job
    ends with the first train().

    Raises
        InvalidArgumentError: an option is one that the Trainer's arguments set, or freeze_after
            beside max_grad_norm.
    """
    for name, argument in _OF_ARGUMENTS.items():
        if name in options:
            raise InvalidArgumentError(
                "distribute: %s is TrainingArguments' %s; expected it there" % (name, argument)
            )
    if options.get("freeze_after") is not None and trainer.args.max_grad_norm:
        raise InvalidArgumentError(
            "distribute: 1-bit Adam (freeze_after) has no mean gradient to clip; expected "
            "TrainingArguments(max_grad_norm=0), got %s" % trainer.args.max_grad_norm
        )
    _Distributed(trainer, options)


class _Distributed(transformers.TrainerCallback):  # type: ignore[misc]
    """What distribute() has changed in a Trainer."""

    def __init__(self, trainer: transformers.Trainer, options: Any) -> None:
        self._trainer = trainer
        self._options = options
        self._make = trainer.create_optimizer
        self._log_save_evaluate = trainer._maybe_log_save_evaluate
        self._load_best_model = trainer._load_best_model
        self._optimizer: Optional[slimps.torch.DistributedOptimizer] = None
        self._has_ended = False
        trainer.create_optimizer = self._create_optimizer
        trainer._maybe_log_save_evaluate = self._show_weights
        trainer._load_best_model = self._end_and_load_best
        accelerator = trainer.accelerator
        # Half precision and compiling stay accelerate's; DistributedDataParallel would average too.
        accelerator.prepare_model = functools.partial(
            accelerator.prepare_model, evaluation_mode=True
        )
        accelerator.clip_grad_norm_ = lambda *_, **__: None  # the servers clip
        trainer.add_callback(self)

    def _create_optimizer(self, model: Any = None) -> Any:
        frameworks.check_is_first(self._has_ended)
        if self._optimizer is None:
            found: Dict[str, Any] = {
                name: getattr(self._trainer.args, argument) or None
                for name, argument in _OF_ARGUMENTS.items()
            }
            self._optimizer = self._trainer.optimizer = slimps.torch.DistributedOptimizer(
                self._make() if model is None else self._make(model),
                self._trainer.model,
                **found,
                **self._options,
            )
        return self._optimizer

    def _show_weights(self, loss: Any, norm: Any, *arguments: Any, **named: Any) -> None:
        control = self._trainer.control
        shows: ContextManager[Any] = contextlib.nullcontext()
        if self._optimizer is not None:
            if self._optimizer.clip_norm:
                norm = self._optimizer.grad_norm
            if control.should_evaluate or control.should_save:
                shows = self._optimizer.global_weights()
        with shows:
            self._log_save_evaluate(loss, norm, *arguments, **named)

    def _end_and_load_best(self) -> None:
        """Ends the job before the best weights are loaded, which the servers do not have."""
        self.on_train_end()
        self._load_best_model()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._has_ended = True
        if self._optimizer is not None:
            self._optimizer.close()
