# SPDX-License-Identifier: Apache-2.0
"""What the benches share: flags, programs, signals, and how tables look.

    parser = common.Parser(prog="slimps bench x", allow_abbrev=False)
    parser.add_argument("--repeats", type=common.number(1, 99, int))
    programs = common.find_programs({"p": ("//a:p", "a/p")}, options.programs)
    with common.ending_on_signals():
        ...

Thread-safe, except ending_on_signals, which only the main thread may use.
"""

import argparse
import contextlib
import difflib
import os
import signal
import sys

from cli import setup

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# ---- flags
# ------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser whose error for an unknown flag suggests the nearest known one."""

    def error(self, message):
        for word in message.split():
            if word.startswith("--") and "unrecognized" in message:
                flags = [
                    flag
                    for action in self._actions
                    for flag in action.option_strings
                    if flag.startswith("--")
                ]
                near = difflib.get_close_matches(word.split("=")[0], flags, 1, 0.5)
                if near:
                    message += ": did you mean %s?" % near[0]
                break
        super().error(message)

    def add_count(self, flag, most, default, meaning):
        """Adds a whole number from 1 to `most`."""
        self.add_argument(
            flag,
            type=number(1, most, int),
            default=default,
            metavar="N",
            help="%s (%d)" % (meaning, default),
        )

    def add_placement(self):
        self.add_argument(
            "--placement",
            choices=("together", "apart"),
            default="together",
            help="a worker and a server on each node, or each on a node of its own (together)",
        )

    def add_files(self, programs="the programs", json="write the figures here"):
        """Adds --json and --programs; `programs` are those that it looks for."""
        self.add_argument("--json", metavar="FILE", help=json)
        self.add_argument(
            "--programs", metavar="FOLDER", help="where %s are built already (bazel-bin)" % programs
        )


def number(low, high, kind):
    """Returns an argparse type: an int or a float (`kind`) from low to high."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:  # NaN is in no range
            raise argparse.ArgumentTypeError("expected %s to %s, got \"%s\"" % (low, high, text))
        return value

    return parse


def name_list(text):
    """Returns the words of a list with commas.

    argparse.ArgumentTypeError: a word is empty or is there twice.
    """
    words = text.split(",")
    if "" in words:
        raise argparse.ArgumentTypeError(
            "expected names with commas between them, got \"%s\"" % text
        )
    for word in words:
        if words.count(word) > 1:
            raise argparse.ArgumentTypeError("\"%s\" is there twice: %s" % (word, text))
    return words


# ---- programs and signals
# ---------------------------------------------------------------------------


def find_programs(programs, folder=None):
    """Returns {name: path} for `programs`, {name: (target, file)}.

    Takes the files from `folder`; if it is None, builds the targets and takes bazel-bin. A wheel
    has some in tools/bin.
    SetupError: a program is not there.
    """
    if folder is None and setup.IS_CHECKOUT:
        setup.install_packages()
        setup.build([target for target, _ in programs.values()])
        folder = setup.built()
    paths = {
        name: os.path.join(setup.REPOSITORY, "tools", "bin", os.path.basename(path))
        if folder is None
        else os.path.join(folder, path)
        for name, (_, path) in programs.items()
    }
    for path in paths.values():
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            raise setup.SetupError(
                "cannot run %s: there is no such program%s"
                % (path, "" if folder else " in an installed slimps; a checkout builds it")
            )
    return paths


@contextlib.contextmanager
def ending_on_signals():
    """Makes SIGINT, SIGTERM and SIGHUP raise SystemExit(128 + number) within the `with` block.

    So context managers clean up on the way out. After the first signal, further ones are ignored.
    Signals that were ignored before (nohup) stay ignored. Python ignores what is raised within
    __del__ and around a fork: then SystemExit is raised again behind it.
    """
    ended_by = []

    def end(number_of_signal, _):
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        if number_of_signal != signal.SIGALRM:
            ended_by.append(number_of_signal)
        raise SystemExit(128 + ended_by[0])

    def raise_again(ignored):
        if ended_by and ignored.exc_type is SystemExit:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            hook(ignored)

    before = {
        each: signal.getsignal(each)
        for each in END_SIGNALS
        if signal.getsignal(each) is not signal.SIG_IGN
    }
    alarm, hook = signal.signal(signal.SIGALRM, end), sys.unraisablehook
    sys.unraisablehook = raise_again
    try:
        for each in before:
            signal.signal(each, end)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        sys.unraisablehook = hook


# ---- tables
# -----------------------------------------------------------------------------------------


def size_name(size):
    """Returns "64 KiB", or bytes if it is no whole number of KiB; "none" for None."""
    if size is None:
        return "none"
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % scale == 0:
            return "%d %s" % (size // scale, unit)
    return "%d B" % size


def ratio(value):
    return "" if value is None else "%.2f" % value


def verdict(met, bar):
    return "%s %s" % (bar, "met" if met else "MISSED")


def text_table(headings, rows):
    """Returns a table's lines for a terminal: first column left-aligned, others right-aligned."""
    table = [headings] + list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    return [
        (
            "  "
            + "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths))
            )
        ).rstrip()
        for row in table
    ]


def markdown_table(headings, rows):
    return ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)] + [
        "| " + " | ".join(row) + " |" for row in rows
    ]


def text_report(about, tables):
    """Returns a report for a terminal. `tables` gives (title, headings, rows)."""
    lines = [about]
    for title, headings, rows in tables:
        lines += ["", title] + text_table(headings, rows)
    return "\n".join(lines)


def markdown_report(about, tables):
    """Returns a report for a page. `tables` gives (title, headings, rows)."""
    lines = [about + "."]
    for title, headings, rows in tables:
        lines += ["", "### %s" % title, ""] + markdown_table(headings, rows)
    return "\n".join(lines)
