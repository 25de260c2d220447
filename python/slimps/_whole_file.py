# SPDX-License-Identifier: Apache-2.0
"""Writes files whole or not at all, also if the power fails."""

from __future__ import annotations

import os


def write(path: str, content: bytes, suffix: str) -> None:
    """Writes `content` to `path` through a draft file beside it. Only this user may read it.

    The draft's name ends in `suffix`, which must differ between writers of the same path. After a
    power cut the old file is there, or, once write() has returned, the new one.
    """
    draft = "%s.%s" % (path, suffix)
    try:
        with open(draft, "wb", opener=_open_for_this_user) as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
        _sync_folder(os.path.dirname(path) or ".")
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def _open_for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
