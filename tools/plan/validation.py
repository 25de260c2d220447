# SPDX-License-Identifier: Apache-2.0
"""slimps plan --validate: predicted beside measured times, over many small set-ups.

A set-up is a model, a link, a compute time and a system; it is measured beside its bf16. The order
is shuffled by a fixed seed, so that a part of the run has all kinds. Nothing is fitted to it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import random
import statistics
import sys
from typing import Any, Mapping, Sequence

from bench import common
from bench.cluster import cluster_bench, net
from cli import setup
from plan import calibration, check, models, systems
from plan.terms import Cluster, Costs, Model
from slimps_launch import out_files, schema

MODELS = ("inception_bn", "resnet50", "lstm_ptb", "alexnet")
LINKS = ("100mbit", "300mbit", "1gbit", "3gbit", "unshaped")
CODECS = ("1bit", "2bit", "qsgd", "topk")
# Compute over the time that bf16's bytes take on the link; unshaped: at 3 Gbit/s.
COMPUTES = (0.25, 1.0, 1.7)
NODES = 2
MOST_MS = 1500.0  # set-ups whose bf16 takes longer are left out
SEED = 20
EVEN_NEAR = 1.25  # within this factor of break-even the answer is close
# What plans take their expected error from; --validate with this file adds to it.
MEASURED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "set_ups.json")
TARGETS = "aim: signs 95 %, median 5 %, worst 20 %"

ROW = {
    "model": schema.TEXT,
    "link": schema.TEXT,
    "system": schema.TEXT,
    "compute": schema.POSITIVE,
    "compute_ms": schema.POSITIVE,
    "predicted_ms": schema.POSITIVE,
    "measured_ms": schema.POSITIVE,
    "base_predicted_ms": schema.POSITIVE,
    "base_measured_ms": schema.POSITIVE,
}
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SetUp:
    model: str
    link: str
    system: str
    compute: float  # of COMPUTES

    def is_of(self, row: Row) -> bool:
        return (row["model"], row["link"], row["system"], row["compute"]) == dataclasses.astuple(
            self
        )


def set_ups() -> list[SetUp]:
    """Returns all set-ups in the order in which they are run."""
    ends = ("", systems.BACKUP)
    grid = itertools.product(MODELS, LINKS, CODECS, ends, COMPUTES)
    chosen = [SetUp(model, link, codec + end, part) for model, link, codec, end, part in grid]
    random.Random(SEED).shuffle(chosen)
    return chosen


def rate_of(link: str) -> float:
    return net.bits_per_second("3gbit" if link == "unshaped" else link)


def compute_ms(model: Model, set_up: SetUp) -> float:
    wire = 8e3 * model.gradient_bytes() / 2 / rate_of(set_up.link)
    return round(wire * set_up.compute, 3)


def cluster_of(link: str) -> Cluster:
    bits = None if link == "unshaped" else net.bits_per_second(link)
    return check.bench_cluster_of(
        Cluster(workers=NODES, bits_per_second=bits), len(os.sched_getaffinity(0))
    )


def load(path: str) -> list[dict[str, Any]]:
    """Returns the rows so far. SetupError: the file holds something else."""
    if not os.path.exists(path) or out_files.is_special(path):
        return []
    try:
        rows = out_files.load_json(path)
        schema.check(rows, [ROW])
    except ValueError as error:
        raise setup.SetupError("--validate: %s holds no set-ups: %s" % (path, error)) from error
    return list(rows)


class Run:
    """One run of the validation. Owned by the main thread."""

    def __init__(self, options: argparse.Namespace, content: calibration.Content) -> None:
        self.options = options
        self.costs: Costs = calibration.costs_of(content)
        self.specs = check.specs_of(content)
        self.programs = common.find_programs(
            {**cluster_bench.PROGRAMS, **models.PROGRAM}, options.programs
        )
        self.models = {name: models.find(name, self.programs["describe_model"]) for name in MODELS}
        self.rows = load(options.validate)

    def go_on(self) -> None:
        """Runs what is missing, and saves each set-up."""
        left = self.options.most
        for set_up in set_ups():
            if left == 0:
                return
            if any(set_up.is_of(row) for row in self.rows):
                continue
            row = self.predicted(set_up)
            if row["base_predicted_ms"] > MOST_MS:
                continue
            self.measure(set_up, row)
            self.rows.append(row)
            out_files.save_json(self.options.validate, self.rows)
            print(line_of(row), file=sys.stderr, flush=True)
            left = None if left is None else left - 1

    def predicted(self, set_up: SetUp) -> dict[str, Any]:
        model = self.models[set_up.model]
        model = model.scaled(compute_ms(model, set_up))
        cluster = cluster_of(set_up.link)
        base = systems.baseline_of(set_up.system)
        return {
            **dataclasses.asdict(set_up),
            "compute_ms": model.compute_ms(),
            "predicted_ms": systems.predict(set_up.system, model, cluster, self.costs).predicted_ms,
            "base_predicted_ms": systems.predict(base, model, cluster, self.costs).predicted_ms,
        }

    def measure(self, set_up: SetUp, row: dict[str, Any]) -> None:
        """Adds measured times: bf16 first, then the system, in one network."""
        rate = None if set_up.link == "unshaped" else set_up.link
        options = check.bench_options(NODES, "together", rate)
        with check.bench(options, self.programs, self.specs) as measure:
            base = systems.baseline_of(set_up.system)
            row["base_measured_ms"] = measure(base, set_up.model, row["compute_ms"])
            row["measured_ms"] = measure(set_up.system, set_up.model, row["compute_ms"])


def gains(row: Row) -> tuple[float, float]:
    """Returns how many times as fast as bf16 it is: predicted, measured."""
    return (
        row["base_predicted_ms"] / row["predicted_ms"],
        row["base_measured_ms"] / row["measured_ms"],
    )


def sign_is_right(row: Row) -> bool:
    """True if both say the same. Within 2 % of break-even either sign counts."""
    predicted, measured = gains(row)
    near = 1 / systems.EVEN <= measured <= systems.EVEN
    return near or (predicted > 1) == (measured > 1)


def error_of(row: Row) -> float:
    return abs(row["predicted_ms"] / row["measured_ms"] - 1)


def line_of(row: Row) -> str:
    return (
        "%s %s %s, compute %.0f ms: %.1f ms, predicted %.1f (%+.1f %%); x bf16 %.2f, predicted %.2f"
        % (
            row["model"],
            row["link"],
            row["system"],
            row["compute_ms"],
            row["measured_ms"],
            row["predicted_ms"],
            100 * (row["predicted_ms"] / row["measured_ms"] - 1),
            gains(row)[1],
            gains(row)[0],
        )
    )


def expected_error(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns what the rows say of other predictions. REQUIRES: rows is not empty."""
    errors = [100 * error_of(row) for row in rows]
    return {
        "set_ups": len(rows),
        "median_percent": statistics.median(errors),
        "worst_percent": max(errors),
    }


def summary(rows: Sequence[Row]) -> str:
    """Returns one line of what the rows come to. REQUIRES: rows is not empty."""
    expected = expected_error(rows)
    right = sum(sign_is_right(row) for row in rows)
    near = sum(1 / EVEN_NEAR <= gains(row)[1] <= EVEN_NEAR for row in rows)
    return (
        "%d set-ups, %d within 25 %% of break-even: sign right in %.1f %%; error of the "
        "iteration's time %.1f %% in the median, %.1f %% at worst (%s)"
        % (
            len(rows),
            near,
            100 * right / len(rows),
            expected["median_percent"],
            expected["worst_percent"],
            TARGETS,
        )
    )


def markdown(rows: Sequence[Row]) -> str:
    """Returns the table for docs/measurements/planner.md."""
    headings = ["model", "link", "system", "compute ms", "measured ms", "predicted ms", "error %"]
    headings += ["x bf16", "predicted", "sign"]
    cells = []
    for row in sorted(
        rows, key=lambda row: (row["model"], rate_of(row["link"]), row["system"], row["compute_ms"])
    ):
        predicted, measured = gains(row)
        cells.append(
            [row["model"], row["link"], row["system"], "%.0f" % row["compute_ms"]]
            + ["%.1f" % row["measured_ms"], "%.1f" % row["predicted_ms"]]
            + ["%+.1f" % (100 * (row["predicted_ms"] / row["measured_ms"] - 1))]
            + ["%.2f" % measured, "%.2f" % predicted]
            + ["right" if sign_is_right(row) else "WRONG"]
        )
    return "\n".join(common.markdown_table(headings, cells))


def main(options: argparse.Namespace, content: calibration.Content) -> int:
    run = Run(options, content)
    run.go_on()
    if run.rows:
        print(markdown(run.rows))
        print(summary(run.rows))
    return 0
