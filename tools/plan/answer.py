# SPDX-License-Identifier: Apache-2.0
"""A plan in words and as JSON: the answer first, then what would change it. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional

from bench.common import text_table
from plan import systems
from plan.terms import Cluster, Costs, Model

LOW_GBIT, HIGH_GBIT = 0.01, 400.0
LOW_COMPUTE, HIGH_COMPUTE = 1 / 32, 32.0  # times the compute of the plan
STEPS = 9  # halvings of a search's interval: to within 3 % of the value
EFFICIENCIES = (0.8, 0.9, 0.95)
Measured = Mapping[str, float]  # system -> ms


@dataclasses.dataclass(frozen=True)
class Case:
    """A set-up that a search changes."""

    model: Model
    cluster: Cluster
    costs: Costs
    tell: systems.Tell = systems.tell_nobody

    def at_gbit(self, gbit: float) -> Case:
        return dataclasses.replace(
            self, cluster=dataclasses.replace(self.cluster, bits_per_second=gbit * 1e9)
        )

    def with_compute(self, times: float) -> Case:
        return dataclasses.replace(self, model=self.model.scaled(self.model.compute_ms() * times))

    def predicted(self, name: str) -> float:
        took = systems.predict(name, self.model, self.cluster, self.costs).predicted_ms
        self.tell(name)
        return took

    def pays(self, plan: systems.Plan) -> bool:
        """True if one of the plan's compressing systems is faster here than all their baselines."""
        limit = min(map(self.predicted, systems.baselines_of(plan.compressing))) / systems.EVEN
        if limit <= self.model.compute_ms():
            return False  # nothing takes less
        return any(self.predicted(name) < limit for name in plan.compressing)

    def efficiency(self, name: str) -> float:
        """Returns the fraction of an iteration in which the accelerator computes."""
        return self.model.compute_ms() / self.predicted(name)


def search(holds: Callable[[float], bool], low: float, high: float) -> Optional[float]:
    """Returns where `holds` changes between low and high, by halving ratios; None: it does not.

    `holds` must change at most once.
    """
    at_low = holds(low)
    if at_low == holds(high):
        return None
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        if holds(middle) == at_low:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5


def breaking_gbit(case: Case, plan: systems.Plan) -> Optional[float]:
    return search(lambda gbit: case.at_gbit(gbit).pays(plan), LOW_GBIT, HIGH_GBIT)


def breaking_compute(case: Case, plan: systems.Plan) -> Optional[float]:
    """Returns the factor of compute at which the answer turns."""
    return search(lambda times: case.with_compute(times).pays(plan), LOW_COMPUTE, HIGH_COMPUTE)


def bandwidth_for(case: Case, name: str) -> list[dict[str, Any]]:
    """Returns the slowest link with which a system reaches each efficiency.

    LOW_GBIT: no slower link was looked at. None: no link will do.
    """

    def gbit_for(wanted: float) -> Optional[float]:
        def holds(gbit: float) -> bool:
            return case.at_gbit(gbit).efficiency(name) > wanted

        return LOW_GBIT if holds(LOW_GBIT) else search(holds, LOW_GBIT, HIGH_GBIT)

    return [{"efficiency": wanted, "gbit": gbit_for(wanted)} for wanted in EFFICIENCIES]


def first_line(plan: systems.Plan) -> str:
    best, base = plan.of(plan.best), plan.of(plan.baseline)
    times = "%s takes %.1f ms an iteration, %s %.1f ms" % (
        plan.best,
        best.predicted_ms,
        plan.baseline,
        base.predicted_ms,
    )
    if plan.pays():
        return "Compression pays: %s, so %.2f times as fast." % (times, plan.gain())
    if plan.gain() * systems.EVEN < 1:
        return "Compression does not pay: %s, so %.2f times as slow." % (times, 1 / plan.gain())
    return "Compression does not pay: %s, which is the same within 2 %%." % times


def changes(
    case: Case, plan: systems.Plan, batch: float, gbit: Optional[float], compute: Optional[float]
) -> list[str]:
    """Returns what would change the answer, given the breaking points."""
    now, other = ("pays", "no longer pays") if plan.pays() else ("does not pay", "pays")
    lines = []
    bits = case.cluster.bits_per_second
    if gbit is None:
        lines.append(
            "bandwidth: it %s at any rate from %g Mbit/s to %g Gbit/s"
            % (now, 1e3 * LOW_GBIT, HIGH_GBIT)
        )
    else:
        way = "down" if bits is None or gbit < bits / 1e9 else "up"
        has = "an unshaped link" if bits is None else "%.3g" % (bits / 1e9)
        lines.append(
            "bandwidth: it %s from %.3g Gbit/s %s; the plan has %s" % (other, gbit, way, has)
        )
    before = case.model.compute_ms()
    if compute is None:
        lines.append(
            "compute: it %s at any time from %.3g to %.3g ms an iteration"
            % (now, before * LOW_COMPUTE, before * HIGH_COMPUTE)
        )
    else:
        way = "up" if compute > 1 else "down"
        lines.append(
            "compute: it %s from %.3g ms an iteration %s; the plan has %.3g"
            % (other, before * compute, way, before)
        )
        lines.append("batch: that is a batch of %.3g; the plan has %.3g" % (batch * compute, batch))
    return lines


def table(plan: systems.Plan, measured: Measured) -> list[str]:
    headings = ["system", "predicted ms", "bound ms", "x " + systems.BASELINE]
    headings += ["measured ms", "error %"] if measured else []
    rows = []
    for each in sorted(plan.systems, key=lambda row: row.predicted_ms):
        base = systems.baseline_of(each.system)
        row = [
            each.system,
            "%.1f" % each.predicted_ms,
            "%.1f" % each.bound_ms,
            "%.2f" % (plan.of(base).predicted_ms / each.predicted_ms),
        ]
        if measured:
            took = measured.get(each.system)
            row += (
                ["", ""]
                if took is None
                else ["%.1f" % took, "%+.1f" % (100 * (each.predicted_ms / took - 1))]
            )
        rows.append(row)
    return text_table(headings, rows)


def beside(plan: systems.Plan) -> list[str]:
    """Returns a line if DDP is predicted to be faster than everything here."""
    rows = [row for row in plan.systems if not row.ours]
    fastest = min(rows, key=lambda row: row.predicted_ms)
    ours = min(row.predicted_ms for row in plan.systems if row.ours)
    if fastest.predicted_ms * systems.EVEN >= ours:
        return []
    return [
        "beside: PyTorch's %s is predicted to take %.1f ms, less than anything here"
        % (fastest.system, fastest.predicted_ms)
    ]


def report(
    plan: systems.Plan, measured: Measured, bandwidth: list[dict[str, Any]], calibration: Any
) -> dict[str, Any]:
    """Returns what --json writes."""
    return {
        "pays": plan.pays(),
        "baseline": plan.baseline,
        "best": plan.best,
        "systems": [
            {
                "system": each.system,
                "predicted_ms": each.predicted_ms,
                "bound_ms": each.bound_ms,
                "measured_ms": measured.get(each.system),
            }
            for each in plan.systems
        ],
        "bandwidth_for": bandwidth,
        "calibration": calibration,
    }
