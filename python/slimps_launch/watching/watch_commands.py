# SPDX-License-Identifier: Apache-2.0
"""slimps status and slimps top: what the page shows, for terminals."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time

from slimps_launch import errors
from slimps_launch.watching import source
from slimps_launch.watching import words

SILENT_FOR_S = 10  # then top takes the job as over
# Workers send details with the second heartbeat after somebody has asked; one comes each second.
# The scheduler looks four times a second, before the first and after the second.
DETAILS_WITHIN_S = 3
ASK_AGAIN_S = 0.25
OVER = ("done", "failed")


def encoding():
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def say(lines, end="\n"):
    """Prints lines. What the terminal has no letters for becomes a question mark."""
    text = "\n".join(lines).encode(encoding(), "replace").decode(encoding())
    print(text, end=end, flush=True)


def told(state):
    """Returns the lines of a state, with curves of letters that the terminal has."""
    try:
        words.BLOCKS.encode(encoding())
    except UnicodeEncodeError:
        return words.status(state, words.ASCII)
    return words.status(state)


def ask_for_details(asked, now=time.monotonic, wait=time.sleep):
    """Returns the job's state, with its tensors if it has any.

    The first question makes the workers send them. LaunchError: there is no answer to it.
    """
    state = asked.ask()
    end = now() + DETAILS_WITHIN_S
    with contextlib.suppress(source.Silent):  # the job ends meanwhile
        while state["job"]["phase"] == "running" and not state["tensors"] and now() < end:
            wait(ASK_AGAIN_S)
            state = asked.ask()
    return state


def status(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps status",
        description="Shows what a running job does: its nodes and who is slow, waiting or gone, "
        "figures, decisions, tensors, the newest round. The job needs --page_port.",
    )
    source.add_flags(parser)
    parser.add_argument("--json", action="store_true", help="all of it, as the scheduler says it")
    options = parser.parse_args(arguments)
    source.check(parser, options)
    state = ask_for_details(source.find(options, os.environ))
    say([json.dumps(state, indent=1)] if options.json else told(state))
    return 0


def top(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps top",
        description="Shows slimps status again each second, until the job ends or Ctrl-C is "
        "pressed.",
    )
    source.add_flags(parser)
    options = parser.parse_args(arguments)
    source.check(parser, options)
    last = Top(source.find(options, os.environ)).run()
    return 1 if last["job"]["phase"] == "failed" else 0


@contextlib.contextmanager
def screen(is_terminal):
    """The terminal's other screen, without a cursor: what was there before comes back."""
    if not is_terminal:
        yield
        return
    try:
        say(["\x1b[?1049h\x1b[?25l"], end="")
        yield
    finally:
        say(["\x1b[?25h\x1b[?1049l"], end="")


class Top:
    """Asks each second, and draws."""

    def __init__(self, asked, find_again=source.find_again, now=time.monotonic, wait=time.sleep):
        self.asked = asked
        self.find_again = find_again  # a scheduler that was started again has another address
        self.now = now
        self.wait = wait
        self.is_terminal = sys.stdout.isatty()

    def run(self):
        """Returns the last state. LaunchError: there was none."""
        state = self.asked.ask()
        heard = self.now()
        with screen(self.is_terminal), contextlib.suppress(KeyboardInterrupt):
            while True:
                silent = self.now() - heard
                self.draw(state, silent)
                if state["job"]["phase"] in OVER or silent >= SILENT_FOR_S:
                    break
                self.wait(1)
                try:
                    state = self.asked.ask()
                    heard = self.now()
                except errors.LaunchError:
                    with contextlib.suppress(errors.LaunchError):
                        self.asked = self.find_again(self.asked)
        if self.is_terminal:
            say(told(state))
        if self.now() - heard >= SILENT_FOR_S:
            say(["no answer for %d s: the job is over, or its scheduler is gone" % SILENT_FOR_S])
        return state

    def draw(self, state, silent):
        lines = told(state)
        if silent >= 2:
            lines.insert(0, "no answer since %d s; this is what was said last" % silent)
        if not self.is_terminal:
            say(lines + [""])
            return
        columns, rows = shutil.get_terminal_size()
        if len(lines) > rows:
            lines[rows - 1 :] = ["%d more lines" % (len(lines) - rows + 1)]
        say(["\x1b[H" + "\n".join(line[:columns] + "\x1b[K" for line in lines) + "\x1b[J"], end="")
