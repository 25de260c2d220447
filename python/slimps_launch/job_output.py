# SPDX-License-Identifier: Apache-2.0
"""The output of a job's processes: shown as it comes, byte by byte, and kept in files."""

import os
import stat
import threading
import time

from slimps_launch import pieces

STDOUT, STDERR = 1, 2
STATE_SECONDS = 5.0  # between two states of a bar that become lines of a file
TO_LINE_END = b"\x1b[K"  # a terminal clears the rest of the line


class Screen:
    """The launcher's own stdout or stderr, which takes bytes whatever its encoding."""

    def __init__(self, stream):
        self.stream = stream
        self.lock = threading.Lock()  # it is held as long as the stream takes nothing
        self.is_terminal = stream.isatty()

    def write(self, data):
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:  # as io.StringIO
            self.stream.write(data.decode("utf-8", "replace"))
            return
        self.stream.flush()
        buffer.write(data)
        buffer.flush()

    def fitting(self, text):
        """Returns as much as fits into one row: a state of two could not be overwritten."""
        columns = os.get_terminal_size(self.stream.fileno()).columns  # 0: it does not know
        return pieces.encoded(pieces.decoded(text)[: columns - 1]) if columns else text


class Output:
    """Shows the lines and bars of a job's processes, and what the launcher says. Thread-safe.

    show(node) is true if the node's lines are shown. `logs` is a Logs, or None. A state of a bar
    overwrites the last one on a terminal. In a file each becomes a line, one in STATE_SECONDS.
    """

    def __init__(self, out, err, show, logs=None):
        self.screens = {STDOUT: Screen(out)}
        self.screens[STDERR] = self.screens[STDOUT] if err is out else Screen(err)
        self.show = show
        self.logs = logs
        self.is_on_state = False  # True if the cursor of the terminal is on the state of a bar
        self.next_state = {}  # when the next state may become a line, by node and stream
        self.unsaid = {}  # where lines are missing, and the error

    def add(self, node, stream, text, end):
        """Shows a piece of a node, and keeps it."""
        if end == pieces.LINE:
            node.remember(stream, text)
        try:
            if self.logs is not None:
                self.logs.add(node.name, text + end)
        except OSError as error:  # a full disk must not hold the job up
            self.unsaid.setdefault("written to --logs", error)
        if not self.show(node):
            return
        if end == pieces.STATE and not self.screens[stream].is_terminal:
            if not text.strip() or not self._is_due((node.name, stream)):
                return
            end = pieces.LINE
        self._write(stream, b"%s| %s" % (pieces.encoded(node.name), text), end)

    def say(self, line, stream=STDOUT):
        """Prints one line of the launcher."""
        self._write(stream, pieces.encoded(line), pieces.LINE)

    def _is_due(self, source):
        now = time.monotonic()
        if now < self.next_state.get(source, now):
            return False
        self.next_state[source] = now + STATE_SECONDS
        return True

    def _write(self, stream, line, end):
        screen = self.screens[stream]
        with screen.lock:
            try:
                if screen.is_terminal and end == pieces.STATE:
                    line = screen.fitting(line) + TO_LINE_END
                    self.is_on_state = True
                elif screen.is_terminal and self.is_on_state:
                    line += TO_LINE_END
                    self.is_on_state = False
                screen.write(line + end)
            except BrokenPipeError:
                pass
            except OSError as error:
                self.unsaid.setdefault("printed", error)


class Logs:
    """A file per node in a folder, which is made if need be. Thread-safe.

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

    def add(self, name, piece):
        self.files[name].write(piece)
