# SPDX-License-Identifier: Apache-2.0
"""One process of a job: what is known of it, and signals to it and what it started."""

import contextlib
import ctypes
import json
import os
import signal

from slimps_launch import pieces

PR_SET_PDEATHSIG = 1
SHELLS = ("sh", "dash", "bash", "zsh", "ksh")
# The file in which a process says why it ends with an error, as a JSON (blame.py).
REPORT = "SLIMPS_REPORT_FILE"
MOST_REPORTED = 1 << 20  # characters


class Node:
    """One process, its output and how it ended."""

    cut = pieces.Pieces  # how its output is cut

    def __init__(self, name, role, command, cores=None):
        self.name = name
        self.role = role
        self.command = command
        self.cores = cores  # the cores that it may use; None: all
        self.environment = None  # the variables that it gets beside the launcher's
        self.process = None
        self.pid = None  # its number on its machine
        self.where = None  # its host, where that is another one
        self.reader = None
        self.status = None  # as in subprocess: negative is a signal
        self.stopped = False  # True if it has ended because it was told to
        self.killed = False
        self.last_lines = pieces.Tail()
        self.last_errors = pieces.Tail()  # those of its stderr
        self.report_file = None  # where it says why it ends with an error, on this machine
        self.said = {}  # its report, once it is there

    @property
    def report(self):
        """What the process says of its error, as {name: text}; empty before it does."""
        if not self.said and self.report_file is not None:
            with contextlib.suppress(Exception):  # there is none, or a stranger's
                found = os.open(self.report_file, os.O_RDONLY | os.O_NONBLOCK)
                with open(found, encoding="utf-8") as file:
                    told = json.loads(file.read(MOST_REPORTED)).items()
                self.said = {key: text for key, text in told if isinstance(text, str)}
        return self.said

    def remember(self, stream, text):
        """Keeps a line of its stdout (1) or stderr (2)."""
        line = pieces.decoded(text)
        self.last_lines.append(line)
        if stream == 2:
            self.last_errors.append(line)

    def signal(self, number):
        """Sends a signal to the process alone: what it has started is its own to end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self.process.send_signal(number)

    def kill(self):
        """Ends the process and what it has started, at once."""
        self.killed = True
        signal_group(self, signal.SIGKILL)

    def signal_rest(self, number):
        """Sends a signal to what the process, which has ended, has started."""
        signal_group(self, number)

    def has_rest(self):
        """True if something may run that the process, which has ended, has started."""
        if self.killed:
            return False
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def pass_on(self, number):
        """Passes a signal to the worker that this is, or to those that it carries."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.kill(program_of(self.process.pid), number)

    def tell(self, line):
        """Writes a line to the process, if it hears. It may have ended."""
        if self.process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line.encode("utf-8") + b"\n")
            self.process.stdin.flush()

    def say_no_more(self):
        """Ends what tell() writes."""
        if self.process.stdin is None:
            return
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end_if_stopped(self):
        """Ends the process if somebody has stopped it, as by SIGSTOP: it cannot end by itself."""
        with contextlib.suppress(OSError):
            about = _text("/proc/%d/stat" % program_of(self.process.pid))
            if about.rpartition(") ")[2].startswith("T"):
                self.stopped = True
                self.kill()

    def successor(self, launcher):
        """Returns the node that takes the place of this one, which has ended; None: nobody can."""
        again = Node(self.name, self.role, self.command, self.cores)
        again.environment = self.environment
        launcher.nodes.remove(self)
        return again

    def start_again(self, launcher):
        """Starts a process that is a successor."""
        launcher.start_node(self, self.environment)

    def end_as(self, former):
        """Takes over the end of the process in whose place it was to be started."""
        self.last_lines, self.last_errors = former.last_lines, former.last_errors
        self.said, self.status = former.report, former.status

    def inner(self):
        """Returns the nodes that this process carries."""
        return []

    def keep(self):
        """Is called every few seconds while the process runs."""

    def hear(self, stream, text, end, launcher):
        """Takes a piece of what the process has printed, and shows it."""
        launcher.output.add(self, stream, text, end)

    def describe_end(self):
        if self.status is None:
            return "is running"
        if self.status < 0:
            return "was killed by " + signal_name(-self.status)
        return "exited with status %d" % self.status


def program_of(pid):
    """Returns the process in which a worker's program runs: behind a shell, the shell's child.

    A shell would end at once by a signal, and leave its child alone.
    """
    with contextlib.suppress(OSError, ValueError):  # it has ended, or has no child, or several
        while _text("/proc/%d/comm" % pid).strip() in SHELLS:
            (pid,) = map(int, _text("/proc/%d/task/%d/children" % (pid, pid)).split())
    return pid


def _text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def exit_status(status):
    """Returns a status as a shell shows it: 128 + the number of a signal."""
    return 128 - status if status < 0 else status


def die_with_parent(cores=None, ignored=()):
    """Returns a function for a child to run before exec. The child then keeps to `cores`, if given.

    It gets SIGKILL when the thread that started it ends, in whatever way. It ignores the signals
    `ignored`.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child():
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if cores:
            os.sched_setaffinity(0, cores)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return in_child


def signal_group(node, number):
    try:
        os.killpg(node.process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_with_parent():
    """Makes this process get SIGTERM when the one that started it ends, in whatever way."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
