# SPDX-License-Identifier: Apache-2.0
"""What `slimps bench storm` sees of a job: its lines, its processes, when troubles were mended."""

import collections
import os
import re
import threading
import time

STEP = re.compile(r"worker0\| epoch \d+/\d+ step (\d+)/(\d+) ")
SECONDS = re.compile(r"worker0\| test accuracy .*, ([\d.]+) s, pushed")
LEFT_OUT = re.compile(r"its former process left (\d+) pushes out")
# What the scheduler says.
CLOSED = re.compile(r"(?:server|worker) \d+ \(.*, pid (\d+)\) has closed its connection")
SILENT = re.compile(r"(?:server|worker) \d+ \(.*, pid (\d+)\) has been silent for over")
RETURNED = {
    "server": re.compile(r"server \d+ .* a process that was started anew takes its place"),
    "worker": re.compile(r"worker \d+ .* a process that was started anew takes its place"),
    "scheduler": re.compile("started again: going on by a journal"),
}
TIMEOUT_S = 10.0  # the heartbeat's: a node that is silent for less does not count as dead
# A node may have sent its last heartbeat so long before it was stopped.
INTERVAL_S = 1.2
KEPT_LINES = 20


class Trouble:
    """A process that was killed, stopped or cut off. All times are seconds since then."""

    def __init__(self, kind, role, pid, when, away=None):
        self.kind = kind  # "kill", "stop" or "cut"
        self.role = role
        self.pid = pid
        self.when = when
        self.away = away  # how long it is stopped or cut off
        self.detected = None  # when the scheduler said it
        self.recovered = None  # when training had gone on
        self.mended = False  # True: it runs again, or another process has its place
        self.step_before = None  # the newest step then
        self.longest_pause = 0.0  # between two lines of steps, until it was mended

    def is_due(self, now):
        """True if it is time to let it run again."""
        return self.kind != "kill" and not self.mended and now >= self.when + self.away


class Watch:
    """Follows a launcher's output on a thread of its own."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.step = 0
        self.steps = 0
        self.troubles = []
        self.last_lines = collections.deque(maxlen=KEPT_LINES)
        self.trained = None
        self.left_out = 0  # pushes that workers had not made when they were killed
        self.false_deaths = 0  # nodes that counted as silent, and were not
        self.first = self.last = None  # (time, step)
        self.thread = None

    def follow(self, output):
        self.thread = threading.Thread(target=self._read, args=(output,), daemon=True)
        self.thread.start()

    def _read(self, output):
        with output:
            for line in output:
                self.see(line.rstrip("\n"))

    def join(self):
        self.thread.join()

    def note(self, kind, role, pid, away=None):
        """Notes a trouble that is about to be made."""
        self.troubles.append(Trouble(kind, role, pid, self.clock(), away))

    def note_mended(self, trouble):
        """Notes that the process runs again, or that another one has taken its place."""
        trouble.step_before = self.step
        trouble.mended = True

    def see(self, line):
        """Takes one line of the job."""
        self.last_lines.append(line)
        if done := SECONDS.search(line):
            self.trained = float(done.group(1))
        if left_out := LEFT_OUT.search(line):
            self.left_out += int(left_out.group(1))
        trouble = self.troubles[-1] if self.troubles else None
        self._see_scheduler(line, trouble)
        if step := STEP.search(line):
            self._see_step(int(step.group(1)), int(step.group(2)), trouble)

    def _see_scheduler(self, line, trouble):
        closed, silent = CLOSED.search(line), SILENT.search(line)
        if silent and not self._is_dead(int(silent.group(1))):
            self.false_deaths += 1
        if trouble is None:
            return
        noticed = closed if trouble.kind == "kill" else silent
        if noticed and int(noticed.group(1)) == trouble.pid and trouble.detected is None:
            trouble.detected = self.clock() - trouble.when
        if trouble.kind == "kill" and not trouble.mended and RETURNED[trouble.role].search(line):
            self._note_pause(trouble)
            self.note_mended(trouble)

    def _is_dead(self, pid):
        """True if this process was killed, or is stopped or cut off for about the timeout now."""
        since = self.clock() - (TIMEOUT_S - INTERVAL_S)
        return any(
            one.pid == pid and (one.kind == "kill" or not one.mended and since >= one.when)
            for one in self.troubles
        )

    def _note_pause(self, trouble):
        if self.last:
            pause = self.clock() - max(trouble.when, self.last[0])
            trouble.longest_pause = max(trouble.longest_pause, pause)

    def _see_step(self, step, steps, trouble):
        now = self.clock()
        if trouble and not trouble.mended:
            self._note_pause(trouble)
        self.step, self.steps = step, steps
        self.last = (now, step)
        self.first = self.first or self.last
        # The first step after that one may have been on its way already.
        if trouble and trouble.mended and trouble.recovered is None:
            if step > trouble.step_before + 20 or step == steps:
                trouble.recovered = now - trouble.when

    def steps_per_second(self):
        """Returns the speed between the first and the last step seen, restarts included."""
        (began, first), (ended, last) = self.first, self.last
        return (last - first) / (ended - began)

    def seconds(self):
        """Returns how long the training took, as the first worker says."""
        if self.trained is None:
            raise ValueError("the training did not say how long it took")
        return self.trained


def stat_of(pid):
    """Returns (name, parent) of a process; None: it is gone."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stat:
            text = stat.read()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, int(text.rsplit(")", 1)[1].split()[1])


def descendants(root):
    """Returns (role, pid) of the daemons and workers that a process has started."""
    stats = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := stat_of(int(entry))) is not None:
            stats[int(entry)] = stat
    found = []
    for pid, (name, parent) in stats.items():
        while parent in stats and parent != root:
            parent = stats[parent][1]
        # The system cuts names to 15 bytes.
        if parent == root and name.startswith("slimps_"):
            role = next(
                (role for role in ("server", "scheduler", "worker") if role.startswith(name[7:15])),
                None,
            )
            if role:
                found.append((role, pid))
    return found
