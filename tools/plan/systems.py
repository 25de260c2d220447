# SPDX-License-Identifier: Apache-2.0
"""The systems of a plan, and what each is predicted to take. Pure."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Callable, Iterable, Optional, Sequence

from plan import exchanges, ring
from plan.simulator import simulate
from plan.terms import RAW, Cluster, Costs, Model, System

BASELINE = "bf16"
BACKUP = "+backup"
# worker/combination.cc refuses signsgd, dgc and powersgd for pulls. The others are random and may
# be further from a change than zero is; the servers then send whole weights
# (server/round/change_encoder.h).
PUSHES_ONLY = ("signsgd", "dgc", "qsgd", "terngrad", "dithering", "atomo", "powersgd4")
EVEN = 1.02  # a smaller difference than this factor is none
DDP_BF16 = "ddp_bf16"
DDP_POWERSGD = "ddp_powersgd"
Tell = Callable[[str], object]  # is called with a system's name once it is predicted


def tell_nobody(name: str) -> None:
    del name


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One system. `ours` False: it stands beside, and cannot be chosen here.

    bound_ms: the largest of compute, the link's bytes at its rate, the work on all cores.
    sent_bytes: payloads that a worker pushes in an iteration.
    """

    system: str
    predicted_ms: float
    bound_ms: float
    sent_bytes: float = 0.0
    ours: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """All predictions of one set-up."""

    systems: tuple[Prediction, ...]
    best: str  # the fastest that compresses; if several are, the one that sends most
    baseline: str  # bf16 with the backup model where `best` has it, else without
    compressing: tuple[str, ...]  # all that compress, the fastest first

    def of(self, name: str) -> Prediction:
        return next(each for each in self.systems if each.system == name)

    def gain(self) -> float:
        return self.of(self.baseline).predicted_ms / self.of(self.best).predicted_ms

    def pays(self) -> bool:
        return self.gain() > EVEN


def codec_of(name: str) -> str:
    codec = name[: -len(BACKUP)] if name.endswith(BACKUP) else name
    return RAW if codec == "fp32" else codec


def find(name: str) -> System:
    """Returns the system: its codec both ways for every tensor, coalescing, priorities.

    Pulls are bf16 where the codec cannot carry weights.
    """
    codec = codec_of(name)
    pull = BASELINE if codec.partition(":")[0] in PUSHES_ONLY else codec
    return System(name=name, push=codec, pull=pull, backup=name.endswith(BACKUP))


def names_of(codecs: Iterable[str]) -> list[str]:
    """Returns the names of all systems, for the codecs of a calibration."""
    chosen = ["fp32", BASELINE] + sorted(
        codec for codec in codecs if codec not in (RAW, BASELINE, "fp32")
    )
    return [name + end for name in chosen for end in ("", BACKUP)]


def plannable(model: Model, costs: Costs) -> list[str]:
    """Returns the codecs that can be planned for the model: without shapes, none of low rank."""
    shapes = exchanges.has_shapes(model)
    return [codec for codec in costs.codecs if shapes or not exchanges.needs_shapes(costs, codec)]


def left_out(model: Model, costs: Costs) -> list[str]:
    known = plannable(model, costs)
    return sorted(codec for codec in costs.codecs if codec not in known)


def baseline_of(name: str) -> str:
    return BASELINE + (BACKUP if name.endswith(BACKUP) else "")


def baselines_of(names: Iterable[str]) -> set[str]:
    return {baseline_of(name) for name in names}


def predict(name: str, model: Model, cluster: Cluster, costs: Costs) -> Prediction:
    """Simulates one system. KeyError: `costs` has no such codec."""
    result = simulate(model, find(name), cluster, costs)
    rate = cluster.bytes_per_ms()
    wire = 0.0 if rate is None else result.wire_bytes / rate
    machines = 1 if cluster.one_machine else len(set(cluster.places()))
    cores = cluster.cores * machines
    bound = max(model.compute_ms(), wire, result.cpu_ms / cores)
    sent = exchanges.pushed_bytes(model, find(name), cluster.servers, costs)
    return Prediction(name, result.iteration_ms, bound, sent)


def beside(model: Model, cluster: Cluster) -> list[Prediction]:
    """Returns DDP's times. Without shapes there is no ddp_powersgd."""
    half = model.gradient_bytes() / 2
    wire = dataclasses.replace(cluster, round_trip_ms=0.0)
    rows = [
        Prediction(
            DDP_BF16,
            ring.ddp_ms(model, cluster, 2.0),
            max(model.compute_ms(), ring.ring_ms(wire, half)),
            ours=False,
        )
    ]
    took = ring.powersgd_ms(model, cluster)
    if took is not None:
        # What it computes beyond the model counts as its own, so the bound is the model's.
        rows.append(Prediction(DDP_POWERSGD, took, model.compute_ms(), ours=False))
    return rows


def make_plan(
    model: Model,
    cluster: Cluster,
    costs: Costs,
    names: Optional[Iterable[str]] = None,
    tell: Tell = tell_nobody,
) -> Plan:
    """Predicts all systems, or `names` and the baselines that they and DDP need.

    ValueError: there is no such system, or none of them compresses.
    """
    known = names_of(plannable(model, costs))
    wanted = list(names or known)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ValueError(
                "unknown system '%s'%s; the calibration has %s"
                % (name, ": did you mean '%s'?" % near[0] if near else "", ", ".join(known))
            )
    needed = {BASELINE} | baselines_of(wanted)
    wanted += sorted(needed - set(wanted))
    rows = []
    for name in wanted:
        rows.append(predict(name, model, cluster, costs))
        tell(name)
    by_time = sorted(rows, key=lambda row: row.predicted_ms)
    sent = next(row.sent_bytes for row in rows if row.system == BASELINE)
    compressing = [row for row in by_time if row.sent_bytes < sent]
    if not compressing:
        raise ValueError("none of the systems compresses: %s" % ", ".join(wanted))
    names = tuple(row.system for row in compressing)
    base = next(row for row in by_time if row.system in baselines_of(names))
    paying = [row for row in compressing if EVEN * row.predicted_ms < base.predicted_ms]
    baseline = baseline_of(paying[0].system) if paying else base.system
    best = best_of([row for row in paying or compressing if baseline_of(row.system) == baseline])
    return Plan(tuple(rows + beside(model, cluster)), best.system, baseline, names)


def best_of(rows: Sequence[Prediction]) -> Prediction:
    """Returns, of the rows that are as fast as the fastest, the one that sends most.

    What makes no difference to the time should not cost accuracy. REQUIRES: rows is not empty.
    """
    limit = EVEN * min(row.predicted_ms for row in rows)
    return max(
        (row for row in rows if row.predicted_ms <= limit),
        key=lambda row: (row.sent_bytes, -row.predicted_ms),
    )
