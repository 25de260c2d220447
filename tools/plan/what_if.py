# SPDX-License-Identifier: Apache-2.0
"""slimps plan --what_if: how the answer changes with one thing, as a table and a picture. Pure."""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional, Sequence
from xml.sax.saxutils import escape

from bench.common import text_table
from cli import curves_svg
from plan import answer, systems

GBITS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
TIMES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
RATIOS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Milliseconds of each system at each value. `unit` is the heading of the values."""

    unit: str
    values: tuple[float, ...]
    systems: tuple[str, ...]
    times: tuple[tuple[float, ...], ...]  # by value, then by system


def make(what: str, case: answer.Case, plan: systems.Plan, batch: float) -> Sweep:
    """Returns a sweep of "bandwidth", "batch", "compute" or "ratio"."""
    best, base = plan.best, plan.baseline
    other = "fp32" + (systems.BACKUP if best.endswith(systems.BACKUP) else "")
    names = (other, base, best)
    if what == "bandwidth":
        return _swept("Gbit/s", GBITS, names, case.at_gbit)
    if what == "compute":
        before = case.model.compute_ms()
        return _swept(
            "compute ms",
            [before * times for times in TIMES],
            names,
            lambda value: case.with_compute(value / before),
        )
    if what == "batch":
        return _swept(
            "batch",
            [batch * times for times in TIMES],
            names,
            lambda value: case.with_compute(value / batch),
        )
    return _swept("ratio", RATIOS, (base, best), lambda value: with_ratio(case, best, value))


def with_ratio(case: answer.Case, best: str, ratio: float) -> answer.Case:
    """Returns the case with 1 / ratio of fp32's bytes as the payload of the codec of `best`."""
    name = systems.codec_of(best)
    codec = dataclasses.replace(case.costs.codecs[name], ratio=ratio)
    costs = dataclasses.replace(case.costs, codecs={**case.costs.codecs, name: codec})
    return dataclasses.replace(case, costs=costs)


def _swept(
    unit: str, values: Sequence[float], names: Sequence[str], at: Callable[[float], answer.Case]
) -> Sweep:
    times = []
    for value in values:
        case = at(value)
        times.append(tuple(case.predicted(name) for name in names))
    return Sweep(unit, tuple(values), tuple(names), tuple(times))


def table(sweep: Sweep) -> list[str]:
    """Returns the table's lines; the last column says how much faster the last system is."""
    base = sweep.systems.index(
        next(name for name in sweep.systems if name.startswith(systems.BASELINE))
    )
    return text_table(
        [sweep.unit] + [name + " ms" for name in sweep.systems] + ["x " + systems.BASELINE],
        [
            ["%.4g" % value]
            + ["%.1f" % took for took in times]
            + ["%.2f" % (times[base] / times[-1])]
            for value, times in zip(sweep.values, sweep.times)
        ],
    )


def picture(sweep: Sweep, title: str, now: Optional[float]) -> str:
    """Returns an SVG: a line for each system, both axes logarithmic; `now` is the plan's value."""
    took = [time for times in sweep.times for time in times]
    across = curves_svg.logarithmic_axis(
        sweep.unit, sweep.values[0], sweep.values[-1], "{:g}".format
    )
    up = curves_svg.logarithmic_axis("ms an iteration", min(took), max(took), "{:g}".format)
    curves = [curves_svg.Curve(name, []) for name in sweep.systems]
    left, top, width, height = (
        curves_svg.LEFT,
        curves_svg.TOP,
        curves_svg.PLOT_WIDTH,
        curves_svg.PLOT_HEIGHT,
    )

    def place(value: float, time: float) -> tuple[float, float]:
        return left + width * across.place(value), top + height * (1 - up.place(time))

    body = [curves_svg.text(left, 20, title, "heading")] + curves_svg.legend(curves)
    body += curves_svg.frame(left, across, up)
    if now is not None and sweep.values[0] <= now <= sweep.values[-1]:
        x = left + width * across.place(now)
        body.append(
            '<path d="M%.1f %.1fV%.1f" stroke="#222" stroke-dasharray="4 3"/>'
            % (x, top, top + height)
        )
    for index, name in enumerate(sweep.systems):
        colour = curves_svg.COLOURS[index]
        points = [place(value, times[index]) for value, times in zip(sweep.values, sweep.times)]
        line = " ".join("%.1f,%.1f" % point for point in points)
        body.append(
            '<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (line, colour)
        )
        for (x, y), value, times in zip(points, sweep.values, sweep.times):
            tip = "%s: %.1f ms at %.4g %s" % (name, times[index], value, sweep.unit)
            body.append(
                '<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s</title></circle>'
                % (x, y, colour, escape(tip))
            )
    size = left + width + 20, top + height + 46
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g">\n'
        '<style>%s</style>\n<rect width="%g" height="%g" fill="#fff"/>\n%s\n</svg>\n'
        % (*size, *size, curves_svg.STYLE, *size, "\n".join(body))
    )
