# SPDX-License-Identifier: Apache-2.0
"""Processes that a bench starts and asks: lines on their stdin, JSON lines on their stdout.

    with Processes() as processes:
        peer = processes.start("raw client", ["bench_raw_zmq", "--connect", endpoint])
        answers = processes.ask([peer], "ping bytes=1024 count=10 pause_us=0 start_at=0")

Each process leads a process group, which is ended with the bench and dies with it, as in a launched
job (job_launch). Lines that are no JSON are kept, to be shown if the process fails.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time

from cli import setup
from slimps_launch import job_node
from slimps_launch.processes import next_of

ANSWER_SECONDS = 120.0  # timeout of one command
START_SECONDS = 60.0
END_SECONDS = 20.0  # timeout of a job's end, after its workers were told to end
SETTLE_SECONDS = 0.5  # how long to wait after a failure for failures of other processes


class Processes:
    """The processes of a bench. A context manager: at its end no process is left.

    Owned by the main thread: children die with the thread that starts them.
    """

    def __init__(self):
        self.nodes = []
        self.events = queue.SimpleQueue()  # (node, its answer), or (node, None) once it has ended
        self.before_exec = job_node.die_with_parent()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop(self.nodes)

    def start(self, name, command, environment=None):
        node = job_node.Node(name, "bench", command)
        node.expected_to_end = False
        node.end_seen = False
        try:
            node.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self.before_exec,
            )
        except OSError as error:
            raise setup.SetupError("cannot run %s: %s" % (command[0], error.strerror))
        self.nodes.append(node)
        node.reader = threading.Thread(target=self._read, args=(node,), name=name, daemon=True)
        node.reader.start()
        threading.Thread(target=self._reap, args=(node,), name=name + " end", daemon=True).start()
        return node

    def ask(self, nodes, command, seconds=ANSWER_SECONDS):
        """Sends `command` to all `nodes` and returns their answers, in the nodes' order."""
        for node in nodes:
            try:
                node.process.stdin.write(command.encode("ascii") + b"\n")
                node.process.stdin.flush()
            except BrokenPipeError:
                pass  # the node has ended; its end is an event, which says why
        return self.answers(nodes, "answer to \"%s\"" % command, seconds)

    def answers(self, nodes, what, seconds=START_SECONDS):
        """Waits for one answer of each of `nodes` and returns them in order.

        SetupError: a process ended unexpectedly, or an answer did not come in time.
        """
        got = {}
        deadline = time.monotonic() + seconds
        while len(got) < len(nodes):
            node, answer = self._next_event(deadline) or (None, None)
            if node is None:
                late = [node for node in nodes if node not in got]
                raise setup.SetupError(
                    "%s: no %s after %.0f s%s"
                    % (", ".join(node.name for node in late), what, seconds, last_lines(late[0]))
                )
            if answer is not None:
                got[node] = answer
            elif not node.expected_to_end:
                self._fail(node)
        return [got[node] for node in nodes]

    def wait_for(self, look, node, what, seconds=START_SECONDS):
        """Waits until look() returns something and returns that. `node` is to bring it about.

        SetupError: a process ended unexpectedly, or `what` did not come in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            self.wait(0.01)  # what look() sees comes without an event
        raise setup.SetupError(
            "%s: no %s after %.0f s%s" % (node.name, what, seconds, last_lines(node))
        )

    def wait(self, seconds):
        """Lets the processes run for so long. SetupError: one ended unexpectedly."""
        deadline = time.monotonic() + seconds
        while (event := self._next_event(deadline)) is not None:
            if event[1] is None and not event[0].expected_to_end:
                self._fail(event[0])

    def finish(self, workers, others):
        """Tells workers to end, and waits until they and the others have ended.

        SetupError: a process failed or did not end in time.
        """
        nodes = workers + others
        for node in nodes:
            node.expected_to_end = True
        for node in workers:
            try:
                node.process.stdin.write(b"quit\n")
                node.process.stdin.flush()
            except BrokenPipeError:
                pass
        deadline = time.monotonic() + END_SECONDS
        while any(not node.end_seen for node in nodes):
            event = self._next_event(deadline)
            if event is None:
                late = next(node for node in nodes if not node.end_seen)
                raise setup.SetupError(
                    "%s did not end within %.0f s%s" % (late.name, END_SECONDS, last_lines(late))
                )
            if event[1] is None and (event[0].status != 0 or event[0] not in nodes):
                self._fail(event[0])
        self._forget(nodes)

    def stop(self, nodes):
        """Ends nodes and all processes that they started, with SIGTERM and then SIGKILL."""
        nodes = list(nodes)
        for node in nodes:
            node.expected_to_end = True
            job_node.signal_group(node, signal.SIGTERM)
        deadline = time.monotonic() + 2.0
        while any(not node.end_seen for node in nodes) and self._next_event(deadline) is not None:
            pass
        for node in nodes:
            job_node.signal_group(node, signal.SIGKILL)
            node.process.wait()
        self._forget(nodes)

    def _forget(self, nodes):
        for node in nodes:
            try:
                node.process.stdin.close()
            except BrokenPipeError:
                pass
        self.nodes = [node for node in self.nodes if node not in nodes]

    def _next_event(self, deadline):
        event = next_of(self.events, deadline - time.monotonic())
        if event is None:
            return None
        if event[1] is None:
            event[0].end_seen = True
        return event

    def _fail(self, node):
        """Raises SetupError for the process that caused a failure."""
        failed = [node]
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            event = self._next_event(deadline)
            if event is None:
                break
            if event[1] is None and event[0].status != 0:
                failed.append(event[0])
        # A process that a signal killed is the cause; the others only complain of its end.
        culprit = min(failed, key=lambda node: (node.status >= 0, node.status == 0))
        raise setup.SetupError(
            "%s %s%s" % (culprit.name, culprit.describe_end(), last_lines(culprit))
        )

    def _read(self, node):
        with node.process.stdout as output:
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                answer = parse_answer(line)
                if answer is None:
                    node.last_lines.append(line)
                else:
                    self.events.put((node, answer))

    def _reap(self, node):
        status = node.process.wait()
        node.reader.join(1.0)
        node.status = status
        self.events.put((node, None))


def parse_answer(line):
    """Returns the object of a JSON line; None: it is another line."""
    if not line.startswith("{"):
        return None
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def content_of(path):
    """Returns what is in a file that is moved into place as a whole; "": it is not there."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="ascii") as text:
        return text.read().strip()


def cpu_seconds(nodes):
    """Returns the processor time that the processes have taken so far."""
    ticks = 0
    for node in nodes:
        with open("/proc/%d/stat" % node.process.pid, encoding="ascii") as text:
            fields = text.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # of user and of system
    return ticks / os.sysconf("SC_CLK_TCK")


def snapshot_flags(folder, every):
    """Returns the flags of a scheduler and those of servers that may be started again: each server
    takes a snapshot every so many seconds, in `folder`. every=0: none of both."""
    if not every:
        return [], []
    return (
        ["--restart_timeout_s=60", "--journal=" + os.path.join(folder, "journal")],
        ["--snapshot_dir=" + os.path.join(folder, "snapshots"), "--snapshot_every=%d" % every],
    )


def last_lines(node):
    lines = list(node.last_lines)[-5:]
    return (
        ". Its last lines:\n" + "\n".join("  %s| %s" % (node.name, line) for line in lines)
        if lines
        else ""
    )


class Cluster:
    """A job: a scheduler, servers, and workers that take commands.

    A context manager. At its end, it finishes the job in order, or stops it after an exception.
    """

    def __init__(
        self,
        processes,
        name,
        programs,
        worker_flags,
        server_flags,
        workers,
        servers,
        worker_program="bench_store",
        keys=None,
        scheduler_flags=(),
    ):
        self.processes = processes
        self.name = name
        self.programs = programs
        self.worker_flags = list(worker_flags)
        self.server_flags = list(server_flags)
        self.scheduler_flags = list(scheduler_flags)
        self.sizes = (workers, servers)
        self.worker_program = worker_program
        self.keys = keys  # a slimps_launch.keys.Folder, or None
        self.daemons = []
        self.workers = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.processes.stop(self.daemons + self.workers)
            raise
        return self

    def __exit__(self, kind, *unused):
        if kind is None:
            self.processes.finish(self.workers, self.daemons)
        else:
            self.processes.stop(self.daemons + self.workers)

    def ask(self, command):
        return self.processes.ask(self.workers, command)

    def _start(self):
        workers, servers = self.sizes
        with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
            port_file = os.path.join(folder, "port")
            scheduler = self._start_node(
                "scheduler",
                "scheduler",
                [self.programs["slimps_scheduler"], "--port", "0", "--port_file", port_file]
                + self.scheduler_flags,
                "0",
            )
            self.daemons.append(scheduler)
            port = self.processes.wait_for(lambda: content_of(port_file), scheduler, "port")
        for rank in range(servers):
            self.daemons.append(
                self._start_node(
                    "server%d" % rank,
                    "server",
                    [self.programs["slimps_server"], "--wanted_rank=%d" % rank] + self.server_flags,
                    port,
                )
            )
        for rank in range(workers):
            self.workers.append(
                self._start_node(
                    "worker%d" % rank,
                    "worker",
                    [self.programs[self.worker_program]] + self.worker_flags,
                    port,
                )
            )
        self.await_workers()

    def await_workers(self):
        """Waits until all workers have joined the job."""
        self.processes.answers(self.workers, "word that its store is there")

    def cpu_seconds(self):
        """Returns the processor time that workers and servers have taken so far."""
        return cpu_seconds(self.daemons[1:] + self.workers)

    def environment(self):
        """Returns the variables to add to this process's own and to DMLC_*."""
        return {}

    def _start_node(self, name, role, command, port):
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("DMLC_")
        }
        environment.update(self.environment())
        if self.keys is not None:
            environment.update(self.keys.variables(name))
        environment.update(
            DMLC_ROLE=role,
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_PS_ROOT_PORT=port,
            DMLC_NUM_WORKER=str(self.sizes[0]),
            DMLC_NUM_SERVER=str(self.sizes[1]),
        )
        return self.processes.start("%s of the job %s" % (name, self.name), command, environment)
