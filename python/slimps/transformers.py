# SPDX-License-Identifier: Apache-2.0
"""slimps for transformers' Trainer: two lines make its script a worker of a parameter-server job.

    import slimps.transformers

    trainer = transformers.Trainer(model=model, args=args, ...)
    slimps.transformers.distribute(trainer, compression="qsgd:bits=4,norm=max,error_feedback=on")
    trainer.train()

The servers step then, as with slimps.torch.DistributedOptimizer. Or the Trainer's own optimizer
steps on every worker, and the servers average gradients, as with slimps.torch.comm_hook:

    trainer.add_callback(slimps.transformers.CommHookCallback(trainer, compression="1bit"))

Start the script with `slimps launch --workers 2 --servers 2 -- python SCRIPT`, or under torchrun
with `slimps run`. `accelerate launch` and DataParallel are not needed.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, ContextManager, Optional

import torch
import transformers

import slimps.torch
from slimps.errors import FailedPreconditionError
from slimps.pytorch import frameworks

__all__ = ["CommHookCallback", "distribute"]


class CommHookCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Sends the gradients of a Trainer's DistributedDataParallel through the servers.

    trainer   the Trainer that gets the callback
    options   CommHookState's. The Trainer's optimizer is given to it

    Everything else stays the Trainer's: clipping (of the mean), saving, resuming. A job of one
    worker has nothing to average, and no DistributedDataParallel.
    """

    def __init__(self, trainer: transformers.Trainer, **options: Any) -> None:
        self._trainer = trainer
        self._options = options
        self.state: Optional[slimps.torch.CommHookState] = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if self._trainer.args.world_size > 1:
            self.state = frameworks.register_hook(
                self._trainer.model_wrapped, self._trainer.optimizer.optimizer, self._options
            )

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.state is not None:
            self.state.close()


def distribute(trainer: transformers.Trainer, **options: Any) -> None:
    """Makes the servers step for a Trainer: its optimizer becomes a DistributedOptimizer.

    trainer   before train(). Its optimizer is the one that it was given or makes by its arguments;
              learning rates, accumulation of gradients and the norm to clip by are those of its
              arguments
    options   DistributedOptimizer's

    The mean is clipped at the servers, which costs no pass over the gradients here; the norm that
    the Trainer logs is that of the mean. Evaluating and saving show the servers' weights.
    """
    _Distributed(trainer, options)


class _Distributed(transformers.TrainerCallback):  # type: ignore[misc]
    """What distribute() has changed in a Trainer."""

    def __init__(self, trainer: transformers.Trainer, options: Any) -> None:
        self._trainer = trainer
        self._options = options
        self._make = trainer.create_optimizer
        self._log_save_evaluate = trainer._maybe_log_save_evaluate
        self._optimizer: Optional[slimps.torch.DistributedOptimizer] = None
        # The norm of the step under way. The Trainer asks for it before the step, and reads it
        # after the step.
        self._norm = torch.zeros(())
        trainer.create_optimizer = self._create_optimizer
        trainer._maybe_log_save_evaluate = self._show_weights
        accelerator = trainer.accelerator
        # Half precision and compiling stay accelerate's; DistributedDataParallel would average too.
        accelerator.prepare_model = functools.partial(
            accelerator.prepare_model, evaluation_mode=True
        )
        accelerator.clip_grad_norm_ = self._clip
        trainer.add_callback(self)

    def _create_optimizer(self, model: Any = None) -> Any:
        if self._optimizer is None:
            arguments, options = self._trainer.args, dict(self._options)
            if arguments.max_grad_norm:
                options["clip_norm"] = arguments.max_grad_norm
            self._optimizer = slimps.torch.DistributedOptimizer(
                self._make(model),
                self._trainer.model,
                backward_passes_per_step=arguments.gradient_accumulation_steps,
                **options,
            )
            register: Any = getattr(self._optimizer, "register_step_post_hook")
            register(self._note_norm)
            self._trainer.optimizer = self._optimizer
        return self._trainer.optimizer

    def _clip(self, *_: Any, **__: Any) -> Optional[torch.Tensor]:
        """Replaces accelerate's clipping: returns the norm, where the servers tell one."""
        return self._norm if self._trainer.args.max_grad_norm else None

    def _note_norm(self, optimizer: Any, *_: Any) -> None:
        if self._trainer.args.max_grad_norm:
            self._norm.fill_(float(optimizer.grad_norm))

    def _show_weights(self, *arguments: Any, **named: Any) -> None:
        control = self._trainer.control
        shows: ContextManager[Any] = contextlib.nullcontext()
        if self._optimizer is not None and (control.should_evaluate or control.should_save):
            shows = self._optimizer.global_weights()
        with shows:
            self._log_save_evaluate(*arguments, **named)

    def on_train_end(self, arguments: Any, *_: Any, **__: Any) -> None:
        if self._optimizer is None:
            return
        try:
            self._optimizer.close()
        except FailedPreconditionError:
            if not arguments.load_best_model_at_end:  # then the weights are those of the best step
                raise
