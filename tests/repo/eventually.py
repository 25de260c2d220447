# SPDX-License-Identifier: Apache-2.0
"""Waits for a fact that nothing announces, for example that a file is there or a process has ended.

    self.assertTrue(eventually(lambda: os.path.exists(path)))
"""

import time


def eventually(fact, seconds=60.0):
    """Returns what `fact` returns, once that is true or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while True:
        value = fact()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.01)
