"""Runs one job on this machine: a scheduler, servers and workers, each a process of its own.

The job's life: the scheduler starts on a free port, which it writes to a file; servers and workers get it through
DMLC_* variables. When all workers have ended well the scheduler and the servers follow by themselves. When anything
fails, everything is stopped and the failure is named. Every process leads its own process group, and dies with this
one, so nothing stays behind.
"""

import collections
import ctypes
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

import slimps_output

LAST_LINES = 40
BLAMED = re.compile(r"(?:worker|server) \d+ \(host [^)]*, pid (\d+)\)")  # as the scheduler names whose failure ended a job
PR_SET_PDEATHSIG = 1


class Job:
    """What to run. Commands are lists; `worker` is the same for all workers."""

    def __init__(self, scheduler, server, worker, workers, servers, environment=None):
        self.scheduler = scheduler
        self.server = server
        self.worker = worker
        self.workers = workers
        self.servers = servers
        self.environment = environment or {}
        self.start_timeout = 30.0   # seconds until the scheduler listens
        self.settle = 0.5           # after a failure: how long others may add theirs
        self.end_grace = 30.0       # for the daemons, once the workers or one of them have ended well
        self.stop_grace = 5.0       # from the signal to SIGKILL


class Node:
    """One process, its output and how it ended."""

    def __init__(self, name, role, command):
        self.name = name
        self.role = role
        self.command = command
        self.process = None
        self.reader = None
        self.status = None  # as subprocess has it: negative is a signal
        self.last_lines = collections.deque(maxlen=LAST_LINES)

    def describe_end(self):
        if self.status is None:
            return "is running"
        if self.status < 0:
            return "was killed by " + signal_name(-self.status)
        return "exited with status %d" % self.status


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def exit_status(status):
    """A status as a shell shows it."""
    return 128 - status if status < 0 else status


def die_with_parent():
    """Returns what a child runs before exec: it gets SIGKILL when the launcher is gone, however that went."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child():
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    return in_child


class Launcher:
    """Owned by the main thread: signals arrive there, and children die with the thread that started them."""

    def __init__(self, job, show=None, verbose=False, out=sys.stdout):
        self.job = job
        self.show = show or (lambda node: True)
        self.verbose = verbose
        self.out = out
        self.nodes = []
        self.output = slimps_output.Output(self._say, self.show, hold=not verbose)
        self.events = queue.SimpleQueue()  # a Node that ended, or the number of a signal
        self.print_lock = threading.Lock()
        self.interrupted = None  # the number of the signal that ended the job
        self.unprintable = None  # why lines could not be printed, if so
        self.before_exec = die_with_parent()

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
                sys.stderr.write("slimps: some lines of the job could not be printed: %s\n" % self.unprintable.strerror)

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
            node = self._start("scheduler", "scheduler",
                               self.job.scheduler + ["--port", "0", "--port_file", port_file], 0)
            deadline = time.monotonic() + self.job.start_timeout
            while time.monotonic() < deadline:
                # The file is moved into place whole, and nothing tells of it: look again every few ms.
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
        node = Node(name, role, command)
        environment = dict(os.environ)
        environment.update({
            "DMLC_ROLE": role,
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_NUM_WORKER": str(self.job.workers),
            "DMLC_NUM_SERVER": str(self.job.servers),
        })
        environment.update(own or {})
        environment.update(self.job.environment)
        if self.verbose:
            self._say("slimps: %s: %s" % (name, " ".join(command)))
        self.nodes.append(node)
        try:
            # pylint: disable=consider-using-with
            node.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=self.before_exec)
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
        node.reader.join(1.0)  # its last words; a grandchild may hold the pipe open for longer
        node.status = status
        self.events.put(node)

    # ---- waiting ---------------------------------------------------------------------------------

    def _next_event(self, seconds):
        try:
            return self.events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def _wait(self):
        """Until the job is over: well, with a failure, or by a signal."""
        ended = []
        deadline = None
        while len(ended) < len(self.nodes):
            left = slimps_output.HOLD_SECONDS if deadline is None else deadline - time.monotonic()
            event = self._next_event(min(left, slimps_output.HOLD_SECONDS))
            if isinstance(event, int):
                return self._forward(event)
            if event is None:
                self.output.release(slimps_output.HOLD_SECONDS)
                if deadline is None or time.monotonic() < deadline:
                    continue
                return self._report_late(ended)
            ended.append(event)
            if event.status != 0:
                return self._report_failure(self._settle([event]))
            # The daemons end by themselves once the last worker said goodbye: soon after the first of them, or after the
            # last worker. A worker may go on without them as long as it likes, to evaluate or to save.
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
        self._say("slimps: all workers have ended, but %s did not follow within %.0f s; they wait for workers to join. "
                  "Does the program make a store (in Python slimps.kv.create, DistributedOptimizer or CommHookState)?"
                  % (", ".join(node.name for node in late), self.job.end_grace))
        return 1

    def _settle(self, failed):
        """Others may have been told of a failure before the one that caused it has quite ended."""
        self.output.hold()
        begun = time.monotonic()
        while True:
            blamed = self._blamed(failed)
            late = blamed is not None and blamed.status is None
            left = begun + (self.job.stop_grace if late else self.job.settle) - time.monotonic()
            if left <= 0:
                return failed
            event = self._next_event(min(left, self.job.settle))
            if isinstance(event, Node) and event.status != 0:
                failed.append(event)

    def _blamed(self, failed):
        """Whom the last words of those that failed name, if it is of this job."""
        named = {found.group(1) for node in failed for line in list(node.last_lines)
                 for found in BLAMED.finditer(line)}
        return next((node for node in self.nodes if node.process is not None and str(node.process.pid) in named), None)

    def _report_failure(self, failed):
        """Who failed, what it said last and nobody has seen yet, and who ended with it; the error comes first."""
        self.output.hold()
        self._kill_all()
        if not failed:
            return 1
        # A process that a signal ended did not choose to: where there is one, it comes before those that complain. So
        # does one that they name.
        blamed = self._blamed(failed)
        culprit = min(failed, key=lambda node: (node.status >= 0, node is not blamed, node.status == 0))
        lines = list(culprit.last_lines)
        at = None if culprit.status < 0 else slimps_output.last_error(lines)
        early = " while workers were running" if culprit.status == 0 else ""
        self._say("slimps: the job failed: %s %s%s%s" % (
            culprit.name, culprit.describe_end(), early,
            "; it printed nothing" if not lines else "" if at is None else ": " + lines[at]))
        unseen = self.output.unseen(culprit)
        for number, line in enumerate(lines):
            if number != at and number >= len(lines) - len(unseen):
                self._say("  %s| %s" % (culprit.name, line))
        self._report_others(culprit, None if at is None else lines[at], [node for node in failed if node is not culprit])
        return exit_status(culprit.status) or 1

    def _report_others(self, culprit, error, failed):
        """Those that ended with it in one line, and one line for each that has another reason to give."""
        followers = []
        for node in failed:
            lines = list(node.last_lines)
            at = slimps_output.last_error(lines)
            repeats = at is None or self._blamed([node]) is culprit or (
                error is not None and slimps_output.words_of(error) in lines[at])
            if repeats and node.status >= 0:
                followers.append(node.name)
            else:
                self._say("slimps: %s then %s%s" % (node.name, node.describe_end(), "" if at is None else ": " + lines[at]))
        if followers:
            self._say("slimps: with it ended %s%s" % (
                ", ".join(sorted(followers)), "" if self.verbose else " (--verbose shows what they said)"))

    # ---- stopping --------------------------------------------------------------------------------

    def _forward(self, number):
        """Passes a signal on to everyone and gives them time to end by it; a second signal ends the patience."""
        self.interrupted = number
        self._say("slimps: %s: stopping the job" % signal_name(number))
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
            signal_group(node, number)

    def _kill_all(self):
        """SIGTERM, and SIGKILL to what is left after the grace time; then to each group, for what a node started."""
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + self.job.stop_grace
        while self._running() and time.monotonic() < deadline:
            self._next_event(deadline - time.monotonic())
        for node in self.nodes:
            if node.process is not None:
                signal_group(node, signal.SIGKILL)
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
    """What torchrun tells a script, for its own process group (torch.distributed's env://)."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


class Interrupted:
    """A signal came before the job had begun."""

    def __init__(self, number):
        self.number = number


def signal_group(node, number):
    try:
        os.killpg(node.process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def resolve_command(command, programs):
    """A daemon's name stands for the one that was built; anything else is run as it is."""
    name = command[0]
    if name in programs:
        return [programs[name]] + command[1:]
    if shutil.which(name) is None:
        what = "cannot be run" if os.path.sep in name and os.path.exists(name) else "not found"
        raise FileNotFoundError("command %s: %s" % (what, name))
    return command
