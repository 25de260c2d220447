# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class per status code. Each also derives from the matching built-in exception.

    try:
        store.pull("w", out=weights)
    except slimps.NotFoundError as error:      # KeyError would catch it too
        print(error)                           # the whole message: what, which key, expected, got
"""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """Base class of every exception that a failed call raises. `code` is the status code's name."""

    code = "UNKNOWN"

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class CancelledError(Error, RuntimeError):
    """The store was closed, or interrupted, while the call waited."""

    code = "CANCELLED"


class UnknownError(Error, RuntimeError):
    """An error whose status has no code that is known here."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense. The message names it, what was expected and what was given."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """Something did not arrive within `timeout_s`. The message says what is missing."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, KeyError):
    """A key was never initialised."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error, RuntimeError):
    """A key was initialised twice, or a rank is taken."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """A node refused this process."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error, RuntimeError):
    """A limit was reached or a queue is full."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error, RuntimeError):
    """The call is not allowed in this state, as on a closed store or compression after a push."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error, RuntimeError):
    """An error ended the job. The message repeats that error."""

    code = "ABORTED"


class OutOfRangeError(Error, RuntimeError):
    """An index or a position is beyond the end."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """This store or build does not have the function."""

    code = "UNIMPLEMENTED"


class InternalError(Error, RuntimeError):
    """An error in slimps itself."""

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """A node of the job is lost or cannot be reached."""

    code = "UNAVAILABLE"


class DataLossError(Error, RuntimeError):
    """The length or checksum of received or loaded data is wrong."""

    code = "DATA_LOSS"


# The classes by slimps_status. 16 is SLIMPS_UNAUTHENTICATED.
_CLASSES: Dict[int, Type[Error]] = {
    1: CancelledError,
    2: UnknownError,
    3: InvalidArgumentError,
    4: DeadlineExceededError,
    5: NotFoundError,
    6: AlreadyExistsError,
    7: PermissionDeniedError,
    8: ResourceExhaustedError,
    9: FailedPreconditionError,
    10: AbortedError,
    11: OutOfRangeError,
    12: UnimplementedError,
    13: InternalError,
    14: UnavailableError,
    15: DataLossError,
    16: PermissionDeniedError,
}


def from_status(code: int, message: str) -> Error:
    """Returns the exception of a status of the library."""
    return _CLASSES.get(code, UnknownError)(message)
