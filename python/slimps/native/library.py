# SPDX-License-Identifier: Apache-2.0
"""libslimps.so.1, loaded: its functions with their types, and its statuses as exceptions.

    check(lib.slimps_rank(store, ctypes.byref(rank)))    # raises the exception of a failed status

A pointer is an int, an object of ctypes, or None.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Tuple

from slimps import errors
from slimps.native import structs

API_VERSION = 1010  # the oldest that has everything used here
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libslimps.so.1")

_KEY = structs.Key
# Functions that return a status.
_STATUS = {
    "log_to_stderr": (),
    "options_create": (c_void_p,),
    "options_set": (c_void_p, c_char_p, c_char_p),
    "options_get": (c_void_p, c_char_p, c_void_p),
    "optimizer_create": (c_char_p, c_void_p),
    "optimizer_set_number": (c_void_p, c_char_p, c_double),
    "optimizer_set": (c_void_p, c_char_p, c_char_p),
    "call_create": (c_void_p,),
    "call_descriptor": (c_void_p, c_void_p),
    "call_finish": (c_void_p,),
    "call_cancel": (c_void_p,),
    "create_in_background": (c_char_p, c_void_p, c_void_p, c_void_p),
    "in_background": (c_void_p, c_void_p, c_void_p),
    "close": (c_void_p,),
    "abort": (c_void_p, c_char_p),
    "note_position": (c_void_p, c_char_p),
    "rank": (c_void_p, c_void_p),
    "num_workers": (c_void_p, c_void_p),
    "former_rounds": (c_void_p, c_void_p),
    "timeout": (c_void_p, c_void_p),
    "is_capable": (c_void_p, c_char_p, c_void_p),
    "init": (c_void_p, c_void_p, c_size_t),
    "push": (c_void_p, _KEY, c_void_p, c_size_t, c_int32),
    "pull": (c_void_p, _KEY, c_void_p, c_size_t, c_int32),
    "push_list": (c_void_p, c_void_p, c_size_t, c_int32),
    "pull_list": (c_void_p, c_void_p, c_size_t, c_int32),
    "pushpull_list": (c_void_p, c_void_p, c_size_t, c_int32),
    "push_nothing": (c_void_p, _KEY),
    "push_row_sparse": (c_void_p, _KEY, c_void_p, c_size_t, c_void_p, c_size_t, c_int32),
    "pull_rows": (c_void_p, _KEY)
    + (c_void_p, c_size_t, c_void_p)
    + (c_void_p, c_size_t, c_void_p)
    + (c_int32,),
    "set_optimizer": (c_void_p, c_void_p),
    "set_updater": (c_void_p, c_void_p, c_void_p),
    "set_gradient_compression": (c_void_p, c_char_p),
    "set_gradient_compression_pairs": (c_void_p, c_void_p, c_void_p, c_size_t),
    "set_policy": (c_void_p, c_char_p),
    "get_key_codecs": (c_void_p, c_void_p, c_size_t, c_void_p),
    "save_optimizer_states": (c_void_p, c_void_p, c_void_p),
    "load_optimizer_states": (c_void_p, c_char_p, c_size_t),
    "pull_optimizer_states": (c_void_p, c_void_p, c_size_t),
    "put_optimizer_states": (c_void_p, c_void_p, c_size_t),
    "save_residuals": (c_void_p, c_void_p, c_void_p),
    "load_residuals": (c_void_p, c_char_p, c_size_t),
    "save": (c_void_p, c_char_p, c_char_p, c_size_t),
    "await_saved": (c_void_p,),
    "load": (c_void_p, c_char_p, c_void_p, c_void_p, c_void_p),
    "copy": (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t),
    "barrier": (c_void_p,),
    "all_reduce_sum": (c_void_p, c_void_p, c_size_t),
    "broadcast_bytes": (c_void_p, c_void_p, c_size_t),
    "wait": (c_void_p,),
    "leave": (c_void_p,),
    "get_totals": (c_void_p, c_void_p),
    "get_decision": (c_void_p, c_void_p),
    "get_threshold_table": (c_void_p, c_void_p, c_size_t, c_void_p),
    "exchange_create": (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p),
    "exchange_begin_step": (c_void_p,),
    "exchange_gradient_at": (c_void_p, c_size_t, c_void_p, c_size_t, c_void_p),
    "exchange_is_read": (c_void_p, c_size_t, c_void_p),
    "exchange_rows": (c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t),
    "exchange_end_step": (c_void_p,),
    "exchange_await_weights": (c_void_p, c_size_t),
    "exchange_set_memory": (c_void_p, c_void_p, c_void_p, c_size_t),
    "exchange_set_hyper": (c_void_p, c_size_t, c_double, c_double, c_double),
    "exchange_drain": (c_void_p,),
    "exchange_get_times": (c_void_p, c_void_p),
    "exchange_set_clip_norm": (c_void_p, c_double),
    "exchange_get_clipping": (c_void_p, c_void_p),
    "trace_start": (c_char_p,),
    "trace_span": (c_int32, c_char_p, c_uint64, c_int64, c_int64),
    "trace_finish": (c_char_p, c_uint32),
}
_FREES = (
    "free",
    "options_destroy",
    "optimizer_destroy",
    "call_destroy",
    "destroy",
    "exchange_destroy",
)


def _load() -> ctypes.CDLL:
    """Raises ImportError, in one line that says what to do."""
    if not os.path.exists(PATH):
        raise ImportError(
            "slimps: %s is missing: install the wheel, or build the package by "
            "`bazel build //python:package` and use bazel-bin/python/package" % PATH
        )
    try:
        loaded = ctypes.CDLL(PATH)
    except OSError as error:
        glibc = re.search(r"GLIBC_([\d.]+)' not found", str(error))
        if glibc:
            raise ImportError(
                "slimps needs glibc %s or newer, and this machine's is older: use a newer "
                "distribution, or a container of one" % glibc.group(1)
            ) from error
        raise ImportError("slimps: cannot load %s: %s" % (PATH, error)) from error
    version = loaded.slimps_api_version()
    if version < API_VERSION:
        raise ImportError(
            "slimps: %s is of version %d.%03d, and the package needs %d.%03d: install the wheel "
            "again" % (PATH, *divmod(version, 1000), *divmod(API_VERSION, 1000))
        )
    return loaded


def _declare(loaded: ctypes.CDLL) -> None:
    for name, types in _STATUS.items():
        function = getattr(loaded, "slimps_" + name)
        function.argtypes, function.restype = types, c_int32
    for name in _FREES:
        function = getattr(loaded, "slimps_" + name)
        function.argtypes, function.restype = (c_void_p,), None
    loaded.slimps_last_error.argtypes = ()
    loaded.slimps_last_error.restype = c_char_p


lib = _load()
_declare(lib)
# The same library, for functions that never wait: other threads do not run meanwhile, which spares
# a thread that has many calls to finish as many waits for the interpreter.
at_once = ctypes.PyDLL(PATH)
_declare(at_once)
lib.slimps_log_to_stderr()  # unless another user of glog in this process has set it up


def error(status: int) -> errors.Error:
    """Returns the exception of the status that this thread's last call has returned."""
    message: str = at_once.slimps_last_error().decode("utf-8", "replace")
    return errors.from_status(status, re.sub(r"^slimps_\w+: ", "", message))


def check(status: int) -> None:
    """Raises the exception of a status other than SLIMPS_OK."""
    if status:
        raise error(status)


def text(value: str, what: str) -> bytes:
    """Returns `value` as the library takes it.

    InvalidArgumentError: it has a NUL, or a half of a surrogate pair.
    """
    try:
        encoded = value.encode("utf-8")
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise errors.InvalidArgumentError(
            "%s: expected text without NUL that UTF-8 can write, got %r" % (what, value)
        )
    return encoded


def made_by(create: Any, *arguments: Any) -> int:
    """Returns the pointer that `create` writes through its last argument."""
    made = c_void_p()
    check(create(*arguments, ctypes.byref(made)))
    assert made.value is not None
    return made.value


def sized(struct: Any) -> Tuple[Any, Any]:
    """Returns a struct that knows its size, and a pointer to it."""
    made = struct(ctypes.sizeof(struct))
    return made, ctypes.byref(made)
