"""slimps bench cluster: training jobs of many systems on nodes whose links are shaped, side by side in one run."""

import json
import os
import signal
import statistics
import subprocess
import sys

import slimps_bench_cluster_bound as bound
import slimps_bench_cluster_job as jobs
import slimps_bench_cluster_net as net
import slimps_bench_cluster_systems as systems
import slimps_bench_cluster_tables as tables
import slimps_setup

WORKER = ("//tools/bench/cluster:bench_cluster_worker", "tools/bench/cluster/bench_cluster_worker")
UNSHAPED_COMPUTE = "1gbit"  # whose compute times an unshaped link uses
PRE_STEPS = 20
WARMUP = 4
REMEASURE_EVERY = 10  # rounds, where the link changes
MEANS = ("compute_ms", "encode_ms", "encode_exposed_ms", "overlap_ms", "exposed_comm_ms", "worker_cpu_ms",
         "payload_bytes_out", "payload_bytes_in", "compressed_bytes", "pull_compressed_bytes")


def make_parser(parser_class):
    parser = parser_class(
        prog="slimps bench cluster", allow_abbrev=False,
        description="Runs training jobs on nodes that are network namespaces with shaped links (root), one system "
                    "after the other. Communication, compression, servers and local updates are real; the "
                    "accelerator's compute is simulated by waiting. Systems: %s; a NAME@BYTES, NAME@none or NAME@auto has "
                    "that threshold." % ", ".join(systems.BY_NAME))
    parser.add_argument("--link", default="1gbit", metavar="RATE", help="1gbit, 100mbit, ..., or unshaped (1gbit)")
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="workers, and servers as many (2)")
    parser.add_argument("--model", default="resnet50", metavar="LIST", help="models, or all (resnet50)")
    parser.add_argument("--systems", default="", metavar="LIST", help="systems (all)")
    parser.add_argument("--iterations", type=int, default=10, metavar="N", help="that count, of each job (10)")
    parser.add_argument("--repeats", type=int, default=1, metavar="N",
                        help="jobs of each system, all systems in turn; figures are the medians (1)")
    parser.add_argument("--compute_ms", type=float, metavar="MS",
                        help="of one iteration (fp32 wire time at the link's rate over the model's published ratio; "
                             "unshaped: as at %s)" % UNSHAPED_COMPUTE)
    parser.add_argument("--placement", choices=("together", "apart"), default="together",
                        help="a worker and a server on each node, or each on a node of its own (together)")
    parser.add_argument("--profiles", metavar="FILE",
                        help="keep the thresholds that were measured here, and take those that are here already")
    parser.add_argument("--change_link", metavar="S:RATE,...",
                        help="change the rate so many seconds after the first decision of an automatic threshold, "
                             "which is then measured inside of each job (without one: after the first iteration); "
                             "prints every decision")
    parser.add_argument("--congestion", default="cubic", metavar="NAME", help="of TCP, or default (cubic)")
    parser.add_argument("--encode_threads", type=int, default=1, metavar="N", help="of each worker (1)")
    parser.add_argument("--shard_threads", type=int, default=1, metavar="N", help="of each server (1)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of one job (900)")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--programs", metavar="FOLDER", help="where slimps_scheduler, slimps_server and "
                                                             "bench_cluster_worker are built already (bazel-bin)")
    return parser


def parse_changes(text):
    """[(seconds, rate)] in their order. ValueError: another text."""
    changes = []
    for part in text.split(","):
        seconds, colon, rate = part.partition(":")
        try:
            changes.append((float(seconds), rate))
        except ValueError:
            colon = ""
        if not colon or changes[-1][0] < 0:
            raise ValueError("expected SECONDS:RATE,..., got '%s'" % text)
        if rate != "unshaped":
            net.bits_per_second(rate)
    if changes != sorted(changes, key=lambda change: change[0]):
        raise ValueError("expected times in order, got '%s'" % text)
    return changes


def settle(parser, options):
    """Checks what argparse cannot; fills in what depends on it."""
    try:
        options.bits = None if options.link == "unshaped" else net.bits_per_second(options.link)
        options.changes = parse_changes(options.change_link) if options.change_link else []
    except ValueError as error:
        parser.error("--link or --change_link: %s" % error)
    try:
        options.systems = ([systems.find(word) for word in options.systems.split(",")] if options.systems
                           else list(systems.ALL))
    except ValueError as error:
        parser.error("--systems: %s" % error)
    names = [entry.name for entry in options.systems]
    if len(set(names)) != len(names):
        parser.error("--systems: one is there twice: %s" % ",".join(names))
    for flag, least in (("nodes", 1), ("iterations", 1), ("repeats", 1), ("encode_threads", 1), ("shard_threads", 1)):
        if not least <= getattr(options, flag) <= 10000:
            parser.error("--%s: expected %d to 10000, got %d" % (flag, least, getattr(options, flag)))
    if options.nodes > 64:
        parser.error("--nodes: expected 1 to 64, got %d" % options.nodes)
    if options.compute_ms is not None and not 0 <= options.compute_ms <= 3.6e6:
        parser.error("--compute_ms: expected 0 to 3600000, got %g" % options.compute_ms)


def find_programs(folder):
    """name -> path, built where they are not named."""
    if folder is None:
        slimps_setup.install_packages()
        targets = [slimps_setup.PROGRAMS[name][0] for name in ("slimps_scheduler", "slimps_server")] + [WORKER[0]]
        slimps_setup.build(targets)
        folder = os.path.join(slimps_setup.REPOSITORY, "bazel-bin")
    paths = {name: os.path.join(folder, slimps_setup.PROGRAMS[name][1]) for name in ("slimps_scheduler",
                                                                                     "slimps_server")}
    paths["bench_cluster_worker"] = os.path.join(folder, WORKER[1])
    for path in paths.values():
        if not os.access(path, os.X_OK):
            raise slimps_setup.SetupError("cannot run %s" % path)
    return paths


def ask_worker(programs, flag):
    """What bench_cluster_worker answers to a question. SetupError with what it says: it refuses."""
    result = subprocess.run([programs["bench_cluster_worker"], flag], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, check=False)
    if result.returncode != 0:
        raise slimps_setup.SetupError(result.stderr.strip() or "%s failed" % flag)
    return result.stdout


def find_models(programs, text):
    """[(name, gradient bytes, communication to compute)] of a list, or of all."""
    lines = [ask_worker(programs, "--describe=" + name) for name in (["all"] if text == "all" else text.split(","))]
    rows = [line.split() for line in "".join(lines).splitlines()]
    return [(row[0], int(row[1]), float(row[3])) for row in rows]


def compute_ms(options, gradient_bytes, ratio):
    """One iteration's, on the simulated accelerator."""
    if options.compute_ms is not None:
        return options.compute_ms
    bits = options.bits or net.bits_per_second(UNSHAPED_COMPUTE)
    return bound.wire_ms(gradient_bytes, bits) / ratio


def number_or_none(value):
    return "none" if value is None else str(value)


class Profiles:
    """The thresholds that a codec pair has on a link, measured once."""

    def __init__(self, path):
        self.path = path
        self.known = {}
        if path and os.path.exists(path):
            try:
                with open(path, encoding="utf-8") as text:
                    self.known = json.load(text)
            except (OSError, ValueError) as error:
                raise slimps_setup.SetupError("--profiles: cannot read %s: %s" % (path, error))

    def get(self, key, measure):
        name = " ".join(key)
        if name not in self.known:
            self.known[name] = measure()
            if self.path:
                with open(self.path, "w", encoding="utf-8") as out:
                    json.dump(self.known, out, indent=1, sort_keys=True)
        return self.known[name]


class Bench:
    """One run. Owned by the main thread."""

    def __init__(self, options, programs, network):
        self.options = options
        self.programs = programs
        self.network = network
        self.profiles = Profiles(options.profiles)
        self.bytes_per_second = float(ask_worker(programs, "--measure_add"))
        self.cores = len(os.sched_getaffinity(0))

    def job(self, flags, changes=(), after_decision=False, on_line=None):
        options = self.options
        job = jobs.Job(self.network, self.programs, options.nodes, options.placement, options.link, changes,
                       after_decision, on_line, options.timeout, options.shard_threads)
        return job.run(flags + ["--encode_threads=%d" % options.encode_threads])

    def thresholds(self, entry, model):
        """`entry` with the thresholds that were measured for its codecs on this link."""
        if self.options.changes or not systems.is_automatic(entry):
            return entry
        options = self.options

        def measure():
            progress("%s: measuring the threshold table of %s" % (model, entry.compression + (
                "" if entry.pull == "none" else ", pulls " + entry.pull)))
            profile = entry._replace(threshold="auto", pull_threshold="auto", backup=False, coalesce=True,
                                     prioritise=True, device_ns=0.0)
            report = self.job(["--model=" + model, "--compute_ms=0", "--warmup=1", "--pre_steps=%d" % PRE_STEPS,
                               "--iterations=%d" % (PRE_STEPS + 2)] + systems.worker_flags(profile))[0]
            return {"threshold": report["threshold_bytes"], "pull_threshold": report["pull_threshold_bytes"]}

        key = (model, options.link, options.placement, str(options.nodes)) + systems.profiled(entry)
        found = self.profiles.get(key, measure)
        return entry._replace(
            threshold=number_or_none(found["threshold"]) if entry.threshold == "auto" else entry.threshold,
            pull_threshold=(number_or_none(found["pull_threshold"]) if entry.pull_threshold == "auto"
                            else entry.pull_threshold))

    def measure(self, entry, model, milliseconds):
        """One job's figures."""
        said = []

        def on_line(seconds, name, line):
            if line.startswith("decision") or name == "link":
                said.append({"seconds": seconds, "from": name, "line": line})
                if self.options.changes:
                    progress("  %7.2f s  %s: %s" % (seconds, name, line))

        pre_steps = PRE_STEPS if systems.is_automatic(entry) else 0
        flags = ["--model=" + model, "--compute_ms=%.6f" % milliseconds, "--warmup=%d" % (WARMUP + pre_steps),
                 "--pre_steps=%d" % PRE_STEPS, "--iterations=%d" % self.options.iterations]
        if self.options.changes and pre_steps:
            flags.append("--remeasure_every=%d" % REMEASURE_EVERY)
        reports = self.job(flags + systems.worker_flags(entry), changes=self.options.changes,
                           after_decision=pre_steps > 0, on_line=on_line)
        return self.figures(entry, reports, said)

    def figures(self, entry, reports, said):
        options = self.options
        row = {name: statistics.fmean(report[name] for report in reports) for name in MEANS}
        row["iteration_ms"] = max(statistics.fmean(report["iteration_ms"]) for report in reports)
        # Of the busiest node: its link is what a round waits for.
        row["wire_bytes_out"] = max(report["wire_bytes_out"] for report in reports)
        row["wire_bytes_in"] = max(report["wire_bytes_in"] for report in reports)
        row["wire_ms_at_link_rate"] = bound.wire_ms(max(row["wire_bytes_out"], row["wire_bytes_in"]), options.bits)
        gradient = reports[0]["gradient_bytes"]
        row["cpu_ms"] = bound.cpu_ms(bound.Round(
            workers=options.nodes, gradient=gradient, compressed=row["compressed_bytes"],
            pull_compressed=row["pull_compressed_bytes"], payload_out=row["payload_bytes_out"],
            payload_in=row["payload_bytes_in"], backup=entry.backup, encodes_on_cpu=entry.device_ns == 0),
                                     self.bytes_per_second, self.cores)
        row["threshold_bytes"] = reports[0]["threshold_bytes"]
        row["pull_threshold_bytes"] = reports[0]["pull_threshold_bytes"]
        row["max_rss_bytes"] = max(report["max_rss_bytes"] for report in reports)
        row["workers_are_identical"] = len({report["weights_hash"] for report in reports}) == 1
        row["decisions"] = said
        return row


def progress(line):
    print(line, file=sys.stderr, flush=True)


def median_row(rows):
    """The job whose iteration time is the median of all (the lower one of two)."""
    return sorted(rows, key=lambda row: row["iteration_ms"])[(len(rows) - 1) // 2]


def results_of(options, model, milliseconds, measured):
    """The rows of one model; `measured`: system -> its jobs."""
    medians = {name: median_row(rows) for name, rows in measured.items()}

    def speedup(name, over):
        return medians[over]["iteration_ms"] / medians[name]["iteration_ms"] if over in medians else None

    results = []
    for entry in options.systems:
        row = medians[entry.name]
        limit = bound.bound_ms(milliseconds, row["wire_ms_at_link_rate"], row["cpu_ms"])
        result = {"system": entry.name, "model": model, "link": options.link, "iteration_ms": row["iteration_ms"],
                  "compute_ms": milliseconds}
        for name in ("encode_ms", "encode_exposed_ms", "overlap_ms", "wire_bytes_out", "wire_bytes_in",
                     "wire_ms_at_link_rate"):
            result[name] = row[name]
        result.update({"bound_ms": limit, "fraction_of_bound": row["iteration_ms"] / limit if limit else None,
                       "speedup_over_1bit": speedup(entry.name, "1bit"),
                       "speedup_over_fp32": speedup(entry.name, "fp32"),
                       "threshold_bytes": row["threshold_bytes"]})
        for name in ("pull_threshold_bytes", "cpu_ms", "worker_cpu_ms", "exposed_comm_ms", "payload_bytes_out",
                     "payload_bytes_in", "max_rss_bytes", "workers_are_identical", "decisions"):
            result[name] = row[name]
        result["iteration_ms_of_repeats"] = [job["iteration_ms"] for job in measured[entry.name]]
        result["simulated"] = "compute and encoding" if entry.device_ns else "compute"
        result["says"] = entry.says
        results.append(result)
    return results


def bench(options, programs, models):
    results = []
    with net.Network(options.nodes * (2 if options.placement == "apart" else 1), options.congestion) as network:
        run = Bench(options, programs, network)
        for model, gradient_bytes, ratio in models:
            milliseconds = compute_ms(options, gradient_bytes, ratio)
            entries = [run.thresholds(entry, model) for entry in options.systems]
            measured = {entry.name: [] for entry in entries}
            for repeat in range(options.repeats):
                for entry in entries:
                    row = run.measure(entry, model, milliseconds)
                    measured[entry.name].append(row)
                    progress("%s, %s, %d of %d: %.1f ms an iteration%s" % (
                        model, entry.name, repeat + 1, options.repeats, row["iteration_ms"],
                        "" if row["workers_are_identical"] else "; THE WORKERS' WEIGHTS DIFFER"))
            results += results_of(options, model, milliseconds, measured)
    return {"bench": "cluster " + options.link, "nodes": options.nodes, "placement": options.placement,
            "iterations": options.iterations, "repeats": options.repeats, "congestion": options.congestion,
            "cores": run.cores, "add_bytes_per_second": run.bytes_per_second, "results": results}


def interrupt(number, _):
    raise SystemExit(128 + number)


def main(arguments, parser_class):
    parser = make_parser(parser_class)
    options = parser.parse_args(arguments)
    settle(parser, options)
    reason = net.why_not()
    if reason:
        raise slimps_setup.SetupError(reason)
    if options.json:
        try:
            with open(options.json, "a", encoding="utf-8"):
                pass
        except OSError as error:
            parser.error("--json: cannot write %s: %s" % (options.json, error.strerror))
    programs = find_programs(options.programs)
    try:
        models = find_models(programs, options.model)
    except slimps_setup.SetupError as error:
        parser.error("--model: %s" % error)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    report = bench(options, programs, models)
    print(tables.text(report))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(report, out, indent=1)
            out.write("\n")
    return 0 if all(row["workers_are_identical"] for row in report["results"]) else 1
