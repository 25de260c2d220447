# SPDX-License-Identifier: Apache-2.0
"""Progress bars of long commands: on stderr, and only if that is a terminal.

    with progress.Bar(len(seeds), "seed") as bar:
        for seed in seeds:
            ...
            bar.advance()
            progress.say("a line above the bar")
"""

import re
import sys

try:
    import tqdm
except ImportError:  # before Debian's packages are installed there are no bars
    tqdm = None

CASE = re.compile(r"\[(\d+)/(\d+)\] ([^:]+): ")  # how bench_codec begins the line of a case


class Bar:
    """A bar of `total` units of work; None: it is not known yet, or never. A context manager.

    Owned by the thread that makes it.
    """

    def __init__(self, total, unit):
        self._bar = None
        if tqdm is not None:
            # disable=None: only on a terminal.
            self._bar = tqdm.tqdm(
                total=total, unit=" " + unit, disable=None, leave=False, dynamic_ncols=True
            )

    @property
    def is_shown(self):
        return self._bar is not None and not self._bar.disable

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self._bar is not None:
            self._bar.close()

    def advance(self, what=""):
        """Notes that a unit is done. `what` is shown beside the bar."""
        if self.is_shown:
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update()

    def reach(self, done, total, what=""):
        """Notes that `done` of `total` units are done. `what` is shown beside the bar."""
        if self.is_shown:
            self._bar.n, self._bar.total = done, total
            self._bar.set_postfix_str(what, refresh=True)

    def show(self, line):
        """Shows a line of bench_codec's stderr: a case by the bar, others above it."""
        case = CASE.search(line)
        if case is None or not self.is_shown or ": failed: " in line:
            note(line.rstrip("\n"))
            return
        self.reach(int(case[1]), int(case[2]), case[3])


def say(line):
    """Prints a line to stdout, above the bar if there is one."""
    _write(line, sys.stdout)


def note(line):
    """Prints a line to stderr, above the bar if there is one."""
    _write(line, sys.stderr)


def _write(line, file):
    if tqdm is not None:
        tqdm.tqdm.write(line, file=file)
        file.flush()
    else:
        print(line, file=file, flush=True)
