"""What the processes of a job print: shown as it comes, but held back from the first sign of a failure, so that a mistake
that everyone complains of is told once, by who made it.

A sign is the head of a traceback, a glog line of an error, or "slimps_NAME: " as the daemons end. Where the job goes on,
what was held is shown after HOLD_SECONDS.
"""

import re
import threading
import time

HOLD_SECONDS = 3.0
TRACEBACK = "Traceback (most recent call last):"
NOT_RAISED = "Exception ignored in"  # before a traceback that ends nothing
SIGN = re.compile(r"%s|[EF]\d{8} |slimps_\w+: " % re.escape(TRACEBACK))
LAST_WORD = re.compile(r"slimps_\w+: ")
SPEAKER = re.compile(r"[\w.]+: ")  # "slimps_worker: ", "slimps.errors.UnavailableError: "


def last_error(lines):
    """The index of the line that says why a process ended: where its last traceback says what was raised, or what a
    daemon said at its end, or else its last line. None where it printed nothing."""
    for index in reversed(range(len(lines))):
        if LAST_WORD.match(lines[index]):
            return index
        if lines[index] == TRACEBACK and not lines[max(index - 1, 0)].startswith(NOT_RAISED):
            raised = (at for at in range(index + 1, len(lines)) if not lines[at].startswith((" ", "\t")))
            return next(raised, len(lines) - 1)
    return len(lines) - 1 if lines else None


def words_of(error):
    """What an error says, without who says it, as others repeat it."""
    return SPEAKER.sub("", error, count=1)


class Output:
    """Thread-safe. `say` prints one line; `show` says whether a node's lines are shown at all."""

    def __init__(self, say, show, hold=True):
        self.say = say
        self.show = show
        self.may_hold = hold
        self.lock = threading.Lock()
        self.held = None  # (node, line) from the first sign on
        self.held_since = None
        self.kept = False  # until the end: the job has failed

    def add(self, node, line):
        with self.lock:
            node.last_lines.append(line)
            if self.held is None and self.may_hold and SIGN.match(line):
                self._hold()
            if self.held is not None:
                self.held.append((node, line))
            elif self.show(node):
                self.say("%s| %s" % (node.name, line))

    def hold(self):
        """A process has failed: nothing more is shown."""
        with self.lock:
            self.kept = True
            if self.held is None and self.may_hold:
                self._hold()

    def release(self, seconds=0.0):
        """Shows what has been held for so long, unless the job has failed."""
        with self.lock:
            if self.held is None or self.kept or time.monotonic() - self.held_since < seconds:
                return
            for node, line in self.held:
                if self.show(node):
                    self.say("%s| %s" % (node.name, line))
            self.held = None

    def unseen(self, node):
        """The last lines of a node that nobody has seen yet."""
        with self.lock:
            if not self.show(node):
                return list(node.last_lines)
            held = sum(1 for who, _ in self.held or () if who is node)
            return list(node.last_lines)[-held:] if held else []

    def _hold(self):
        self.held = []
        self.held_since = time.monotonic()
