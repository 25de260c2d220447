"""Files that are written whole or not at all."""

from __future__ import annotations

import os


def write(path: str, content: bytes, suffix: str) -> None:
    """By way of a draft beside `path`, whose name ends in `suffix`: another writer's of the same path differs."""
    draft = "%s.%s" % (path, suffix)
    try:
        with open(draft, "wb") as out:
            out.write(content)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.remove(draft)
