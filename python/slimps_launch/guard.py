# SPDX-License-Identifier: Apache-2.0
"""Ends process groups with the process at the other end of a pipe. A program.

It reads the numbers of groups from stdin, one a line. If the pipe closes before the line "done",
the writer was killed: the groups get SIGTERM and, after a grace time, SIGKILL.
"""

import os
import signal
import sys
import time

GRACE = 3.0  # seconds
LOOK_AGAIN = 0.05  # seconds; a group that is no child of ours ends without an event


def signal_groups(groups, number):
    """Returns those of the groups that are still there."""
    there = []
    for group in groups:
        try:
            os.killpg(group, number)
            there.append(group)
        except (ProcessLookupError, PermissionError):
            pass
    return there


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    groups = []
    for line in sys.stdin:
        if line == "done\n":
            return
        groups.append(int(line))
    groups = signal_groups(groups, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while groups and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN)
        groups = signal_groups(groups, 0)
    signal_groups(groups, signal.SIGKILL)


if __name__ == "__main__":
    main()
