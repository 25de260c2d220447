# SPDX-License-Identifier: Apache-2.0
"""slimps plan --validate: predicted beside measured times, over many small set-ups.

A set-up is a model, a link, a compute time and a system; it is measured beside its bf16, which all
systems of one model, link and compute time share. The order is shuffled by a fixed seed, so that a
part of the run has all kinds. Nothing is fitted to it.

Each job that was measured is kept at once. Predictions are made anew from what was measured, since
they belong to the calibration and to the planner of today.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import resource
import statistics
import time
from typing import Any, Iterator, Mapping, Optional, Sequence

from bench import common
from bench.cluster import cluster_bench, net
from cli import progress, setup
from plan import calibration, check, models, systems
from plan.terms import Cluster, Model
from slimps_launch import out_files, schema

# All nodes share this machine's cores here. So a place has a link that takes longer than the cores
# do; how six processes share two cores is not what a plan is asked.
MODELS = ("inception_bn", "lstm_ptb", "resnet50")
LINKS = ("500mbit", "700mbit", "1gbit")
CODECS = ("1bit", "2bit", "qsgd", "topk", "drive", "thc", "powersgd4")
COMPUTES = (0.3, 0.6, 0.9, 1.2)  # of the time that bf16's bytes take on the link
SYSTEMS = 10  # of each model, link and compute time
SET_UPS = 125  # the first ones of the run's order
NODES = 2
MOST_MS = 460.0  # places whose bf16 takes longer on the link are left out
MOST_BUSY = 0.1  # a job is run again if others took more of the cores than that
SEED = 20
EVEN_NEAR = 1.25  # within this factor of break-even the answer is close
# What plans take their expected error from; --validate with this file adds to it.
MEASURED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "set_ups.json")
TARGETS = "aim: signs 95 %, median 5 %, worst 20 %"

JOB = {
    "model": schema.TEXT,
    "link": schema.TEXT,
    "compute_ms": schema.POSITIVE,
    "system": schema.TEXT,
    "measured_ms": schema.POSITIVE,
    "others": schema.NUMBER,  # the part of the cores that other processes took meanwhile
    "predicted_ms": schema.NUMBER_OR_NULL,  # null: not yet
}
Job = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Place:
    """What the systems that are compared have in common."""

    model: str
    link: str
    compute_ms: float


def place_of(job: Job) -> Place:
    return Place(job["model"], job["link"], job["compute_ms"])


@dataclasses.dataclass(frozen=True)
class SetUp:
    """One system beside its baseline. Each pair is: predicted, measured."""

    place: Place
    system: str
    ms: tuple[float, float]
    base_ms: tuple[float, float]

    def gains(self) -> tuple[float, float]:
        """Returns how many times as fast as the baseline it is."""
        return self.base_ms[0] / self.ms[0], self.base_ms[1] / self.ms[1]

    def sign_is_right(self) -> bool:
        """True if both say the same. Within 2 % of break-even either sign counts."""
        predicted, measured = self.gains()
        near = 1 / systems.EVEN <= measured <= systems.EVEN
        return near or (predicted > 1) == (measured > 1)

    def is_near(self) -> bool:
        return 1 / EVEN_NEAR <= self.gains()[1] <= EVEN_NEAR

    def error(self) -> float:
        """Returns the prediction's error as a part of what was measured."""
        return self.ms[0] / self.ms[1] - 1


def rate_of(link: str) -> float:
    return net.bits_per_second(link)


def wire_ms(model: Model, link: str) -> float:
    """Returns the time of bf16's bytes on the link."""
    return 8e3 * model.gradient_bytes() / 2 / rate_of(link)


def chosen(known: Mapping[str, Model]) -> Iterator[tuple[Place, list[str]]]:
    """Yields places and the systems to be measured there, baselines first, in the run's order."""
    grid = list(itertools.product(MODELS, LINKS, COMPUTES))
    dice = random.Random(SEED)
    dice.shuffle(grid)
    every = [codec + end for codec in CODECS for end in ("", systems.BACKUP)]
    left = SET_UPS
    for name, link, part in grid:
        names = dice.sample(every, SYSTEMS)[:left]
        wire = wire_ms(known[name], link)
        if names and wire <= MOST_MS:
            left -= len(names)
            bases = sorted(systems.baselines_of(names))
            yield Place(name, link, round(wire * part, 3)), bases + names


def cluster_of(link: str) -> Cluster:
    return check.bench_cluster_of(
        Cluster(workers=NODES, bits_per_second=rate_of(link)), len(os.sched_getaffinity(0))
    )


def load(path: str) -> list[Job]:
    """Returns the jobs so far. SetupError: the file holds something else."""
    if not os.path.exists(path) or out_files.is_special(path):
        return []
    try:
        jobs = out_files.load_json(path)
        schema.check(jobs, [JOB])
    except ValueError as error:
        raise setup.SetupError("%s holds no set-ups: %s" % (path, error)) from error
    return list(jobs)


def save(path: str, jobs: Sequence[Job]) -> None:
    """Writes the jobs, one a line. LaunchError: the file cannot be written."""
    out_files.save_text(path, "[\n%s\n]\n" % ",\n".join(map(json.dumps, jobs)))


def set_ups_of(jobs: Sequence[Job]) -> list[SetUp]:
    """Returns the set-ups whose system and baseline are both measured and predicted."""
    times = {
        (place_of(job), job["system"]): (job["predicted_ms"], job["measured_ms"])
        for job in jobs
        if job["predicted_ms"] is not None
    }
    return [
        SetUp(place, name, ms, times[place, systems.baseline_of(name)])
        for (place, name), ms in times.items()
        if name != systems.baseline_of(name) and (place, systems.baseline_of(name)) in times
    ]


class Busyness:
    """How busy this machine is from now on with what this process has not started."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._all, self._ours = all_cpu_s(), children_cpu_s()

    def of_others(self) -> float:
        """Returns the part of the cores' time. The children that have ended count as ours."""
        took = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        ours = children_cpu_s() - self._ours
        return max(0.0, (all_cpu_s() - self._all - ours) / took)


def all_cpu_s() -> float:
    """Returns what all processes of the machine have used; interrupts are nobody's."""
    with open("/proc/stat", encoding="utf-8") as lines:
        user, nice, system = lines.readline().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Run:
    """One run of the validation. Owned by the main thread."""

    def __init__(self, options: argparse.Namespace, content: calibration.Content) -> None:
        self.path = options.validate
        self.costs = calibration.costs_of(content)
        self.specs = check.specs_of(content)
        self.programs = common.find_programs(
            {**cluster_bench.PROGRAMS, **models.PROGRAM}, options.programs
        )
        self.models = {name: models.find(name, self.programs["describe_model"]) for name in MODELS}
        self.jobs = load(self.path)

    def missing(self) -> list[tuple[Place, str]]:
        """Returns what is not measured yet, then what was measured while others were busy."""
        others = {(place_of(job), job["system"]): job["others"] for job in self.jobs}
        every = [(place, name) for place, names in chosen(self.models) for name in names]
        return [one for one in every if one not in others] + [
            one for one in every if others.get(one, 0.0) > MOST_BUSY
        ]

    def go_on(self, most: Optional[int]) -> None:
        """Measures at most `most` missing jobs (None: all), and keeps each."""
        missing = self.missing()[:most]
        if not missing:
            return
        with check.bench(NODES, "together", self.programs, self.specs) as measure, progress.Bar(
            len(missing), "jobs"
        ) as bar:
            for place, name in missing:
                busy = Busyness()
                took = measure(name, place.model, place.compute_ms, place.link)
                others = busy.of_others()
                self.keep(place, name, took, others)
                progress.note(
                    "%s %s, compute %.0f ms, %s: %.1f ms; others took %.0f %% of the cores"
                    % (*(place.model, place.link, place.compute_ms, name, took), 100 * others)
                )
                bar.advance()

    def keep(self, place: Place, name: str, took: float, others: float) -> None:
        """Keeps what was measured. Of two measurements of one job, the less disturbed counts."""
        same = [job for job in self.jobs if (place_of(job), job["system"]) == (place, name)]
        if any(job["others"] <= others for job in same):
            return
        job = {
            **dataclasses.asdict(place),
            "system": name,
            "measured_ms": round(took, 2),
            "others": round(others, 3),
            "predicted_ms": None,
        }
        self.jobs = [job for job in self.jobs if job not in same] + [job]
        save(self.path, self.jobs)

    def predict(self) -> None:
        """Predicts all jobs, and keeps that."""
        with progress.Bar(len(self.jobs), "predictions") as bar:
            for job in self.jobs:
                model = self.models[job["model"]].scaled(job["compute_ms"])
                found = systems.predict(job["system"], model, cluster_of(job["link"]), self.costs)
                job["predicted_ms"] = round(found.predicted_ms, 2)
                bar.advance(job["system"])
        save(self.path, self.jobs)


def expected_error(jobs: Sequence[Job]) -> Optional[dict[str, Any]]:
    """Returns what the jobs say of other predictions. None: no set-up is predicted."""
    errors = [100 * abs(each.error()) for each in set_ups_of(jobs)]
    if not errors:
        return None
    return {
        "set_ups": len(errors),
        "median_percent": statistics.median(errors),
        "worst_percent": max(errors),
    }


def summary(jobs: Sequence[Job]) -> str:
    """Returns one line of what the set-ups come to. REQUIRES: a set-up is predicted."""
    expected = expected_error(jobs)
    assert expected is not None
    found = set_ups_of(jobs)
    right = sum(each.sign_is_right() for each in found)
    near = sum(each.is_near() for each in found)
    return (
        "%d set-ups, %d within 25 %% of break-even: sign right in %.1f %%; error of the "
        "iteration's time %.1f %% in the median, %.1f %% at worst (%s)"
        % (
            len(found),
            near,
            100 * right / len(found),
            expected["median_percent"],
            expected["worst_percent"],
            TARGETS,
        )
    )


def markdown(jobs: Sequence[Job]) -> str:
    """Returns the table for docs/measurements/planner.md."""
    headings = ["model", "link", "compute ms", "system", "measured ms", "predicted ms", "error %"]
    headings += ["x bf16", "predicted", "sign"]
    cells = []
    for each in sorted(
        set_ups_of(jobs),
        key=lambda each: (
            each.place.model,
            rate_of(each.place.link),
            each.place.compute_ms,
            each.system,
        ),
    ):
        predicted, measured = each.gains()
        cells.append(
            [each.place.model, each.place.link, "%.0f" % each.place.compute_ms, each.system]
            + ["%.1f" % each.ms[1], "%.1f" % each.ms[0], "%+.1f" % (100 * each.error())]
            + ["%.2f" % measured, "%.2f" % predicted]
            + ["right" if each.sign_is_right() else "WRONG"]
        )
    return "\n".join(common.markdown_table(headings, cells))


def main(options: argparse.Namespace, content: calibration.Content) -> int:
    run = Run(options, content)
    run.go_on(options.most)
    run.predict()
    if set_ups_of(run.jobs):
        print(markdown(run.jobs))
        print(summary(run.jobs))
    return 0
