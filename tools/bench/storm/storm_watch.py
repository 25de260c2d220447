# SPDX-License-Identifier: Apache-2.0
"""What `slimps bench storm` sees of a job: its lines, its processes, and when kills were mended."""

import collections
import os
import re
import threading
import time

STEP = re.compile(r"worker0\| epoch \d+/\d+ step (\d+)/(\d+) ")
SECONDS = re.compile(r"worker0\| test accuracy .*, ([\d.]+) s, pushed")
LEFT_OUT = re.compile(r"its former process left (\d+) pushes out")
NOTICED = {
    "server": re.compile(r"server \d+ .* a process that was started anew takes its place"),
    "worker": re.compile(r"worker \d+ .* a process that was started anew takes its place"),
    "scheduler": re.compile("started again: going on by a journal"),
}
KEPT_LINES = 20


class Kill:
    """One kill. `detected` and `recovered` are seconds since then: until the scheduler knew it, or
    knew itself again, and until training had gone on."""

    def __init__(self, role, when):
        self.role = role
        self.when = when
        self.detected = None
        self.recovered = None
        self.step_before = None  # the newest step once it was detected


class Watch:
    """Follows a launcher's output on a thread of its own."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.step = 0
        self.steps = 0
        self.kills = []
        self.last_lines = collections.deque(maxlen=KEPT_LINES)
        self.trained = None
        self.left_out = 0  # pushes that workers had not made when they were killed
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

    def note_kill(self, role, _pid):
        self.kills.append(Kill(role, self.clock()))

    def see(self, line):
        """Takes one line of the job."""
        self.last_lines.append(line)
        done = SECONDS.search(line)
        if done:
            self.trained = float(done.group(1))
        left_out = LEFT_OUT.search(line)
        if left_out:
            self.left_out += int(left_out.group(1))
        kill = self.kills[-1] if self.kills else None
        if kill and kill.detected is None and NOTICED[kill.role].search(line):
            kill.detected = self.clock() - kill.when
            kill.step_before = self.step
        step = STEP.search(line)
        if step is None:
            return
        self.step, self.steps = int(step.group(1)), int(step.group(2))
        self.last = (self.clock(), self.step)
        self.first = self.first or self.last
        # The first step after that one may have been on its way already.
        if kill and kill.detected is not None and kill.recovered is None:
            if self.step > kill.step_before + 20 or self.step == self.steps:
                kill.recovered = self.clock() - kill.when

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
