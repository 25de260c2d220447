# SPDX-License-Identifier: Apache-2.0
"""Cuts what a process prints into lines and states of bars, as it comes, and keeps the last lines.

A piece is (text, end). A line ends with LINE. STATE ends a state of a line that is not over: the
process will overwrite the state, as progress bars do. All text is bytes as they came.
"""

import collections
import re

LINE, STATE = b"\n", b"\r"
LONGEST = 64 << 10  # bytes of a line; a longer one is cut into lines
MOST_CARRIED = 4 * LONGEST  # of a line with a node's name, or with a part of a trace
QUIET = 1.0  # seconds after which the begin of a line is shown as a state
ENDS = re.compile(rb"(\r?\n|\r)")


class Pieces:
    """The pieces of one pipe of a process."""

    def __init__(self):
        self.rest = b""  # what follows the last end
        self.state = b""  # the last state of the line that is not over
        self.is_bar = False  # True if that line has states

    def next(self, chunk):
        """Returns the pieces that the next chunk of the pipe completes.

        Empty: the pipe has ended. None: nothing has come for a while, so the begin of a line is
        shown as a state: a prompt, or dots.
        """
        if chunk is None:
            return self._show(self.rest)
        return self._add(chunk) if chunk else self._end()

    def _add(self, chunk):
        *ended, self.rest = ENDS.split(self.rest + chunk)
        for text, end in zip(ended[::2], ended[1::2]):
            if end == STATE:
                self.is_bar = True
                yield from self._show(text)
            else:
                yield text or self.state, LINE  # "\n" after "\r" keeps what is there
                self.state, self.is_bar = b"", False
        if len(self.rest) > LONGEST:
            yield self.rest, LINE
            self.rest = b""
        elif self.is_bar:  # bars say "\r" before each state, so the next one would end this one
            yield from self._show(self.rest)

    def _end(self):
        if self.rest or self.state:
            yield self.rest or self.state, LINE

    def _show(self, text):
        shown = text if text.strip() else b""  # blanks clear what is there
        if text and shown != self.state:
            yield text, STATE
            self.state = shown


class CarriedPieces(Pieces):
    """The pieces of nodes that one process carries, each in a line. That of a state ends "\r\n"."""

    def _add(self, chunk):
        *lines, self.rest = (self.rest + chunk).split(LINE)
        for line in lines:
            is_state = line.endswith(STATE)
            yield (line[:-1], STATE) if is_state else (line, LINE)
        if len(self.rest) > MOST_CARRIED:  # it is no agent that speaks
            yield self.rest, LINE
            self.rest = b""

    def _show(self, text):
        return ()


class Tail(collections.deque):
    """The last lines that a process has printed, as text: LONGEST bytes of them at most."""

    size = 0

    def append(self, line):
        super().append(line)
        self.size += len(line) + 1
        while self.size > LONGEST and len(self) > 1:
            self.size -= len(self.popleft()) + 1


def decoded(text):
    """Returns bytes as text, from which `encoded` makes the same bytes."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text):
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a pair, which stands for no byte
        return text.encode("utf-8", "backslashreplace")
