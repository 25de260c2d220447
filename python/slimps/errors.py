"""Exceptions: one class per status code, each also of the built-in type that Python code expects.

    try:
        store.pull("w", out=weights)
    except slimps.NotFoundError as error:      # KeyError would catch it too
        print(error)                           # the whole message: what, which key, expected, got
"""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """Base of everything that slimps raises for a failed call. `code` is the status code's name."""

    code = "UNKNOWN"

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class CancelledError(Error, RuntimeError):
    """The store was closed, or interrupted, while the call waited."""

    code = "CANCELLED"


class UnknownError(Error, RuntimeError):
    """An error without a code."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense: the message names it, what was expected and what came."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """Something did not come within `timeout_s`; the message says what is missing."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, KeyError):
    """A key that was never initialised."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error, RuntimeError):
    """A key initialised twice, or a rank that is taken."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """Not let in."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error, RuntimeError):
    """A limit was reached or a queue is full."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error, RuntimeError):
    """Not in this state: a closed store, compression set after a push."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error, RuntimeError):
    """The job was ended by an error, which the message repeats."""

    code = "ABORTED"


class OutOfRangeError(Error, RuntimeError):
    """Beyond the end."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """Not there yet."""

    code = "UNIMPLEMENTED"


class InternalError(Error, RuntimeError):
    """A fault of slimps itself."""

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """A node of the job is lost or cannot be reached."""

    code = "UNAVAILABLE"


class DataLossError(Error, RuntimeError):
    """Length or checksum of what arrived disagrees with what was announced."""

    code = "DATA_LOSS"


# By absl::StatusCode.
_CLASSES: Dict[int, Type[Error]] = {
    1: CancelledError, 2: UnknownError, 3: InvalidArgumentError, 4: DeadlineExceededError, 5: NotFoundError,
    6: AlreadyExistsError, 7: PermissionDeniedError, 8: ResourceExhaustedError, 9: FailedPreconditionError,
    10: AbortedError, 11: OutOfRangeError, 12: UnimplementedError, 13: InternalError, 14: UnavailableError,
    15: DataLossError, 16: PermissionDeniedError,
}


def from_status(code: int, message: str) -> Error:
    """The exception of a status; the C++ side calls this."""
    return _CLASSES.get(code, UnknownError)(message)
