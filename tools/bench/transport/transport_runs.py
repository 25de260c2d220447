# SPDX-License-Identifier: Apache-2.0
"""The parties that slimps bench transport compares; measures them in turn."""

import contextlib
import os
import statistics
import tempfile
import time

from bench import bench_processes
from bench import common

PART_BYTES = 4 << 20  # largest raw message
IN_FLIGHT_BYTES = 32 << 20
FEWEST_KEYS, MOST_KEYS = 2, 256
LATENCY_BYTES = 1024
LENDING_CODECS = ("none", "1bit")  # only weights of "none" can be verified
PACE_US = 1000  # pause before each round trip of the paced figures
# The raw transports that a transport is compared with, for streams and for round trips. Raw ZeroMQ
# has no shared memory.
RAW_STREAM = {"tcp": "tcp", "ipc": "ipc", "shm": "tcp"}
RAW_PING = {"tcp": "tcp", "ipc": "ipc", "shm": "ipc"}


class RawPeers:
    """Raw ZeroMQ clients and servers, as many as a job's workers and servers. A context manager."""

    def __init__(self, processes, program, transport, workers, servers):
        self.processes = processes
        self.program = program
        self.transport = transport
        self.sizes = (workers, servers)
        self.nodes = []
        self.clients = []
        self.folder = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        self.processes.stop(self.nodes)
        if self.folder is not None:
            self.folder.cleanup()

    def _start(self):
        workers, servers = self.sizes
        self.folder = tempfile.TemporaryDirectory(prefix="slimps-")
        endpoints = []
        for rank in range(servers):
            address = (
                "tcp://127.0.0.1:*"
                if self.transport == "tcp"
                else "ipc://" + os.path.join(self.folder.name, str(rank))
            )
            server = self._start_node("raw server %d" % rank, ["--listen", address])
            endpoints.append(self.processes.answers([server], "address")[0]["endpoint"])
        for rank in range(workers):
            self.clients.append(
                self._start_node("raw client %d" % rank, ["--connect", ",".join(endpoints)])
            )

    def _start_node(self, name, flags):
        node = self.processes.start("%s (%s)" % (name, self.transport), [self.program] + flags)
        self.nodes.append(node)
        return node

    def ask(self, command):
        start_at = int(1e6 * (time.monotonic() + 0.005))  # all clients begin together
        return self.processes.ask(self.clients, "%s start_at=%d" % (command, start_at))


class Side:
    """One party of a comparison: its command, and the gradient bytes of one unit of work."""

    def __init__(self, party, command, unit_bytes, fewest):
        self.party = party
        self.command = command  # has a %d for the number of units
        self.unit_bytes = unit_bytes
        self.fewest = fewest
        self.units = fewest
        self.rates = []
        self.samples_us = []

    def calibrate(self, seconds):
        """Runs once to warm up, and once to find the number of units that fits into `seconds`."""
        self.run(self.fewest)
        taken = self.run(self.fewest)
        self.units = max(self.fewest, min(1 << 22, int(self.fewest * seconds / max(taken, 1e-6))))
        self.samples_us.clear()
        self.rates.clear()

    def run(self, units=None):
        units = units or self.units
        answers = self.party.ask(self.command % units)
        seconds = statistics.fmean(answer["seconds"] for answer in answers)
        self.rates.append(1e-9 * units * self.unit_bytes / seconds)
        self.samples_us.append([sample for answer in answers for sample in answer["samples_us"]])
        return seconds

    def gbps(self):
        return statistics.median(self.rates)


def in_turn(sides, options):
    """Runs all sides `options.repeats` times, taking turns."""
    for side in sides:
        side.calibrate(options.seconds)
    for _ in range(options.repeats):
        for side in sides:
            side.run()


def percentile(values, fraction):
    """Returns the percentile by nearest rank; `fraction` is from 0 to 1."""
    ordered = sorted(values)
    return ordered[
        min(len(ordered) - 1, max(0, -(-int(1e6 * fraction) * len(ordered) // 1000000) - 1))
    ]


def times_of(side, field=""):
    samples = [sample for run in side.samples_us for sample in run]
    return {
        field + "p50_us": percentile(samples, 0.50),
        field + "p99_us": percentile(samples, 0.99),
    }


# ---- the measurements
# -------------------------------------------------------------------------------


def in_flight(size):
    """Returns (tensors under way, bytes of a message, messages under way)."""
    keys = max(FEWEST_KEYS, min(MOST_KEYS, IN_FLIGHT_BYTES // size))
    message = min(size, PART_BYTES)
    return keys, message, keys * -(-size // message)


def raw_side(raw, kind, message, window):
    return Side(
        raw, "%s bytes=%d window=%d count=%%d" % (kind, message, window), message, 2 * window
    )


def measure_push_pull(stage, size, options):
    keys, message, window = in_flight(size)
    one_way = raw_side(stage.raw_stream, "one_way", message, window)
    two_way = raw_side(stage.raw_stream, "two_way", message, window)
    command = "push_pull bytes=%d keys=%d rounds=%%d" % (size, keys)
    plain, checked = (Side(job, command, keys * size, 2) for job in (stage.plain, stage.checked))
    in_turn([one_way, two_way, plain, checked], options)
    row = stage.row("push_pull", bytes=size)
    row.update(
        goodput_gbps=plain.gbps(),
        raw_zmq_gbps=two_way.gbps(),
        fraction_of_raw=plain.gbps() / two_way.gbps(),
        **times_of(plain),
    )
    row.update(
        raw_zmq_one_way_gbps=one_way.gbps(),
        raw_transport=stage.raw_stream.transport,
        checksums=False,
        goodput_checksums_gbps=checked.gbps(),
        fraction_of_raw_checksums=checked.gbps() / two_way.gbps(),
        in_flight_bytes=keys * size,
        message_bytes=message,
    )
    return row


def measure_latency(stage, options):
    row = stage.row("latency", bytes=LATENCY_BYTES)
    count = 20 if options.quick else 400
    for field, pause, samples in (("", 0, count), ("paced_", PACE_US, max(10, count // 2))):
        words = "bytes=%d pause_us=%d count=%%d" % (LATENCY_BYTES, pause)
        raw = Side(stage.raw_ping, "ping " + words, LATENCY_BYTES, samples)
        plain, checked = (
            Side(job, "latency " + words, LATENCY_BYTES, samples)
            for job in (stage.plain, stage.checked)
        )
        for side in (raw, plain, checked):
            side.run(10)
            side.samples_us.clear()
        for _ in range(options.repeats):
            for side in (raw, plain, checked):
                side.run(samples)
        own, theirs = times_of(plain, field), times_of(raw, "raw_" + field)
        if not pause:
            rate, raw_rate = (
                1e-3 * LATENCY_BYTES / value for value in (own["p50_us"], theirs["raw_p50_us"])
            )
            row.update(goodput_gbps=rate, raw_zmq_gbps=raw_rate, fraction_of_raw=rate / raw_rate)
        row.update(own, **theirs)
        row["%sp50_to_raw" % field] = own[field + "p50_us"] / theirs["raw_%sp50_us" % field]
        row["checksums_%sp50_us" % field] = times_of(checked)["p50_us"]
    row.update(checksums=False, raw_transport=stage.raw_ping.transport, pace_us=PACE_US)
    return row


def measure_model(stage, job, model, options):
    sides = [
        Side(job, "model name=%s part_bytes=%d rounds=%%d" % (model, part), 0, 1)
        for part in (0, PART_BYTES)
    ]
    keys, message, window = in_flight(PART_BYTES)
    raw = raw_side(stage.raw_stream, "two_way", message, window)
    in_turn(sides + [raw], options)
    # A sample is a round here, not a push-pull. A round's bytes are half of what the servers hold:
    # they hold two sets of tensors, the model's and the one cut into parts.
    size = job.ask("verify")[0]["verified_bytes"] // 2
    own, parts = (
        statistics.median(sample for run in side.samples_us for sample in run) for side in sides
    )
    row = stage.row("model_round", model=model)
    rate = 1e-3 * size / own
    row.update(
        goodput_gbps=rate,
        raw_zmq_gbps=raw.gbps(),
        fraction_of_raw=rate / raw.gbps(),
        **times_of(sides[0]),
    )
    row.update(
        model_bytes=size,
        round_ms=1e-3 * own,
        round_4mib_ms=1e-3 * parts,
        ratio_to_4mib=own / parts,
        raw_transport=stage.raw_stream.transport,
        checksums=False,
        in_flight_bytes=size,
    )
    return row


def measure_lending(stage, job, command, unit_bytes, options):
    """Returns a row about gradients that are lent, beside gradients that are copied."""
    copied, lent = (
        Side(job, "%s rounds=%%d lend=%d" % (command, lend), unit_bytes, 2) for lend in (0, 1)
    )
    in_turn([copied, lent], options)
    row = stage.row("lending")
    row.update(
        copied_gbps=copied.gbps(),
        lent_gbps=lent.gbps(),
        lent_to_copied=statistics.median(
            mine / theirs for mine, theirs in zip(lent.rates, copied.rates)
        ),
    )
    return row


def measure_all_lending(stage, options, say):
    for size in options.sizes:
        keys, _, _ = in_flight(size)
        command = "push_pull bytes=%d keys=%d" % (size, keys)
        row = measure_lending(stage, stage.plain, command, keys * size, options)
        say({**row, "tensors": common.size_name(size), "bytes": size, "codec": "none"})
    stage.plain.ask("verify")
    for model in options.model:
        for codec in LENDING_CODECS:
            with stage.job(False, codec) as job:
                command = "model name=%s part_bytes=0" % model
                job.ask(command + " rounds=1 lend=1")
                if codec == "none":  # comes first
                    size = job.ask("verify")[0]["verified_bytes"]
                row = measure_lending(stage, job, command, size, options)
                say({**row, "tensors": model, "codec": codec})


class Stage:
    """The parties of one transport and shape."""

    def __init__(self, processes, programs, transport, shape):
        self.processes = processes
        self.programs = programs
        self.transport = transport
        self.shape = shape
        self.stack = contextlib.ExitStack()
        self.raw_stream = self.raw_ping = self.plain = self.checked = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            raw = {
                kind: stack.enter_context(
                    RawPeers(self.processes, self.programs["bench_raw_zmq"], kind, *self.shape)
                )
                for kind in {RAW_STREAM[self.transport], RAW_PING[self.transport]}
            }
            self.raw_stream, self.raw_ping = (
                raw[RAW_STREAM[self.transport]],
                raw[RAW_PING[self.transport]],
            )
            self.plain = stack.enter_context(self.job(False))
            self.checked = stack.enter_context(self.job(True))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *failure):
        return self.stack.__exit__(*failure)

    def job(self, checksums, codec="none", flags=(), folder=None):
        name = "%s %dx%d %s checksums%s" % (
            self.transport,
            *self.shape,
            "with" if checksums else "without",
            "" if codec == "none" else " and " + codec,
        )
        if folder is not None:
            name += ", with keys"
        return bench_processes.Cluster(
            self.processes,
            name,
            self.programs,
            [
                "--same_host=" + self.transport,
                "--checksums=%s" % str(checksums).lower(),
                "--compression=" + codec,
                *flags,
            ],
            ["--same_host=" + self.transport],
            *self.shape,
            keys=folder,
        )

    def row(self, operation, **what):
        return {
            "transport": self.transport,
            "workers": self.shape[0],
            "servers": self.shape[1],
            **what,
            "op": operation,
        }


def measure_stage(stage, options, say):
    if options.lend:
        return measure_all_lending(stage, options, say)
    for size in options.sizes:
        say(measure_push_pull(stage, size, options))
    say(measure_latency(stage, options))
    for job in (stage.plain, stage.checked):
        job.ask("verify")
    for model in options.model:
        # Uses a job of its own, since two sets of a model's tensors need much memory.
        with stage.job(False) as job:
            say(measure_model(stage, job, model, options))
