# SPDX-License-Identifier: Apache-2.0
"""What the servers run, as plain data, until a store is given it."""

from __future__ import annotations

import dataclasses

from slimps.native.library import check, lib, made_by, text


@dataclasses.dataclass
class Schedule:
    """How the learning rate changes. `kind` is CONSTANT, STEP, COSINE or LINEAR.

    STEP has every and factor, COSINE and LINEAR have total_rounds and final_lr, LINEAR has power.
    0 stands for the default.
    """

    kind: str = "CONSTANT"
    warmup_rounds: int = 0
    every: int = 0
    factor: float = 0.0
    total_rounds: int = 0
    final_lr: float = 0.0
    begin_round: int = 0
    power: float = 0.0


@dataclasses.dataclass
class OptimizerSpec:
    """An optimizer and its numbers. `kind` is NONE, SGD, ADAM, ADAMW, ONEBIT_ADAM or TEST."""

    kind: str = "NONE"
    learning_rate: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = 0.0
    average: bool = False
    freeze_after: int = 0
    schedule: Schedule = dataclasses.field(default_factory=Schedule)


# A schedule's fields whose names in the library differ.
_NAMES = {
    "every": "schedule_every",
    "factor": "schedule_factor",
    "begin_round": "schedule_begin_round",
    "power": "schedule_power",
}


class Optimizer:
    """The library's optimizer of a spec.

    InvalidArgumentError: an unknown kind, or a number that makes no sense.
    """

    def __init__(self, spec: OptimizerSpec) -> None:
        self.pointer = made_by(lib.slimps_optimizer_create, text(spec.kind.lower(), "optimizer"))
        for name, value in vars(spec).items():
            if name not in ("kind", "schedule"):
                self._set(name, value)
        for name, value in vars(spec.schedule).items():
            if name != "kind" and value:  # a kind refuses what other kinds have
                self._set(_NAMES.get(name, name), value)
        kind = text(spec.schedule.kind.lower(), "schedule")
        check(lib.slimps_optimizer_set(self.pointer, b"schedule", kind))

    def _set(self, name: str, value: float) -> None:
        check(lib.slimps_optimizer_set_number(self.pointer, name.encode("ascii"), value))

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            lib.slimps_optimizer_destroy(self.pointer)
