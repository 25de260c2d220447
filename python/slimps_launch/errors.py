# SPDX-License-Identifier: Apache-2.0
"""The one kind of error that a command shows without a traceback."""


class LaunchError(Exception):
    """An error for the user. Only its message is shown."""
