# SPDX-License-Identifier: Apache-2.0
"""slimps simulate: whole jobs under a scheduler of threads, time and network that follows a seed.

Each seed is a job of its own, in a process of its own (tests/simulation).
"""

import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile

from bench import common
from bench.common import Parser, number
from cli import progress
from cli import setup
from cli.progress import say
from slimps_launch import out_files

PROGRAM = "tests/simulation/slimps_simulate"
PROGRAMS = {"slimps_simulate": ("//tests/simulation:slimps_simulate", PROGRAM)}
TWICE_EVERY = 10  # seeds: the second run's hash must be the first's
MUTANT_SEEDS = 300  # within which each mutant must be caught
DEADLINE_S = 300  # of one seed of up to 32 workers, in real time
FAILED = 3  # the program's status after a failure that it has found itself
SAY_EVERY = 100  # seeds


def make_parser():
    parser = Parser(
        prog="slimps simulate",
        allow_abbrev=False,
        description="Runs the real scheduler, servers and workers in one process, under a "
        "scheduler of threads and a virtual time that follow a seed, with faults of the network "
        "and crashes, and compares the weights with a fold of the gradients by one thread. Prints "
        "the first failure with the command that repeats it, a line of each other one, and how "
        "often each fault met each state of a job. Every tenth seed runs twice, and both runs must "
        "make the same choices.",
    )
    parser.add_count("--seeds", 1_000_000, 100, "seeds, each of another job")
    parser.add_argument(
        "--from",
        dest="first",
        type=number(1, 1 << 62, int),
        default=1,
        metavar="S",
        help="the first seed (1)",
    )
    parser.add_count("--workers", 1024, 4, "workers; a power of two, so that means are exact")
    parser.add_count("--servers", 64, 2, "servers")
    parser.add_count("--jobs", 1024, os.cpu_count() or 1, "seeds at the same time")
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="also run the program with each bug that it can be told to have, with seeds from 1 to "
        "%d until one fails" % MUTANT_SEEDS,
    )
    parser.add_argument("--mutant", metavar="NAME", help="run the seeds with this bug alone")
    parser.add_argument(
        "--trace", action="store_true", help="print each choice of one seed: --seeds 1"
    )
    parser.add_files("slimps_simulate")
    return parser


class Simulator:
    """Runs seeds of jobs of one size."""

    def __init__(self, program, options):
        self.program = program
        self.size = ["--workers", str(options.workers), "--servers", str(options.servers)]
        self.jobs = options.jobs
        self.deadline = DEADLINE_S * max(1, options.workers // 32)

    def run(self, seed, mutant=None, trace=False):
        """Returns (what it printed, None), or (None, what it said of its failure)."""
        command = [self.program, "--seed", str(seed)] + self.size
        command += ["--mutant", mutant] if mutant else []
        command += ["--trace"] if trace else []
        try:
            with tempfile.TemporaryDirectory(prefix="slimps-simulate-") as folder:
                done = subprocess.run(
                    command + ["--folder", folder],
                    stdout=subprocess.PIPE,
                    stderr=None if trace else subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                    timeout=self.deadline,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return None, "still running after %d s\n" % self.deadline
        if done.returncode == 0:
            return done.stdout, None
        said = done.stdout + (done.stderr or "")
        return None, said if done.returncode == FAILED else said + "status %d\n" % done.returncode

    def run_all(self, seeds, mutant=None):
        """Yields (seed, printed, failure) in the order of the seeds."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            runs = [(seed, pool.submit(self.run, seed, mutant)) for seed in seeds]
            try:
                for seed, run in runs:
                    yield (seed, *run.result())
            finally:
                for _, run in runs:
                    run.cancel()

    def seeds_until_caught(self, mutant, most=MUTANT_SEEDS):
        """Returns how many seeds it takes until one fails; None: more than `most`.

        A seed that is merely slow, or ends by a signal, has caught nothing.
        """
        for seed, _, failure in self.run_all(range(1, most + 1), mutant):
            if failure is not None and "FAILED: " in failure:
                return seed
        return None

    def mutants(self):
        listed = subprocess.run(
            [self.program, "--list_mutants"], stdout=subprocess.PIPE, encoding="utf-8", check=False
        )
        if listed.returncode != 0:
            raise setup.SetupError(
                "%s --list_mutants: status %d" % (self.program, listed.returncode)
            )
        return listed.stdout.split()

    def repeat(self, seed, mutant):
        """Returns the command that repeats a seed with its trace."""
        words = ["tools/slimps simulate --seeds 1 --from %d" % seed] + self.size + ["--trace"]
        return " ".join(words + (["--mutant", mutant] if mutant else []))


class FaultTable:
    """How often each fault met each state, over all seeds (tests/simulation/fault_table.h)."""

    def __init__(self):
        self.met = collections.defaultdict(collections.Counter)

    def add(self, printed):
        for line in printed.splitlines():
            if line.startswith("fault "):
                fault, state, times = line[len("fault ") :].rsplit(" ", 2)
                self.met[fault][state] += int(times)

    def show(self):
        if not self.met:
            return
        states = sorted({state for counts in self.met.values() for state in counts})
        say("%-18s" % "fault, in a state" + "".join("%18s" % state for state in states))
        for fault, counts in sorted(self.met.items()):
            say("%-18s" % fault + "".join("%18d" % counts[state] for state in states))


def run_seeds(simulator, options, faults):
    """Returns (failed seeds, seeds whose two runs differ). Shows the first failure.

    Adds what each run says of its faults to `faults`.
    """
    failed, differ = [], []
    seeds = range(options.first, options.first + options.seeds)
    with progress.Bar(options.seeds, "seeds") as bar:
        for seed, printed, failure in simulator.run_all(seeds, options.mutant):
            again = printed
            faults.add(printed or "")
            if failure is None and seed % TWICE_EVERY == 0:
                again, failure = simulator.run(seed, options.mutant)
            if failure is not None:
                failed.append(seed)
                if len(failed) == 1:
                    say("%sseed %d failed; to repeat it:" % (failure, seed))
                    say("  " + simulator.repeat(seed, options.mutant))
                else:
                    lines = failure.splitlines()
                    why = next((line for line in lines if "FAILED: " in line), lines[-1])
                    say("seed %d failed: %s" % (seed, why))
            elif again != printed:
                differ.append(seed)
                say("seed %d: two runs made different choices:\n%s%s" % (seed, printed, again))
            bar.advance("%d failed" % len(failed))
            done = seed - options.first + 1
            if done % SAY_EVERY == 0 and not bar.is_shown:
                say("%d of %d seeds, %d failed" % (done, options.seeds, len(failed)))
    return failed, differ


def run_mutants(simulator, names):
    """Returns the report's entries of mutants, and says of each whether it was caught."""
    mutants = []
    with progress.Bar(len(names), "mutants") as bar:
        for name in names:
            caught = simulator.seeds_until_caught(name)
            mutants.append({"name": name, "seeds_until_caught": caught})
            say(
                "mutant %s: %s"
                % (name, "NOT caught" if caught is None else "caught by seed %d" % caught)
            )
            bar.advance()
    return mutants


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.workers & (options.workers - 1):
        parser.error("--workers: expected a power of two, got %d" % options.workers)
    if options.trace and (options.seeds > 1 or options.json or options.mutants):
        parser.error("--trace: expected --seeds 1, without --json and --mutants")
    out_files.refuse_unwritable(parser, "--json", options.json)
    program = common.find_programs(PROGRAMS, options.programs)["slimps_simulate"]
    simulator = Simulator(program, options)
    known = simulator.mutants()
    if options.mutant and options.mutant not in known:
        parser.error(
            "--mutant: expected one of %s, got \"%s\"" % (", ".join(known), options.mutant)
        )
    if options.trace:
        printed, failure = simulator.run(options.first, options.mutant, trace=True)
        sys.stdout.write(printed or failure)
        return 0 if failure is None else 1
    faults = FaultTable()
    failed, differ = run_seeds(simulator, options, faults)
    faults.show()
    mutants = run_mutants(simulator, known if options.mutants else [])
    missed = [one["name"] for one in mutants if one["seeds_until_caught"] is None]
    say(
        "%d seeds: %d failed, %d whose two runs differ%s"
        % (
            options.seeds,
            len(failed),
            len(differ),
            "; %d mutants, %d not caught" % (len(mutants), len(missed)) if mutants else "",
        )
    )
    if options.json:
        report = {
            "seeds": options.seeds,
            "failed": len(failed),
            "trace_mismatches": len(differ),
            "mutants": mutants,
            "faults": faults.met,
        }
        out_files.save_json(options.json, report)
    return 1 if failed or differ or missed else 0
