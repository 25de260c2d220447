# SPDX-License-Identifier: Apache-2.0
"""slimps plan: does compression pay here, and how much, against bf16?"""

from __future__ import annotations

import argparse
import os
from typing import Any, Mapping, Optional, Sequence

from bench import common
from bench.cluster import cluster_bench, net
from bench.codec import codec_tables
from cli import progress, setup
from plan import answer, calibrate, calibration, check, models, plan_options, systems, validation
from plan import what_if
from plan.terms import Cluster, Model
from slimps_launch import out_files

REFERENCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference.json")


def read_calibration(options: argparse.Namespace) -> calibration.Content:
    """Returns the calibration of the flags, or the reference. SetupError: it is refused."""
    try:
        if options.calibration is None:
            return calibration.load(REFERENCE)
        content = calibration.load(options.calibration)
        if not options.other_machine:
            calibration.check_machine(content, calibration.this_machine(), options.calibration)
        return content
    except calibration.Refused as error:
        raise setup.SetupError("--calibration: %s" % error) from error


def read_model(options: argparse.Namespace) -> Model:
    """Returns the model with its compute time. SetupError: there is none."""
    if models.is_trace(options.model):
        model = models.of_trace(options.model)
        return model if options.compute_ms is None else model.scaled(options.compute_ms)
    programs = common.find_programs(models.PROGRAM, options.programs)
    model = models.find(options.model, programs["describe_model"])
    return model.scaled(options.compute_ms or published_ms(model))


def published_ms(model: Model) -> float:
    """Returns the compute time by the model's published ratio, at 1 Gbit/s, as the bench has it."""
    assert model.ratio is not None
    return 8e3 * model.gradient_bytes() / 1e9 / model.ratio


def cluster_of(options: argparse.Namespace, content: calibration.Content) -> Cluster:
    link = content["link"]
    if options.link == plan_options.MEASURED:
        bits: Optional[float] = link["bits_per_second"]
        delay, efficiency = link["round_trip_ms"], 1.0  # of the bits that were measured
    else:
        bits = None if options.rate is None else net.bits_per_second(options.rate)
        delay, efficiency = options.round_trip_ms, Cluster.efficiency
    return Cluster(
        workers=options.workers,
        servers=options.servers,
        together=options.placement == "together",
        bits_per_second=bits,
        round_trip_ms=delay,
        efficiency=efficiency,
        cores=options.cores or content["machines"][0]["cores"],
    )


def about(
    options: argparse.Namespace, content: calibration.Content, left_out: Sequence[str]
) -> dict[str, Any]:
    """Returns what --json says of the calibration."""
    return {
        "file": options.calibration,
        "machines": content["machines"],
        "sha256": content["sha256"],
        "left_out": list(left_out),
        "expected_error": validation.expected_error(validation.load(validation.MEASURED)),
    }


def remarks(said: Mapping[str, Any]) -> list[str]:
    """Returns lines of what holds for all predictions; `said` is what about() returns."""
    lines = []
    if said["expected_error"] is not None:
        lines.append(
            "expected error: %(median_percent).1f %% in the median, %(worst_percent).1f %% at "
            "worst, in %(set_ups)d measured set-ups" % said["expected_error"]
        )
    if said["left_out"]:
        lines.append(
            "left out: %s, which see matrices: a trace has no shapes" % ", ".join(said["left_out"])
        )
    if said["file"] is None:
        machine = calibration.machine_name(said["machines"][0])
        lines.append("calibration: none; codecs as on %s. --calibrate measures yours" % machine)
    return lines


def calibrate_now(options: argparse.Namespace) -> int:
    cluster = calibrate.job_cluster(options.on, options.workers, options.servers)
    programs = common.find_programs(codec_tables.PROGRAM, options.programs)
    command = calibrate.launch_command(
        options.on, options.workers, options.servers, programs["bench_codec"], options.quick
    )
    content = calibrate.content_of(calibrate.run(command, options.workers), cluster)
    out_files.save_json(options.calibration, content)
    link = content["link"]
    print(
        "calibration in %s: %s; %d codecs, link %.3g Gbit/s%s, round trip %.2f ms"
        % (
            options.calibration,
            "; ".join(calibration.machine_name(machine) for machine in content["machines"]),
            len({row["codec"] for row in content["codecs"]}),
            link["bits_per_second"] / 1e9,
            " or more" if link["bits_per_second"] >= 1e9 * answer.HIGH_GBIT else "",
            link["round_trip_ms"],
        )
    )
    return 0


def measure(
    options: argparse.Namespace,
    content: calibration.Content,
    model: Model,
    plan: systems.Plan,
    measured: dict[str, float],
) -> None:
    """Runs the plan's own systems in the bench; `measured` gets each as it ends."""
    programs = common.find_programs(cluster_bench.PROGRAMS, options.programs)
    specs = check.specs_of(content)
    ours = [each for each in plan.systems if each.ours]
    with check.bench(options.workers, options.placement, programs, specs) as run:
        with progress.Bar(len(ours), "jobs") as bar:
            for each in ours:
                took = run(each.system, model.name, model.compute_ms(), options.rate)
                measured[each.system] = took
                predicted = each.predicted_ms
                progress.note("%s: %.1f ms, predicted %.1f" % (each.system, took, predicted))
                bar.advance()


def plan_now(options: argparse.Namespace) -> int:
    content = read_calibration(options)
    model = read_model(options)
    cluster = cluster_of(options, content)
    if options.check:
        if model.ratio is None:
            raise setup.SetupError("--check: bench cluster has no model of a trace")
        check.refuse(options.workers, options.placement)
        cluster = check.bench_cluster_of(cluster, len(os.sched_getaffinity(0)))
    found = about(options, content, systems.left_out(model, calibration.costs_of(content)))
    with progress.Bar(None, "predictions") as bar:
        case = answer.Case(model, cluster, calibration.costs_of(content), bar.advance)
        plan = say_plan(options, case, found)
        bandwidth = answer.bandwidth_for(case, plan.baseline) if options.json else []
        sweep = options.what_if and what_if.make(options.what_if, case, plan, options.batch)
    measured: dict[str, float] = {}
    try:
        if options.check:
            measure(options, content, model, plan, measured)
    finally:  # a job that fails takes nothing from the others
        print("\n".join(answer.table(plan, measured)), flush=True)
        if options.json:
            out_files.save_json(options.json, answer.report(plan, measured, bandwidth, found))
    if sweep:
        show_sweep(options, case, sweep)
    return 0


def say_plan(
    options: argparse.Namespace, case: answer.Case, found: Mapping[str, Any]
) -> systems.Plan:
    """Makes the plan, and says it but for its table. `found` is what about() returns."""
    try:
        plan = systems.make_plan(case.model, case.cluster, case.costs, options.systems, case.tell)
    except ValueError as error:
        raise setup.SetupError("--systems: %s" % error) from error
    progress.say(answer.first_line(plan))
    gbit = answer.breaking_gbit(case, plan)
    compute = answer.breaking_compute(case, plan)
    lines = answer.changes(case, plan, options.batch, gbit, compute) + answer.beside(plan)
    for line in lines + remarks(found):
        progress.say("  " + line)
    return plan


def show_sweep(options: argparse.Namespace, case: answer.Case, sweep: what_if.Sweep) -> None:
    print("\n".join([""] + what_if.table(sweep)), flush=True)
    if options.svg:
        bits = case.cluster.bits_per_second
        now = {
            "bandwidth": None if bits is None else bits / 1e9,
            "batch": options.batch,
            "compute": case.model.compute_ms(),
        }.get(options.what_if)
        title = "%s: %d workers, %s" % (case.model.name, case.cluster.workers, options.link)
        out_files.save_text(options.svg, what_if.picture(sweep, title, now))


def main(arguments: Sequence[str]) -> int:
    options = plan_options.parse(arguments)
    with common.ending_on_signals():
        if options.calibrate:
            return calibrate_now(options)
        if options.validate:
            return validation.main(options, read_calibration(options))
        return plan_now(options)
