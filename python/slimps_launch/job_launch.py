# SPDX-License-Identifier: Apache-2.0
"""Runs one job on this machine: a scheduler, servers and workers, each a process of its own.

The scheduler starts on a free port, which it writes to a file. Servers and workers get the port
through DMLC_* variables. When all workers have ended well, the scheduler and the servers end by
themselves. When a process fails, the launcher stops everything and names the failure. Every process
leads its own process group and dies with the launcher, so nothing stays behind.
"""

import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from slimps_launch import job_node
from slimps_launch import job_output

# The scheduler's words for the node whose failure ended a job.
BLAMED = re.compile(r"(?:worker|server) \d+ \(host [^)]*, pid (\d+)\)")


class Job:
    """What to run. Commands are lists; all workers run the command `worker`."""

    def __init__(self, scheduler, server, worker, workers, servers, environment=None):
        self.scheduler = scheduler
        self.server = server
        self.worker = worker
        self.workers = workers
        self.servers = servers
        self.environment = environment or {}
        self.start_timeout = 30.0  # seconds until the scheduler listens
        self.settle = 0.5  # seconds to wait after a failure for failures of others
        self.end_grace = 30.0  # seconds for the daemons to end after the workers or one daemon
        self.stop_grace = 5.0  # seconds from the signal to SIGKILL


class Launcher:
    """Starts a job's processes, shows their output and waits for their end.

    Owned by the main thread: signals arrive there, and children die with the thread that starts
    them.
    """

    def __init__(self, job, show=None, verbose=False, out=sys.stdout):
        self.job = job
        self.show = show or (lambda node: True)
        self.verbose = verbose
        self.out = out
        self.nodes = []
        self.output = job_output.Output(self._say, self.show, hold=not verbose)
        self.events = queue.SimpleQueue()  # a Node that ended, or the number of a signal
        self.print_lock = threading.Lock()
        self.interrupted = None  # the number of the signal that ended the job
        self.unprintable = None  # why lines could not be printed, if so
        self.before_exec = job_node.die_with_parent()

    def run(self):
        """Runs the job and returns its exit status."""
        handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[number] = signal.signal(number, lambda got, frame: self.events.put(got))
        try:
            return self._run()
        finally:
            self._kill_all()
            self.output.release()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if self.unprintable:
                sys.stderr.write(
                    "slimps: some lines of the job could not be printed: %s\n"
                    % self.unprintable.strerror
                )

    # ---- starting --------------------------------------------------------------------------------

    def _run(self):
        port = self._start_scheduler()
        if port is None:
            return self._report_failure([node for node in self.nodes if node.status is not None])
        if isinstance(port, Interrupted):
            return self._forward(port.number)
        for rank in range(self.job.servers):
            self._start("server%d" % rank, "server", self.job.server, port)
        group_port = free_port()
        for rank in range(self.job.workers):
            # The worker asks for this rank, so that lines named worker1 are those of rank 1.
            own = {"DMLC_WORKER_ID": str(rank)}
            own.update(torch_group(rank, self.job.workers, group_port))
            self._start("worker%d" % rank, "worker", self.job.worker, port, own)
        return self._wait()

    def _start_scheduler(self):
        with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
            port_file = os.path.join(folder, "port")
            node = self._start(
                "scheduler",
                "scheduler",
                self.job.scheduler + ["--port", "0", "--port_file", port_file],
                0,
            )
            deadline = time.monotonic() + self.job.start_timeout
            while time.monotonic() < deadline:
                # The file is moved into place as a whole, without an event: look again every 10 ms.
                if os.path.exists(port_file):
                    with open(port_file, encoding="ascii") as text:
                        return int(text.read())
                event = self._next_event(0.01)
                if isinstance(event, int):
                    return Interrupted(event)
                if event is node:
                    return None
        self._say("slimps: the scheduler does not listen after %.0f s" % self.job.start_timeout)
        return None

    def _start(self, name, role, command, port, own=None):
        node = job_node.Node(name, role, command)
        environment = dict(os.environ)
        environment.update(
            {
                "DMLC_ROLE": role,
                "DMLC_PS_ROOT_URI": "127.0.0.1",
                "DMLC_PS_ROOT_PORT": str(port),
                "DMLC_NUM_WORKER": str(self.job.workers),
                "DMLC_NUM_SERVER": str(self.job.servers),
            }
        )
        environment.update(own or {})
        environment.update(self.job.environment)
        if self.verbose:
            self._say("slimps: %s: %s" % (name, " ".join(command)))
        self.nodes.append(node)
        try:
            node.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self.before_exec,
            )
        except OSError as error:
            node.last_lines.append("cannot run %s: %s" % (command[0], error.strerror))
            node.status = 127
            self.events.put(node)
            return node
        node.reader = threading.Thread(target=self._read, args=(node,), name=name, daemon=True)
        node.reader.start()
        threading.Thread(target=self._reap, args=(node,), name=name + " end", daemon=True).start()
        return node

    def _read(self, node):
        with node.process.stdout as output:
            for raw in output:
                self.output.add(node, raw.decode("utf-8", "replace").rstrip("\r\n"))

    def _reap(self, node):
        status = node.process.wait()
        # Waits for its last lines; at most 1 s, since a grandchild may hold the pipe open.
        node.reader.join(1.0)
        node.status = status
        self.events.put(node)

    # ---- waiting ---------------------------------------------------------------------------------

    def _next_event(self, seconds):
        try:
            return self.events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def _wait(self):
        """Waits until the job ends: well, by a failure, or by a signal. Returns the status."""
        ended = []
        deadline = None
        while len(ended) < len(self.nodes):
            left = job_output.HOLD_SECONDS if deadline is None else deadline - time.monotonic()
            event = self._next_event(min(left, job_output.HOLD_SECONDS))
            if isinstance(event, int):
                return self._forward(event)
            if event is None:
                self.output.release(job_output.HOLD_SECONDS)
                if deadline is None or time.monotonic() < deadline:
                    continue
                return self._report_late(ended)
            ended.append(event)
            if event.status != 0:
                return self._report_failure(self._settle([event]))
            # The daemons end by themselves when the last worker has said goodbye. So the deadline
            # for the other daemons begins when the first daemon or the last worker has ended. When
            # all daemons have ended, there is none: a worker may go on without them, to evaluate or
            # save.
            workers_ended = sum(node.role == "worker" for node in ended)
            if len(ended) - workers_ended == len(self.nodes) - self.job.workers:
                deadline = None
            elif deadline is None and (event.role != "worker" or workers_ended == self.job.workers):
                deadline = time.monotonic() + self.job.end_grace
        return 0

    def _report_late(self, ended):
        late = [node for node in self.nodes if node not in ended]
        if any(node.role == "worker" for node in late):
            return self._report_failure([node for node in ended if node.role != "worker"])
        self._say(
            "slimps: all workers have ended, but %s did not follow within %.0f s; they wait for "
            "workers to join. Does the program make a store (in Python slimps.kv.create, "
            "DistributedOptimizer or CommHookState)?"
            % (", ".join(node.name for node in late), self.job.end_grace)
        )
        return 1

    def _settle(self, failed):
        """Waits for further failures and returns all that failed.

        Others may learn of a failure, and end, before the process that caused it has ended.
        """
        self.output.hold()
        begun = time.monotonic()
        while True:
            blamed = self._blamed(failed)
            late = blamed is not None and blamed.status is None
            left = begun + (self.job.stop_grace if late else self.job.settle) - time.monotonic()
            if left <= 0:
                return failed
            event = self._next_event(min(left, self.job.settle))
            if isinstance(event, job_node.Node) and event.status != 0:
                failed.append(event)

    def _blamed(self, failed):
        """Returns this job's node that the last lines of failed nodes blame, or None."""
        named = {
            found.group(1)
            for node in failed
            for line in list(node.last_lines)
            for found in BLAMED.finditer(line)
        }
        return next(
            (
                node
                for node in self.nodes
                if node.process is not None and str(node.process.pid) in named
            ),
            None,
        )

    def _report_failure(self, failed):
        """Stops the job, says why it failed, and returns the exit status.

        Says which process failed, with its error first, then its last lines that were not shown
        yet, then which processes ended with it.
        """
        self.output.hold()
        self._kill_all()
        if not failed:
            return 1
        # The cause is a process that a signal killed, if there is one, or else the process that the
        # others blame.
        blamed = self._blamed(failed)
        culprit = min(
            failed, key=lambda node: (node.status >= 0, node is not blamed, node.status == 0)
        )
        lines = list(culprit.last_lines)
        at = None if culprit.status < 0 else job_output.last_error(lines)
        early = " while workers were running" if culprit.status == 0 else ""
        self._say(
            "slimps: the job failed: %s %s%s%s"
            % (
                culprit.name,
                culprit.describe_end(),
                early,
                "; it printed nothing" if not lines else "" if at is None else ": " + lines[at],
            )
        )
        unseen = self.output.unseen(culprit)
        for number, line in enumerate(lines):
            if number != at and number >= len(lines) - len(unseen):
                self._say("  %s| %s" % (culprit.name, line))
        self._report_others(
            culprit,
            None if at is None else lines[at],
            [node for node in failed if node is not culprit],
        )
        return job_node.exit_status(culprit.status) or 1

    def _report_others(self, culprit, error, failed):
        """Says which processes ended with the culprit, in one line.

        A process with another reason gets a line of its own.
        """
        followers = []
        for node in failed:
            lines = list(node.last_lines)
            at = job_output.last_error(lines)
            repeats = (
                at is None
                or self._blamed([node]) is culprit
                or (error is not None and job_output.words_of(error) in lines[at])
            )
            if repeats and node.status >= 0:
                followers.append(node.name)
            else:
                self._say(
                    "slimps: %s then %s%s"
                    % (node.name, node.describe_end(), "" if at is None else ": " + lines[at])
                )
        if followers:
            self._say(
                "slimps: with it ended %s%s"
                % (
                    ", ".join(sorted(followers)),
                    "" if self.verbose else " (--verbose shows what they said)",
                )
            )

    # ---- stopping --------------------------------------------------------------------------------

    def _forward(self, number):
        """Passes a signal on to all processes and waits until they end.

        Kills them after the grace time, or when a second signal comes. Returns the exit status.
        """
        self.interrupted = number
        self._say("slimps: %s: stopping the job" % job_node.signal_name(number))
        self._signal_all(number)
        deadline = time.monotonic() + self.job.stop_grace
        while self._running() and time.monotonic() < deadline:
            if isinstance(self._next_event(deadline - time.monotonic()), int):
                break
        self._kill_all()
        return 128 + number

    def _running(self):
        return [node for node in self.nodes if node.process is not None and node.status is None]

    def _signal_all(self, number):
        for node in self._running():
            job_node.signal_group(node, number)

    def _kill_all(self):
        """Ends all processes with SIGTERM and, after the grace time, SIGKILL.

        SIGKILL goes to each node's whole group, and so also to the processes that the node started.
        """
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + self.job.stop_grace
        while self._running() and time.monotonic() < deadline:
            self._next_event(deadline - time.monotonic())
        for node in self.nodes:
            if node.process is not None:
                job_node.signal_group(node, signal.SIGKILL)
        while self._running():
            self._next_event(1.0)

    def _say(self, line):
        with self.print_lock:
            try:
                print(line, file=self.out, flush=True)
            except BrokenPipeError:
                pass
            except OSError as error:  # a full disk must not hold the job up
                self.unprintable = self.unprintable or error


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torch_group(rank, workers, port):
    """Returns torchrun's variables, for a script's own process group (env:// of torch)."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class Interrupted:
    """The result if a signal came before the job had begun."""

    def __init__(self, number):
        self.number = number


def resolve_command(command, programs):
    """Returns `command` with a daemon's name replaced by the path of the program that was built.

    Other commands stay as they are.
    FileNotFoundError: there is no such command, or it cannot be run.
    """
    name = command[0]
    if name in programs:
        return [programs[name]] + command[1:]
    if shutil.which(name) is None:
        what = "cannot be run" if os.path.sep in name and os.path.exists(name) else "not found"
        raise FileNotFoundError("command %s: %s" % (what, name))
    return command
