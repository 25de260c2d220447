"""Three runs on real data over a slow link, side by side: fp32, a plain codec, SlimGC."""

import argparse
import os
import subprocess
import sys
import tempfile

import slimps_files
import slimps_launch
import slimps_setup
import slimps_trace

LINK = "100mbit"
WORKERS = 2
SERVERS = 2
TRAINING = ["--model", "mlp", "--dataset", "digits", "--epochs", "9", "--batch", "32",
            "--optimizer", "sgd", "--emulate_link", LINK]
USUAL_LR = 0.2
# Where a step is not the gradient's: the majority of signs moves each weight by the whole learning rate.
LR_OF_CODEC = {"signsgd": 0.001}
ROW_FIELDS = ("bytes", "t_c_ms", "t_cq_ms", "t_pq_ms", "t_q_ms", "gain")


def codec_name(compression):
    return compression.split(":")[0]


def plan_runs(compression, lr=None):
    """Name, meaning and flags of each run."""
    name = codec_name(compression)
    lr = str(LR_OF_CODEC.get(name, USUAL_LR) if lr is None else lr)
    if compression == "1bit":
        plain = "every gradient compressed to 1 bit per element"
        under = "1 bit from the measured threshold on"
    else:
        plain = "every gradient compressed by " + compression
        under = compression + " from the measured threshold on"
    return [
        ("fp32", "everything in full precision",
         ["--compression", "none", "--backup_model", "off", "--lr", str(USUAL_LR)]),
        (name, plain,
         ["--compression", compression, "--threshold", "0", "--backup_model", "off", "--lr", lr]),
        ("slimgc", under + ", training goes on while gradients travel",
         ["--compression", compression, "--threshold", "auto", "--backup_model", "on", "--lr", lr]),
    ]


def check_runs(worker, runs, seed):
    """Refuses what a worker would refuse, before anything is started."""
    for _, _, flags in runs:
        checked = subprocess.run([worker, "--dry_run", "--scheduler", "none:1", "--seed", str(seed)] + TRAINING + flags,
                                 stderr=subprocess.PIPE, text=True, check=False)
        if checked.returncode != 0:
            raise slimps_setup.SetupError(checked.stderr.strip().replace("slimps_worker: ", "demo: "))


def human_bytes(count):
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return "%.4g %s" % (count, unit)
        count /= 1000.0
    return "%.4g GB" % count


def run_one(programs, name, options, seed, verbose, environment=None):
    """Trains once and returns the summary that worker rank 0 wrote."""
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        summary = os.path.join(folder, "summary.json")
        job = slimps_launch.Job(
            scheduler=[programs["slimps_scheduler"]],
            server=[programs["slimps_server"]],
            worker=[programs["slimps_worker"]] + TRAINING + options
            + ["--seed", str(seed), "--summary_json", summary],
            workers=WORKERS, servers=SERVERS, environment=environment)
        launcher = slimps_launch.Launcher(
            job, show=lambda node: verbose or node.name == "worker0", verbose=verbose, out=sys.stderr)
        status = launcher.run()
        if launcher.interrupted is not None:
            raise SystemExit(status)  # whoever did it knows why
        if status != 0:
            raise slimps_setup.SetupError("run \"%s\" failed with status %d (see above)" % (name, status))
        try:
            return slimps_files.load_json(summary)
        except ValueError as error:
            raise slimps_setup.SetupError("run \"%s\" left no summary: %s" % (name, error))


def as_run(name, summary):
    """What --json holds of one run."""
    table = summary.get("threshold_table") or []
    return {
        "name": name,
        "test_accuracy": summary["test_accuracy"],
        "seconds": summary["seconds"],
        "bytes_pushed": summary["bytes_pushed"],
        "bytes_pulled": summary["bytes_pulled"],
        "threshold_bytes": summary.get("threshold_bytes"),
        "threshold_table": [{field: row[field] for field in ROW_FIELDS} for row in table],
    }


def table_text(runs):
    """The runs side by side; the ratio is to what fp32 pushes."""
    width = max([8] + [len(run["name"]) for run in runs])
    lines = ["%-*s %14s %9s %12s %12s %18s" % (width, "run", "test accuracy", "seconds", "pushed", "pulled",
                                               "compression ratio")]
    full = next((run["bytes_pushed"] for run in runs if run["name"] == "fp32"), 0)
    for run in runs:
        ratio = full / run["bytes_pushed"] if run["bytes_pushed"] else float("nan")
        lines.append("%-*s %12.2f %% %9.1f %12s %12s %16.1f x"
                     % (width, run["name"], 100 * run["test_accuracy"], run["seconds"],
                        human_bytes(run["bytes_pushed"]), human_bytes(run["bytes_pulled"]), ratio))
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(prog="slimps demo", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures of the three runs here")
    parser.add_argument("--compression", metavar="NAME[:option=value,...]", default="1bit",
                        help="the codec of the second and third run (default 1bit; slimps_worker --help)")
    parser.add_argument("--lr", type=float, help="learning rate of the second and third run (default %g; %s)" % (
        USUAL_LR, ", ".join("%s %g" % item for item in LR_OF_CODEC.items())))
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument("--verbose", action="store_true", help="show every node's output")
    parser.add_argument("--trace", metavar="FILE", help=slimps_trace.FLAG_HELP)
    options = parser.parse_args(arguments)
    slimps_files.refuse_unwritable(parser, "--json", options.json)
    slimps_files.refuse_unwritable(parser, "--trace", options.trace)
    if codec_name(options.compression) == "none":
        parser.error("--compression none: that is the first run; expected a codec to compare it with")

    slimps_setup.install_packages()
    slimps_setup.build([target for target, _ in slimps_setup.PROGRAMS.values()])
    programs = {name: slimps_setup.program_path(name) for name in slimps_setup.PROGRAMS}
    planned = plan_runs(options.compression, options.lr)
    check_runs(programs["slimps_worker"], planned, options.seed)
    if options.trace is None:
        return compare(programs, planned, options, None)
    with slimps_trace.Gathering(options.trace) as trace:
        try:
            status = compare(programs, planned, options, trace)
        finally:
            merged = trace.merge(lambda line: print(line, flush=True))
    return status or (0 if merged else 1)


def compare(programs, planned, options, trace):
    """The runs one after the other, and what came of them."""
    runs = []
    explanation = ""
    for name, meaning, flags in planned:
        print("%s: %s" % (name, meaning), flush=True)
        environment = trace and trace.of_job(WORKERS, SERVERS, name)
        summary = run_one(programs, name, flags, options.seed, options.verbose, environment)
        runs.append(as_run(name, summary))
        if name == "slimgc":
            explanation = summary.get("threshold_explanation") or "(no threshold table was measured)"

    print()
    print("UCI handwritten digits, 1 scheduler, %d servers, %d workers on this machine." % (SERVERS, WORKERS))
    print("The link is emulated: each worker's traffic is held to %s." % LINK)
    print()
    print(table_text(runs))
    print()
    print("slimgc's threshold table (which tensor sizes go raw, which compressed, and why):")
    print(explanation)
    if options.json:
        sys.stdout.flush()
        slimps_files.save_json(options.json, {"compression": options.compression, "runs": runs}, indent=2)
    return 0
