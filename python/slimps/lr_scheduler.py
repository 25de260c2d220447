# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules by MXNet's names. The servers follow them; one update is one round.

    schedule = slimps.lr_scheduler.CosineScheduler(max_update=1000)
    slimps.optimizer.SGD(learning_rate=0.1, lr_scheduler=schedule)

`base_lr` is the rate at the beginning, after warm-up; an optimizer's `learning_rate` replaces it,
as in MXNet. During the first `warmup_steps` updates the rate climbs in equal steps from 0 to it.

Servers count the updates of their own job from 1. A run that continues an earlier one gives
`begin_update`, the number of updates made before (begin_num_update of MXNet's optimizers);
load_optimizer_states does not restore it.
"""

from __future__ import annotations

import math

from slimps import native
from slimps.errors import InvalidArgumentError


def _check_count(name: str, value: int, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidArgumentError(
            "%s: expected an int from %d updates, got %r" % (name, low, value)
        )


class LRScheduler:
    """Base class of the schedules that the servers know.

    base_lr       learning rate after warm-up, at least 0
    warmup_steps  number of updates of the warm-up, at least 0
    begin_update  number of updates that an earlier run made, at least 0

    Raises
        InvalidArgumentError: an argument is out of range; the message names it.
    """

    def __init__(self, base_lr: float, warmup_steps: int, begin_update: int) -> None:
        if base_lr < 0:
            raise InvalidArgumentError("base_lr: expected at least 0, got %r" % base_lr)
        _check_count("warmup_steps", warmup_steps, 0)
        _check_count("begin_update", begin_update, 0)
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.begin_update = begin_update

    def spec(self) -> native.Schedule:
        """Returns the schedule in the form that is sent to the servers."""
        schedule = native.Schedule()
        schedule.warmup_rounds = self.warmup_steps
        schedule.begin_round = self.begin_update
        return schedule


class FactorScheduler(LRScheduler):
    """base_lr * factor^floor((update - 1 - warmup_steps) / step).

    `factor` is in (0, 1]; `step` is at least 1 update.
    """

    def __init__(
        self,
        step: int,
        factor: float = 1,
        *,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        begin_update: int = 0,
    ) -> None:
        super().__init__(base_lr, warmup_steps, begin_update)
        _check_count("step", step, 1)
        if not 0 < factor <= 1:
            raise InvalidArgumentError("factor: expected above 0 and at most 1, got %r" % factor)
        self.step = step
        self.factor = factor

    def spec(self) -> native.Schedule:
        schedule = super().spec()
        schedule.kind = "STEP"
        schedule.every = self.step
        schedule.factor = self.factor
        return schedule


class _ToFinal(LRScheduler):
    _kind = ""

    def __init__(
        self, max_update: int, base_lr: float, final_lr: float, warmup_steps: int, begin_update: int
    ) -> None:
        super().__init__(base_lr, warmup_steps, begin_update)
        _check_count("max_update", max_update, warmup_steps + 1)
        if final_lr < 0:
            raise InvalidArgumentError("final_lr: expected at least 0, got %r" % final_lr)
        self.max_update = max_update
        self.final_lr = final_lr

    def spec(self) -> native.Schedule:
        schedule = super().spec()
        schedule.kind = self._kind
        schedule.total_rounds = self.max_update - self.warmup_steps
        schedule.final_lr = self.final_lr
        return schedule


class CosineScheduler(_ToFinal):
    """Half a cosine from base_lr to final_lr, which it reaches after `max_update` updates.

    `max_update` includes the warm-up.
    """

    _kind = "COSINE"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        *,
        begin_update: int = 0,
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, begin_update)


class PolyScheduler(_ToFinal):
    """final_lr + (base_lr - final_lr) * (1 - done)^pwr, with `pwr` above 0.

    `done` is the fraction, from 0 to 1, of the updates after warm-up that were made before this
    one. The rate reaches final_lr after `max_update` updates, which include the warm-up.
    """

    _kind = "LINEAR"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        *,
        begin_update: int = 0,
    ) -> None:
        if not 0 < pwr < math.inf:
            raise InvalidArgumentError("pwr: expected a number above 0, got %r" % pwr)
        super().__init__(max_update, base_lr, final_lr, warmup_steps, begin_update)
        self.pwr = pwr

    def spec(self) -> native.Schedule:
        schedule = super().spec()
        schedule.power = self.pwr
        return schedule
