# SPDX-License-Identifier: Apache-2.0
"""Commands of tests, with all that they start: their lines as they come, and who is left behind."""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "repo")]

from eventually import eventually  # noqa: E402
from slimps_launch import network  # noqa: E402

RUNFILES = os.getcwd()
PYTHON = sys.executable
SLIMPS = [PYTHON, os.path.join(HERE, "slimps_here.py"), RUNFILES]
TRAIN = [PYTHON, os.path.join(ROOT, "examples", "kvstore_numpy.py")]
SMALL = [PYTHON, os.path.join(HERE, "small_worker.py")]
SAVING = [PYTHON, os.path.join(HERE, "saving_worker.py")]
SECONDS = 180.0  # only a failing test waits this long
# The worker of `slimps demo`, beside its digits as in a wheel.
_folder = tempfile.TemporaryDirectory(prefix="slimps-test-")
DEMO = [PYTHON, os.path.join(_folder.name, "demo_worker.py"), os.devnull]
shutil.copy(os.path.join(ROOT, "python", "slimps_launch", "demo_worker.py"), _folder.name)
os.symlink(
    "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz",
    os.path.join(_folder.name, "digits.csv.gz"),
)
# What kvstore_numpy.py prints at the end wherever it runs: the same weights, the same bytes.
TRAINED = "worker0| slopes [1. 2. 3. 4. 5. 6. 7. 8.]; pushed 3200 bytes, pulled 3200"
MARK = "SLIMPS_TEST_MARK"
# Commands would ignore it, too, where these tests run in the background of a shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
LEFT_OUT = ("DMLC_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "MASTER_", "SLIMPS_")


class Command:
    """A running command. What it starts is known by a variable that it inherits."""

    def __init__(self, command, cwd=None, **environment):
        self.mark = uuid.uuid4().hex
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)
        }
        self.lines = []
        self.process = subprocess.Popen(
            command,
            env={**inherited, **environment, MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.reader.join()

    @property
    def said(self):
        return "\n".join(self.lines)

    def processes(self, name="", at_begin=False):
        """Returns the numbers of its processes whose command line has `name`."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as variables:
                    if ("%s=%s" % (MARK, self.mark)).encode() not in variables.read().split(b"\0"):
                        continue
                with open("/proc/%s/cmdline" % pid, "rb") as line:
                    text = line.read().decode()
                    if text.startswith(name) if at_begin else name in text:
                        found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass
        return found

    def status(self):
        """Waits for the end. AssertionError: it does not come."""
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError("no end after %.0f s:\n%s" % (SECONDS, self.said)) from None
        self.reader.join(SECONDS)
        return status

    def wait_for(self, pattern, count=1):
        """Waits until `count` lines match, and returns the matches."""

        def found():
            return [match for match in map(re.compile(pattern).search, list(self.lines)) if match]

        eventually(lambda: len(found()) >= count or self.process.poll() is not None, SECONDS)
        assert len(found()) >= count, "no %r in:\n%s" % (pattern, self.said)
        return found()

    def nobody_is_left(self):
        return eventually(lambda: not self.processes(), SECONDS)


@functools.lru_cache(maxsize=None)
def accuracies_here():
    """Returns what the demo's worker prints of each epoch, in a job of two on this machine."""
    local = SLIMPS + ["launch", "--workers=2", "--servers=2", "--"] + DEMO
    with Command(local, OPENBLAS_NUM_THREADS="1") as running:
        assert running.status() == 0, running.said
        return [line for line in running.lines if line.startswith("worker0| epoch")]


def trained(command, **environment):
    """Runs a command with TRAIN or DEMO. Asserts that it ends as a local job does, with the same
    accuracies. Returns its lines."""
    expected = accuracies_here() if DEMO[1] in command else [TRAINED]
    with Command(command, OPENBLAS_NUM_THREADS="1", **environment) as running:
        status = running.status()
        assert status == 0, running.said
        assert expected and set(expected) <= set(running.lines), running.said
        assert running.nobody_is_left(), running.said
        return running.lines


def free_port():
    with network.hold_port() as held:
        return network.port_of(held)
