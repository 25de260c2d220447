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
    """A bar of `total` units of work; None: as many as show() finds. A context manager.

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

    def show(self, line):
        """Shows a line of bench_codec's stderr: a case by the bar, others above it."""
        case = CASE.search(line)
        if case is None or not self.is_shown or ": failed: " in line:
            note(line.rstrip("\n"))
            return
        self._bar.total = int(case[2])
        self._bar.n = int(case[1])
        self._bar.set_postfix_str(case[3], refresh=True)


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
