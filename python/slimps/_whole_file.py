"""Files that are written whole or not at all, and last."""

from __future__ import annotations

import os


def write(path: str, content: bytes, suffix: str) -> None:
    """By way of a draft beside `path`, whose name ends in `suffix`: another writer's of the same path differs.

    When it returns, a power cut leaves the new file; before, the old one.
    """
    draft = "%s.%s" % (path, suffix)
    try:
        with open(draft, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
        _sync_folder(os.path.dirname(path) or ".")
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
