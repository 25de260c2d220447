# SPDX-License-Identifier: Apache-2.0
"""The output of a job's processes: shown as it comes, but held back after a sign of failure.

So an error that all processes complain of is shown once, as the process that caused it says it. A
sign is the head of a traceback, a glog line of an error, or "slimps_NAME: ", with which the daemons
end. If the job goes on, held lines are shown after HOLD_SECONDS.
"""

import os
import re
import stat
import threading

HOLD_SECONDS = 3.0
TRACEBACK = "Traceback (most recent call last):"
NOT_RAISED = "Exception ignored in"  # the line before a traceback that does not end the process
SIGN = re.compile(r"%s|[EF]\d{8} |slimps_\w+: " % re.escape(TRACEBACK))
LAST_WORD = re.compile(r"slimps_\w+: ")
SPEAKER = re.compile(r"[\w.]+: ")  # "slimps_worker: ", "slimps.errors.UnavailableError: "


def last_error(lines):
    """Returns the index of the line that says why a process ended; None if it printed nothing.

    That is the line of its last traceback that names the exception, or a daemon's last message, or
    else its last line.
    """
    for index in reversed(range(len(lines))):
        if LAST_WORD.match(lines[index]):
            return index
        if lines[index] == TRACEBACK and not lines[max(index - 1, 0)].startswith(NOT_RAISED):
            raised = (
                at for at in range(index + 1, len(lines)) if not lines[at].startswith((" ", "\t"))
            )
            return next(raised, len(lines) - 1)
    return len(lines) - 1 if lines else None


def words_of(error):
    """Returns an error without the name of its speaker: others repeat it in this form."""
    return SPEAKER.sub("", error, count=1)


class Output:
    """Shows or holds the lines of a job's processes. Thread-safe.

    `say` prints one line. show(node) is true if the node's lines are shown at all.
    """

    def __init__(self, say, show, hold=True):
        self.say = say
        self.show = show
        self.may_hold = hold
        self.lock = threading.Lock()  # it is held as long as stdout takes no line
        self.held = None  # (node, line) from the first sign on
        self.kept = False  # True once the job has failed: lines are then held until the end

    def add(self, node, line):
        node.last_lines.append(line)
        with self.lock:
            if self.held is None and self.may_hold and (self.kept or SIGN.match(line)):
                self._hold()
            if self.held is not None:
                self.held.append((node, line))
            elif self.show(node):
                self.say("%s| %s" % (node.name, line))

    def hold(self):
        """Shows no further lines, because a process has failed. Does not wait for the lock."""
        self.kept = True

    def release(self):
        """Shows the held lines, unless the job has failed."""
        if self.kept:
            return
        with self.lock:
            for node, line in self.held or ():
                if self.show(node):
                    self.say("%s| %s" % (node.name, line))
            self.held = None

    def unseen(self, node):
        """Returns the last lines of a node that were not shown yet."""
        with self.lock:
            if not self.show(node):
                return list(node.last_lines)
            held = sum(1 for who, _ in self.held or () if who is node)
            return list(node.last_lines)[-held:] if held else []

    def _hold(self):
        self.held = []
        timer = threading.Timer(HOLD_SECONDS, self.release)
        timer.daemon = True
        timer.start()


class Logs:
    """A file per node in a folder, which is made if need be. Each node writes on one thread.

    OSError: the folder cannot be made, or a file cannot be opened or written.
    """

    def __init__(self, folder, suffix=""):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.suffix = suffix  # of a restarted job, whose logs stand beside those of the first
        self.files = {}

    def open(self, name):
        path = os.path.join(self.folder, "%s%s.log" % (name.replace(" ", "_"), self.suffix))
        # A process that is started again goes on in the file of the one before.
        mode = "ab" if name in self.files else "wb"
        self.files[name] = open(path, mode, buffering=0, opener=self._open_for_this_user)

    @staticmethod
    def _open_for_this_user(path, flags):
        """The scheduler's lines have the page's token."""
        file = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.fchmod(file, 0o600)  # it may be an earlier job's
        return file

    def add(self, name, line):
        self.files[name].write((line + "\n").encode("utf-8", "replace"))
