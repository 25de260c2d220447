# SPDX-License-Identifier: Apache-2.0
"""Processes that one launcher has started: their lines, their ends, signals to them.

Every process leads its own process group and dies with the launcher, so nothing stays behind.
"""

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time

from slimps_launch import guard
from slimps_launch import job_folders
from slimps_launch import job_node
from slimps_launch import network
from slimps_launch import pieces

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # they end the job
TO_WORKERS = (signal.SIGUSR1, signal.SIGUSR2)  # what they mean is for the program to say
# Seconds for workers to save after a signal: less than the 30 s after which Slurm, Kubernetes and
# torchrun kill.
SAVE_GRACE = 20.0
REST_INTERVAL = 0.05  # seconds between two looks at what a process has left behind


def next_of(events, seconds):
    """Returns the next item of a queue.SimpleQueue, or None if `seconds` pass without one.

    Waits at most 1 s at a time: Python calls the handler of a signal that comes just before a wait
    only after that wait.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return events.get(timeout=max(0.0, min(left, 1.0)))
        except queue.Empty:
            if left <= 1.0:
                return None


class Stop(Exception):
    """The job ends before it has begun: by the number of a signal, or because nodes `failed`."""

    def __init__(self, number=None, failed=()):
        super().__init__()
        self.number = number
        self.failed = list(failed)


class Processes:
    """Owned by the main thread: signals arrive there, and children die with the thread that starts
    them. What they print is read on threads, one per process.
    """

    caught = ENDING + TO_WORKERS

    def __init__(self, stop_grace=5.0):
        self.stop_grace = stop_grace  # seconds from SIGTERM to SIGKILL
        self.nodes = []
        self.events = queue.SimpleQueue()  # a Node that ended, or the number of a signal
        self.guard = None
        self.handlers = {}  # those of the signals that are caught, as they were before
        self.until_put_back = contextlib.ExitStack()  # ports that are held, the reports' folder
        self.signalled = None  # the first signal that ends the job, once it has come
        self.reports = None  # the folder of the nodes' reports
        self.started = 0  # how many processes, each of which has a report of its own

    def heard(self, node, stream, text, end):
        """Takes a piece (pieces.py) of a process's stdout (1) or stderr (2).

        Called on the process's own thread.
        """
        raise NotImplementedError

    def start(self, node, environment, **how):
        """Starts a process; `how` overrides arguments of Popen. Its end becomes an event."""
        self.nodes.append(node)
        arguments = {"stdin": subprocess.DEVNULL, **how}
        if self.reports is None:
            self.reports = self.until_put_back.enter_context(job_folders.folder("reports"))
        self.started += 1
        node.report_file = os.path.join(self.reports, "%d" % self.started)
        try:
            node.process = subprocess.Popen(
                node.command,
                env={**environment, job_node.REPORT: node.report_file},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=job_node.die_with_parent(
                    node.cores, () if node.role in ("worker", "carrier") else TO_WORKERS
                ),
                **arguments,
            )
        except OSError as error:  # the command cannot be run, or the folder is not there
            what = "cannot run " + node.command[0]
            if error.filename not in (None, node.command[0]):  # the folder to run it in
                what += " in %s" % error.filename
            node.last_lines.append("%s: %s" % (what, error.strerror))
            node.status = 127
            self.events.put(node)
            return
        node.pid = node.process.pid
        self._guard(node.pid)
        node.reader = threading.Thread(target=self._read, args=(node,), name=node.name, daemon=True)
        node.reader.start()
        threading.Thread(
            target=self._reap, args=(node,), name=node.name + " end", daemon=True
        ).start()

    def _read(self, node):
        output, errors = node.process.stdout, node.process.stderr
        with selectors.DefaultSelector() as selector, output, errors:
            for stream, pipe in ((1, output), (2, errors)):
                selector.register(pipe, selectors.EVENT_READ, (stream, node.cut()))
            while keys := list(selector.get_map().values()):
                waits = any(key.data[1].rest for key in keys)
                ready = [key for key, _ in selector.select(pieces.QUIET if waits else None)]
                for key in ready or keys:
                    stream, cut = key.data
                    chunk = os.read(key.fd, pieces.LONGEST) if ready else None
                    if chunk == b"":
                        selector.unregister(key.fileobj)
                    for text, end in cut.next(chunk):
                        self.heard(node, stream, text, end)

    def _reap(self, node):
        status = node.process.wait()
        if self.signalled is not None:
            self._await_rest(node)
        elif status != 0:
            node.kill()  # who takes its place would meet what it has started, on its ports
        node.say_no_more()
        # Waits for its last lines; at most 1 s, since a grandchild may hold the pipe open.
        node.reader.join(1.0)
        node.said = node.report  # the file goes with the job
        node.status = status
        self.events.put(node)

    def _await_rest(self, node):
        """Waits for the end of what a process has left behind, which was not told of the signal.

        It may be the program behind a shell, which has time to save until kill_all().
        """
        node.signal_rest(self.signalled)
        while node.has_rest():
            time.sleep(REST_INTERVAL)

    def next_event(self, seconds):
        """Returns a Node that has ended, the number of a signal, or None if nothing came.

        Passes the signals on that are the workers' alone.
        """
        event = next_of(self.events, seconds)
        if event not in TO_WORKERS:
            return event
        for node in self.workers_running():
            node.pass_on(event)
        return None

    def wait_until(self, done, seconds, step, fatal=()):
        """Waits until done() or the time is over. Stop: a signal came, or a `fatal` node ended."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            event = self.next_event(min(step, deadline - time.monotonic()))
            if isinstance(event, int):
                raise Stop(event)
            if event is not None and event in fatal:
                raise Stop(failed=[event])

    def catch_signals(self):
        """Makes signals events, until put_back(). Ignored ones stay ignored."""

        def note(number, _):
            if self.signalled is None and number in ENDING:
                self.signalled = number
            self.events.put(number)

        self.handlers = {
            number: signal.signal(number, note)
            for number in self.caught
            if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
        }

    def hold_port(self):
        """Returns a port that is held (network.hold_port) until put_back()."""
        return network.port_of(self.until_put_back.enter_context(network.hold_port()))

    def put_back(self):
        self.until_put_back.close()
        self.reports = None
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def running(self):
        return [node for node in self.nodes if node.process is not None and node.status is None]

    def workers_running(self):
        """Returns the workers that run, and the processes that carry workers."""
        return [node for node in self.running() if node.role in ("worker", "carrier")]

    def signal_all(self, number):
        for node in self.running():
            node.signal(number)

    def kill_all(self):
        """Ends all processes with SIGTERM and, after the grace time, SIGKILL.

        SIGTERM goes to each node alone, SIGKILL also to the processes that the node has started.
        """
        self.signal_all(signal.SIGTERM)
        deadline = time.monotonic() + self.stop_grace
        while self.running() and time.monotonic() < deadline:
            self.next_event(deadline - time.monotonic())
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        while self.running():
            self.next_event(1.0)
        if self.guard is not None:
            self.guard.communicate("done\n")
            self.guard = None

    def _guard(self, group):
        """Makes the process group end with this process, even if this one is killed."""
        if self.guard is None:
            self.guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
        self.guard.stdin.write("%d\n" % group)
        self.guard.stdin.flush()
