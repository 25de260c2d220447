# SPDX-License-Identifier: Apache-2.0
"""Folders that live as long as a job: with its keys, its snapshots, parts of its trace.

The process that makes a folder keeps it locked. So a folder whose lock is free was left behind by a
process that was killed, and the next one that makes a folder beside it removes it. Other machines
may not see the lock: a folder's name has that of its machine, which alone removes it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import tempfile

from slimps_launch import errors

PREFIX = "slimps-job-"


@contextlib.contextmanager
def folder(what, parent=None, flag=""):
    """Makes a folder "slimps-job-WHAT-HOST-..." that only this user can enter.

    It goes with the block. `parent` is made if need be; None: where temporary files are.

    LaunchError: it cannot be made. The message begins with `flag`.
    """
    parent = parent or tempfile.gettempdir()
    with contextlib.ExitStack() as until_the_end:
        try:
            os.makedirs(parent, exist_ok=True)
            _remove_left_behind(parent)
            path, lock = _make(parent, "%s%s-%s-" % (PREFIX, what, socket.gethostname()))
        except OSError as error:
            where = error.filename or parent
            raise errors.LaunchError("%s%s: %s" % (flag, where, error.strerror)) from error
        if lock is not None:
            until_the_end.callback(os.close, lock)
        until_the_end.callback(shutil.rmtree, path, ignore_errors=True)
        yield path


def _make(parent, prefix):
    """Returns a new folder, and its lock: None if the file system has no locks."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            lock = _locked(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process has taken it for left behind
        except OSError:
            return path, None
        if os.path.isdir(path):
            return path, lock
        os.close(lock)


def _locked(path):
    """Returns a descriptor of the folder, locked.

    OSError: another process has locked it, or the file system has no locks.
    """
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def _remove_left_behind(parent):
    ours = re.compile("%s[a-z]+-%s-[a-z0-9_]{8}" % (PREFIX, re.escape(socket.gethostname())))
    for name in filter(ours.fullmatch, os.listdir(parent)):
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # it is in use, or another user's
            opened = _locked(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(opened)
