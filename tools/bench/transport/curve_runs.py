# SPDX-License-Identifier: Apache-2.0
"""A job with keys beside one without, measured in turn: goodput and processor time per byte."""

import contextlib
import statistics
import tempfile

from bench import common
from bench.transport import transport_runs as runs
from slimps_launch.identity import keys

CURVE_LINK = "1gbit"
CURVE_MODEL_FLAGS = (
    "--compression=1bit",
    "--pull_compression=1bit",
    "--emulate_link=" + CURVE_LINK,
)


class TimedSide(runs.Side):
    """A side whose processor time counts, too."""

    def __init__(self, party, command, unit_bytes, fewest):
        super().__init__(party, command, unit_bytes, fewest)
        self.cpu_ns_per_byte = []

    def run(self, units=None):
        before = self.party.cpu_seconds()
        seconds = super().run(units)
        # Each worker's bytes go both ways.
        moved = 2 * (units or self.units) * self.unit_bytes * self.party.sizes[0]
        self.cpu_ns_per_byte.append(1e9 * (self.party.cpu_seconds() - before) / moved)
        return seconds

    def calibrate(self, seconds):
        super().calibrate(seconds)
        self.cpu_ns_per_byte.clear()


def measure_curve(stage, jobs, command, unit_bytes, options):
    """Returns a row about a job with keys, beside one without."""
    plain, curve = (TimedSide(job, command + " rounds=%d", unit_bytes, 2) for job in jobs)
    runs.in_turn([plain, curve], options)
    row = stage.row("curve")
    row.update(
        plain_gbps=plain.gbps(),
        curve_gbps=curve.gbps(),
        curve_to_plain=statistics.median(
            mine / theirs for mine, theirs in zip(curve.rates, plain.rates)
        ),
        plain_cpu_ns_per_byte=statistics.fmean(plain.cpu_ns_per_byte),
        curve_cpu_ns_per_byte=statistics.fmean(curve.cpu_ns_per_byte),
    )
    return row


def measure_stage(stage, options, say):
    with tempfile.TemporaryDirectory(prefix="slimps-keys-") as folder:
        made = keys.make(folder, *stage.shape)

        @contextlib.contextmanager
        def both(*flags):
            with stage.job(False, flags=flags) as plain:
                with stage.job(False, flags=flags, folder=made) as curve:
                    yield plain, curve

        with both() as jobs:
            for size in options.sizes:
                count, _, _ = runs.in_flight(size)
                command = "push_pull bytes=%d keys=%d" % (size, count)
                row = measure_curve(stage, jobs, command, count * size, options)
                what = {"tensors": common.size_name(size), "bytes": size}
                say({**row, **what, "codec": "none", "link": ""})
            for job in jobs:
                job.ask("verify")
        for model in options.model:
            command = "model name=%s part_bytes=0" % model
            with stage.job(False) as job:
                job.ask(command + " rounds=1")
                size = job.ask("verify")[0]["verified_bytes"]
            with both(*CURVE_MODEL_FLAGS) as jobs:
                row = measure_curve(stage, jobs, command, size, options)
                say({**row, "tensors": model, "codec": "1bit", "link": CURVE_LINK})
