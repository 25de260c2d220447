# SPDX-License-Identifier: Apache-2.0
"""slimps bench watch: what it costs that somebody watches a job.

It measures twice. Directly: how long a scrape takes, and the scheduler's processor time with and
without one each second. And by pairs of jobs, one that nobody watches and one with a scrape each
second and a page that is open: the ratio of their steps per second. The jobs take turns at being
the first.
"""

import statistics
import tempfile
import time

from bench import bench_processes
from bench import common
from bench.common import Parser
from bench.watch import watched_job
from cli import progress
from cli import setup
from slimps_launch import out_files


def make_parser():
    parser = Parser(
        prog="slimps bench watch",
        allow_abbrev=False,
        description="Trains LeNet with %d workers and %d servers on this machine, on images that "
        "are made up. Compares jobs that are scraped each second while a page is open with jobs "
        "that nobody watches, and measures one scrape."
        % (watched_job.WORKERS, watched_job.SERVERS),
    )
    parser.add_count("--scrapes", 1000000, 1000, "scrapes in a row, of which the median counts")
    parser.add_count("--repeats", 1000, 10, "pairs of jobs")
    parser.add_count("--seconds", 3600, 14, "seconds of training that are measured of each job")
    parser.add_files()
    return parser


def measure_scrapes(options, start):
    """Measures in one job that serves metrics and page. Returns the report's direct figures."""
    with start(watched_job.WATCHED) as job:
        quiet = job.train(options.seconds)
        began, cpu = time.monotonic(), job.scheduler_cpu()
        times = [job.scrape() for _ in range(options.scrapes)]
        own = quiet.cpu_share * (time.monotonic() - began)  # what it takes without scrapes
        scrapes_cpu = max(0.0, job.scheduler_cpu() - cpu - own)
        job.open_page()
        watched = job.train(options.seconds, scrape=True)
    scrape = statistics.median(times)
    return {
        "scrapes": len(times),
        "scrape_ms": 1000 * scrape,
        "scrape_cpu_ms": 1000 * scrapes_cpu / len(times),
        "scrape_share": scrape,  # one each second
        "scheduler_cpu_share_quiet": quiet.cpu_share,
        "scheduler_cpu_share_watched": watched.cpu_share,
    }


def measure_unwatched(options, start):
    with start(watched_job.UNWATCHED) as job:
        return job.train(options.seconds)


def measure_watched(options, start):
    with start(watched_job.WATCHED) as job:
        job.open_page()
        return job.train(options.seconds, scrape=True)


def pair_of(unwatched, watched):
    """Returns a pair's figures. SetupError: a job made no step."""
    if not unwatched.steps_per_s:
        raise setup.SetupError("a job made no step in --seconds: give more")
    return {
        "unwatched_steps_per_s": unwatched.steps_per_s,
        "watched_steps_per_s": watched.steps_per_s,
        "ratio": watched.steps_per_s / unwatched.steps_per_s,
        "scrapes": watched.scrapes,
        "events": watched.events,
    }


def measure_pair(options, start, number):
    if number % 2:
        watched = measure_watched(options, start)
        return pair_of(measure_unwatched(options, start), watched)
    unwatched = measure_unwatched(options, start)
    return pair_of(unwatched, measure_watched(options, start))


def measure(options, programs):
    """Returns the direct figures and the pairs."""
    pairs = []
    with tempfile.TemporaryDirectory(
        prefix="slimps-watch-"
    ) as folder, bench_processes.Processes() as processes, progress.Bar(
        1 + options.repeats, "stages"
    ) as bar:

        def start(flags):
            return watched_job.Job(processes, programs, folder, flags)

        watched_job.write_images(folder)
        direct = measure_scrapes(options, start)
        bar.advance()
        for number in range(options.repeats):
            pairs.append(measure_pair(options, start, number))
            progress.note("pair %d: ratio %.4f" % (number + 1, pairs[-1]["ratio"]))
            bar.advance()
    return direct, pairs


def report_of(options, direct, pairs):
    ratios = [pair["ratio"] for pair in pairs]
    median = statistics.median(ratios)
    return {
        "bench": "watch",
        "workers": watched_job.WORKERS,
        "servers": watched_job.SERVERS,
        "seconds": options.seconds,
        **direct,
        "pairs": pairs,
        "median_ratio": median,
        "mad": statistics.median(abs(ratio - median) for ratio in ratios),
    }


def text(report):
    about = (
        "LeNet, %(workers)d workers, %(servers)d servers, %(seconds)d s of each job: a scrape each "
        "second and an open page, against neither ports nor reports" % report
    )
    rows = [
        ["%d" % (number + 1), "%.2f" % pair["unwatched_steps_per_s"]]
        + ["%.2f" % pair["watched_steps_per_s"], "%.4f" % pair["ratio"]]
        + ["%d" % pair["scrapes"], "%d" % pair["events"]]
        for number, pair in enumerate(report["pairs"])
    ]
    headings = ["pair", "unwatched", "watched", "ratio", "scrapes", "events"]
    return "\n".join(
        [
            common.text_report(about, [("Steps per second", headings, rows)]),
            "",
            "median ratio %.4f (median absolute deviation %.4f)"
            % (report["median_ratio"], report["mad"]),
            "one scrape: %.3f ms (median of %d), so %.3f %% of each second; %.3f ms of the "
            "scheduler's processor time"
            % (
                report["scrape_ms"],
                report["scrapes"],
                100 * report["scrape_share"],
                report["scrape_cpu_ms"],
            ),
            "the scheduler's processor time: %.3f %% of a core, watched %.3f %%"
            % (
                100 * report["scheduler_cpu_share_quiet"],
                100 * report["scheduler_cpu_share_watched"],
            ),
        ]
    )


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    with common.ending_on_signals():
        programs = common.find_programs(setup.PROGRAMS, options.programs)
        report = report_of(options, *measure(options, programs))
    print(text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
