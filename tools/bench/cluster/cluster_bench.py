# SPDX-License-Identifier: Apache-2.0
"""slimps bench cluster: compares training jobs of many systems, on nodes with shaped links."""

import os
import statistics
import subprocess

from bench.cluster import bound
from bench.cluster import budgets
from bench.cluster import cluster_job as jobs
from bench.cluster import net
from bench.cluster import cluster_options as flags_of
from bench.link import round_trip
from bench.cluster import systems
from bench.cluster import cluster_rows
from bench.cluster import cluster_tables as tables
from bench import common
from cli import progress
from cli import setup
from slimps_launch import schema
from slimps_launch import errors
from slimps_launch import out_files

PROGRAMS = {
    "slimps_scheduler": setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": setup.PROGRAMS["slimps_server"],
    "bench_cluster_worker": (
        "//tools/bench/cluster:bench_cluster_worker",
        "tools/bench/cluster/bench_cluster_worker",
    ),
}
PRE_STEPS = 20
# More iterations before the figures: a policy may try a decision for a window and take it back.
SETTLING = 2 * systems.WINDOW
WARMUP = 4
REMEASURE_EVERY = 10  # rounds; used only if the link changes
MEANS = (
    "compute_ms",
    "encode_ms",
    "encode_exposed_ms",
    "overlap_ms",
    "exposed_comm_ms",
    "worker_cpu_ms",
    "payload_bytes_out",
    "payload_bytes_in",
    "shared_bytes",
    "compressed_bytes",
    "pull_compressed_bytes",
)


def ask_worker(programs, *flags):
    """Runs bench_cluster_worker with flags and returns what it prints.

    SetupError: the program refuses; the message is what it says.
    """
    result = subprocess.run(
        [programs["bench_cluster_worker"], *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise setup.SetupError(result.stderr.strip() or "%s failed" % flags[-1])
    return result.stdout


def find_models(programs, names):
    """Returns [(name, gradient bytes, communication / compute)] for a list of names, or ["all"]."""
    lines = [ask_worker(programs, "--describe=" + name) for name in names]
    rows = [line.split() for line in "".join(lines).splitlines()]
    return [(row[0], int(row[1]), float(row[3])) for row in rows]


def errors_of(programs, model, codecs):
    """Returns {codec: what it loses of the model's gradients, as a part of |x|^2}."""
    lines = ask_worker(programs, "--model=" + model, "--codec_errors=" + "|".join(codecs))
    words = [line.split() for line in lines.splitlines()]
    return {codec: float(error) for codec, error in words}


def compute_ms(options, gradient_bytes, ratio):
    """Returns the milliseconds that one iteration computes on the simulated accelerator."""
    if options.compute_ms is not None:
        return options.compute_ms
    return bound.wire_ms(gradient_bytes, net.bits_per_second(flags_of.COMPUTE_LINK)) / ratio


def number_or_none(value):
    return "none" if value is None else str(value)


class Profiles:
    """The thresholds of each codec pair on a link. Each is measured once and kept in a file.

    SetupError: the file cannot be read or written, or holds something else.
    """

    SHAPE = {"threshold": schema.SIZE_OR_NULL, "pull_threshold": schema.SIZE_OR_NULL}

    def __init__(self, path):
        self.path = path
        self.known = {}
        if path and os.path.exists(path) and not out_files.is_special(path):
            try:
                if os.path.getsize(path) > 0:
                    self.known = out_files.load_json(path)
                schema.check(self.known, {})
                for name, found in self.known.items():
                    schema.check(found, self.SHAPE, '"%s"' % name)
            except ValueError as error:
                raise setup.SetupError(
                    "--profiles: %s holds no thresholds: %s" % (path, error)
                ) from error

    def get(self, key, measure):
        name = " ".join(key)
        if name not in self.known:
            self.known[name] = measure()
            if self.path:
                out_files.save_json(self.path, self.known, indent=1, sort_keys=True)
        return self.known[name]


class Bench:
    """One run of the bench. Owned by the main thread."""

    def __init__(self, options, programs, network, profiles):
        self.options = options
        self.programs = programs
        self.network = network
        self.profiles = profiles
        self.bytes_per_second = float(ask_worker(programs, "--measure_add"))
        self.cores = len(os.sched_getaffinity(0))

    def job(self, flags, changes=(), after_decision=False, on_line=None):
        options = self.options
        job = jobs.Job(
            self.network,
            self.programs,
            options.nodes,
            options.placement,
            options.link,
            changes,
            after_decision,
            on_line,
            options.timeout,
            options.shard_threads,
            options.snapshot_every,
        )
        return job.run(
            flags
            + ["--encode_threads=%d" % options.encode_threads, "--same_host=" + options.same_host]
        )

    def thresholds(self, entry, model):
        """Returns `entry` with the thresholds that were measured for its codecs on this link.

        Measures them if they are not known yet. Systems with fixed thresholds, and all systems if
        the link changes, are returned as they are.
        """
        if self.options.changes or not systems.is_automatic(entry):
            return entry
        options = self.options

        def measure():
            progress.note(
                "%s: measuring the threshold table of %s"
                % (
                    model,
                    entry.compression + ("" if entry.pull == "none" else ", pulls " + entry.pull),
                )
            )
            profile = entry._replace(
                threshold="auto",
                pull_threshold="auto",
                backup=False,
                coalesce=True,
                prioritise=True,
                device_ns=0.0,
            )
            report = self.job(
                [
                    "--model=" + model,
                    "--compute_ms=0",
                    "--warmup=1",
                    "--pre_steps=%d" % PRE_STEPS,
                    "--iterations=%d" % (PRE_STEPS + 2),
                ]
                + systems.worker_flags(profile)
            )[0]
            return {
                "threshold": report["threshold_bytes"],
                "pull_threshold": report["pull_threshold_bytes"],
            }

        key = (
            model,
            options.link + round_trip.name_of(options),
            options.placement,
            str(options.nodes),
            options.same_host,
        ) + systems.profiled(entry)
        found = self.profiles.get(key, measure)
        return entry._replace(
            threshold=number_or_none(found["threshold"])
            if entry.threshold == "auto"
            else entry.threshold,
            pull_threshold=(
                number_or_none(found["pull_threshold"])
                if entry.pull_threshold == "auto"
                else entry.pull_threshold
            ),
        )

    def measure(self, entry, model, milliseconds, warmup=WARMUP):
        """Runs one job and returns its figures, those of the iterations after `warmup`."""
        said = []

        def on_line(seconds, name, line):
            if line.startswith("decision") or name == "link":
                said.append({"seconds": seconds, "from": name, "line": line})
                if self.options.changes:
                    progress.note("  %7.2f s  %s: %s" % (seconds, name, line))

        pre_steps = PRE_STEPS if systems.decides(entry) else 0
        if systems.adapts(entry):
            warmup += SETTLING
        flags = [
            "--model=" + model,
            "--compute_ms=%.6f" % milliseconds,
            "--warmup=%d" % (warmup + pre_steps),
            "--pre_steps=%d" % PRE_STEPS,
            "--iterations=%d" % self.options.iterations,
            "--overlap_forward=%s" % str(self.options.overlap_forward).lower(),
        ]
        if self.options.changes and systems.is_automatic(entry):
            flags.append("--remeasure_every=%d" % REMEASURE_EVERY)
        reports = self.job(
            flags + systems.worker_flags(entry),
            changes=self.options.changes,
            after_decision=pre_steps > 0,
            on_line=on_line,
        )
        return self.figures(entry, reports, said)

    def figures(self, entry, reports, said):
        options = self.options
        row = {name: statistics.fmean(report[name] for report in reports) for name in MEANS}
        row["iteration_ms"] = max(statistics.fmean(report["iteration_ms"]) for report in reports)
        # Those of the busiest node, since a round waits for its link.
        row["wire_bytes_out"] = max(report["wire_bytes_out"] for report in reports)
        row["wire_bytes_in"] = max(report["wire_bytes_in"] for report in reports)
        row["wire_ms_at_link_rate"] = bound.wire_ms(
            max(row["wire_bytes_out"], row["wire_bytes_in"]), options.bits
        )
        gradient = reports[0]["gradient_bytes"]
        row["cpu_ms"] = bound.cpu_ms(
            bound.Round(
                workers=options.nodes,
                gradient=gradient,
                compressed=row["compressed_bytes"],
                pull_compressed=row["pull_compressed_bytes"],
                payload_out=row["payload_bytes_out"],
                payload_in=row["payload_bytes_in"],
                backup=entry.backup,
                encodes_on_cpu=entry.device_ns == 0,
                shared=bound.shared_of(options.same_host, options.placement, options.nodes),
            ),
            self.bytes_per_second,
            self.cores,
        )
        row["threshold_bytes"] = reports[0]["threshold_bytes"]
        row["pull_threshold_bytes"] = reports[0]["pull_threshold_bytes"]
        row["max_rss_bytes"] = max(report["max_rss_bytes"] for report in reports)
        row["borrowed_rss_bytes"] = max(report["borrowed_rss_bytes"] for report in reports)
        row["workers_are_identical"] = len({report["weights_hash"] for report in reports}) == 1
        row["decisions"] = said
        return row


def measure_in_turn(run, entries, model, milliseconds, repeats):
    """Runs `repeats` jobs of each system and returns {system: its jobs' figures}.

    Runs every system's first job, then every system's second, and so on, so that slow changes of
    the machine affect all systems alike.
    """
    measured = {entry.name: [] for entry in entries}
    with progress.Bar(repeats * len(entries), "jobs of " + model) as bar:
        for repeat in range(repeats):
            for entry in entries:
                row = run.measure(entry, model, milliseconds)
                measured[entry.name].append(row)
                progress.note(
                    "%s, %s, %d of %d: %.1f ms an iteration%s"
                    % (
                        model,
                        entry.name,
                        repeat + 1,
                        repeats,
                        row["iteration_ms"],
                        "" if row["workers_are_identical"] else "; THE WORKERS' WEIGHTS DIFFER",
                    )
                )
                bar.advance()
    return measured


def bench(options, programs, models, profiles, save):
    """Runs the bench and returns the report.

    Calls save(report) after each model, so that results are kept even if the rest fails.
    """
    report = {
        "bench": "cluster " + options.link + round_trip.name_of(options) + tables.kind_of(options),
        "nodes": options.nodes,
        "placement": options.placement,
        "same_host": options.same_host,
        "iterations": options.iterations,
        "repeats": options.repeats,
        "congestion": options.congestion,
        "snapshot_every": options.snapshot_every,
    }
    results = []
    with net.Network(
        options.nodes * (2 if options.placement == "apart" else 1),
        options.congestion,
        round_trip.switch_of(options, programs),
    ) as network:
        report.update(round_trip.measure(network, options))
        run = Bench(options, programs, network, profiles)
        report.update(cores=run.cores, add_bytes_per_second=run.bytes_per_second, results=results)
        for model, gradient_bytes, ratio in models:
            milliseconds = compute_ms(options, gradient_bytes, ratio)
            wanted, cell = options.systems, None
            if options.budgets:
                codecs = budgets.compared(options.budgets)
                cell = budgets.Cell(options.budgets, errors_of(programs, model, codecs))
                wanted = cell.systems
            entries = [run.thresholds(entry, model) for entry in wanted]
            rows = cluster_rows.results_of(
                options,
                wanted,
                model,
                milliseconds,
                measure_in_turn(run, entries, model, milliseconds, options.repeats),
            )
            if cell:
                cell.put_into(rows)
            results += rows
            report.update(round_trip.losses(network, options))
            save(report)
    return report


def keep(path, report):
    """Saves the report during a run. An error is only printed: writing may succeed at the end."""
    if path and not out_files.is_special(path):
        try:
            out_files.save_json(path, report)
        except errors.LaunchError as error:
            progress.note("slimps: %s; going on" % error)


def main(arguments):
    parser = flags_of.make_parser()
    options = parser.parse_args(arguments)
    flags_of.settle(parser, options)
    profiles = Profiles(options.profiles)
    with common.ending_on_signals():
        # From here on there may be namespaces to remove.
        reason = net.why_not(options.congestion)
        if reason:
            raise setup.SetupError(reason)
        programs = common.find_programs(PROGRAMS | round_trip.program(options), options.programs)
        try:
            models = find_models(programs, options.model)
        except setup.SetupError as error:
            parser.error("--model: %s" % error)
        report = bench(
            options, programs, models, profiles, lambda report: keep(options.json, report)
        )
    print(tables.text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0 if all(row["workers_are_identical"] for row in report["results"]) else 1
