# SPDX-License-Identifier: Apache-2.0
"""One job of slimps bench cluster: daemons and bench_cluster_workers in their nodes' namespaces."""

import collections
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time

from bench import bench_processes
from bench.cluster import net
from cli import setup
from slimps_launch import out_files
from slimps_launch import job_node
from slimps_launch.processes import next_of

PORT = 7000  # always free: nothing else runs in these namespaces
LAST_LINES = 12
END_GRACE = 20.0  # seconds that the daemons may take to end after the workers have ended
SETTLE = 0.5  # seconds to wait after a failure for the failures of other processes


class JobError(setup.SetupError):
    """A job failed. The message names the process that failed and has its last lines."""


class Process:
    def __init__(self, name, command, out, before_exec):
        self.name = name
        self.lines = collections.deque(maxlen=LAST_LINES)
        try:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=before_exec,
            )
        except OSError as error:
            raise JobError("cannot run %s: %s" % (command[0], error.strerror)) from error
        self.reader = threading.Thread(target=self._read, args=(out,), daemon=True)
        self.reader.start()

    def _read(self, out):
        with self.popen.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))
                out.put((self, line.rstrip("\n")))
        self.popen.wait()
        out.put((self, None))

    def go(self):
        """Tells the process to begin.

        Ignores a process that has ended: its end is an event of its own, which says why.
        """
        try:
            self.popen.stdin.write("go\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass

    def stop(self):
        """Ends the process with SIGTERM, then with SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                if self.popen.poll() is None:
                    os.killpg(self.popen.pid, number)
                    self.popen.wait(timeout=2.0)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        try:
            self.popen.stdin.close()
        except BrokenPipeError:
            pass  # the process ended before it read its input
        self.reader.join(1.0)

    def describe_end(self):
        status = self.popen.returncode
        how = (
            "was killed by " + job_node.signal_name(-status)
            if status < 0
            else "exited with status %d" % status
        )
        return "%s %s\n%s" % (
            self.name,
            how,
            "\n".join("  %s| %s" % (self.name, line) for line in self.lines),
        )


class Job:
    """One job on the network.

    Owned by the main thread: children die with the thread that starts them.

    rate            the link's rate from the first iteration on; before that it is unshaped
    changes         [(seconds, rate)], later changes of the rate; seconds since the first iteration,
                    or since the first decision
    after_decision  `changes` count from the first decision that a worker prints
    snapshot_every  seconds between two snapshots of each server; 0: none
    on_line         called with (seconds since the first iteration, worker's name, line) for each
                    line that a worker prints
    """

    def __init__(
        self,
        network,
        programs,
        workers,
        placement,
        rate,
        changes=(),
        after_decision=False,
        on_line=None,
        timeout=600.0,
        shard_threads=1,
        snapshot_every=0,
    ):
        self.network = network
        self.programs = programs
        self.workers = workers
        self.placement = placement
        self.rate = rate
        self.changes = list(changes)
        self.after_decision = after_decision
        self.on_line = on_line
        self.timeout = timeout
        self.shard_threads = shard_threads
        self.snapshot_every = snapshot_every
        self.scheduler_node = net.HUB
        self.events = queue.SimpleQueue()
        self.processes = []
        self.daemons = []  # those of the processes that are no workers
        self.before_exec = job_node.die_with_parent()

    def run(self, worker_flags):
        """Runs the job and returns all workers' reports, by rank."""
        with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
            reports = [os.path.join(folder, "worker%d.json" % rank) for rank in range(self.workers)]
            try:
                self.network.shape("unshaped")
                workers = self._start(worker_flags, reports, folder)
                self._run(workers)
            finally:
                self._stop()
            return [self._report(worker, path) for worker, path in zip(workers, reports)]

    def _report(self, worker, path):
        try:
            return out_files.load_json(path)
        except ValueError as error:
            raise JobError("no report: %s: %s" % (error, worker.describe_end())) from error

    def _start(self, worker_flags, reports, folder):
        sizes = ["--num_workers=%d" % self.workers, "--num_servers=%d" % self.workers]
        root = self.network.address(self.scheduler_node)
        self.start_daemons(root, sizes, folder)
        self.daemons = list(self.processes)
        return [
            self._spawn(
                "worker%d" % rank,
                rank,
                self.worker_command(root, rank, reports[rank], sizes) + worker_flags,
            )
            for rank in range(self.workers)
        ]

    def start_daemons(self, root, sizes, folder):
        of_scheduler, of_servers = bench_processes.snapshot_flags(folder, self.snapshot_every)
        self._spawn(
            "scheduler",
            self.scheduler_node,
            [self.programs["slimps_scheduler"], "--bind=" + root, "--port=%d" % PORT, "--insecure"]
            + of_scheduler
            + sizes,
        )
        for rank in range(self.workers):
            node = rank + (self.workers if self.placement == "apart" else 0)
            self._spawn(
                "server%d" % rank,
                node,
                [
                    self.programs["slimps_server"],
                    "--bind=" + self.network.address(node),
                    "--insecure",
                    "--root_uri=" + root,
                    "--root_port=%d" % PORT,
                    "--shard_threads=%d" % self.shard_threads,
                    "--wanted_rank=%d" % rank,
                ]
                + of_servers
                + sizes,
            )

    def worker_command(self, root, rank, report, sizes):
        """Returns a worker's command, without the flags that are the same for all workers."""
        return [
            self.programs["bench_cluster_worker"],
            "--scheduler=tcp://%s:%d" % (root, PORT),
            "--rank=%d" % rank,
            "--interface=" + net.INTERFACE,
            "--report=" + report,
        ] + sizes

    def _spawn(self, name, node, command):
        self.processes.append(
            Process(name, self.network.command(node, command), self.events, self.before_exec)
        )
        return self.processes[-1]

    def _run(self, workers):
        began = time.monotonic()
        started = None  # time of the first iteration
        steady = None  # time from which the changes' seconds count
        ready, ended = set(), set()
        deadline = began + self.timeout
        while len(ended) < len(self.processes):
            process, line = self._next(deadline, started, steady)
            if process is None:
                continue
            if line is None:
                if process.popen.returncode != 0:
                    self._fail(process)
                if process in workers and started is None:
                    raise JobError("the job failed: before it had begun, " + process.describe_end())
                ended.add(process)
                if all(worker in ended for worker in workers):
                    deadline = min(deadline, time.monotonic() + END_GRACE)
            elif line == "ready" and process in workers:
                ready.add(process)
                if len(ready) == len(workers):
                    self.network.shape(self.rate)
                    started = time.monotonic()
                    steady = None if self.after_decision else started
                    for worker in workers:
                        worker.go()
            elif process in workers:
                if steady is None and line.startswith("decision"):
                    steady = time.monotonic()
                if self.on_line:
                    self.on_line(time.monotonic() - (started or began), process.name, line)

    def _next(self, deadline, started, steady):
        """Returns the next (process, line), or (None, None) after changing the link."""
        due = deadline
        if steady is not None and self.changes:
            due = min(due, steady + self.changes[0][0])
        event = next_of(self.events, due - time.monotonic())
        if event is not None:
            return event
        if time.monotonic() < deadline:
            _, rate = self.changes.pop(0)
            self.network.shape(rate)
            if self.on_line:
                self.on_line(time.monotonic() - started, "link", rate)
            return None, None
        running = [process for process in self.processes if process.popen.poll() is None]
        raise JobError(
            "the job did not end within %.0f s; still running: %s"
            % (
                self.timeout,
                "\n".join(
                    "%s\n%s" % (process.name, "\n".join(process.lines)) for process in running
                ),
            )
        )

    def _fail(self, process):
        """Raises JobError for the process that caused the failure.

        That is a process that a signal killed, if there is one: the others only complain of its
        end.
        """
        failed = [process]
        deadline = time.monotonic() + SETTLE
        while True:
            event = next_of(self.events, deadline - time.monotonic())
            if event is None:
                break
            other, line = event
            if line is None and other.popen.returncode != 0:
                failed.append(other)
        culprit = min(failed, key=lambda one: one.popen.returncode >= 0)
        raise JobError("the job failed: " + culprit.describe_end())

    def _stop(self):
        for process in self.processes:
            process.stop()
