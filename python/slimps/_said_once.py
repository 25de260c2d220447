# SPDX-License-Identifier: Apache-2.0
"""Warnings that appear once per process, at the line of the user's code that caused them.

    _said_once.warn("float64", "push of key 'w': float64 is converted")
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Set

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_said: Set[str] = set()


def warn(about: str, message: str) -> None:
    """Warns with `message`, unless there was a warning for the same `about` before."""
    if about in _said:
        return
    _said.add(about)
    torch = sys.modules.get("torch")
    skipped = [_OWN] + (
        [os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep]
        if torch is not None
        else []
    )
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(tuple(skipped)):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
