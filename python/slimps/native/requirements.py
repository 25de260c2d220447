# SPDX-License-Identifier: Apache-2.0
"""Says in one line what is missing, before anything else is imported."""

import platform
import sys

OLDEST_NUMPY = (1, 22)


def check() -> None:
    """Raises ImportError if the machine is another one, or numpy is missing or too old."""
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64") or sys.maxsize < 2**32:
        raise ImportError(
            "slimps runs on Linux on x86-64 alone, and this is %s on %s: use another machine"
            % machine
        )
    try:
        import numpy
    except ImportError as error:
        raise ImportError(_say("none (%s)" % error)) from error
    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < OLDEST_NUMPY:
        raise ImportError(_say("numpy %s" % numpy.__version__))


def _say(found: str) -> str:
    return "slimps needs numpy %d.%d or newer, and %s has %s: %s -m pip install --upgrade numpy" % (
        *OLDEST_NUMPY,
        sys.executable,
        found,
        sys.executable,
    )
