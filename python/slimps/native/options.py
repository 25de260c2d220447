# SPDX-License-Identifier: Apache-2.0
"""Options of a store, by name and text (docs/c-api.md lists them)."""

from __future__ import annotations

import ctypes

from slimps.native.library import check, lib, made_by, text


class Options:
    """Options, each with its default until it is set."""

    def __init__(self) -> None:
        self.pointer = made_by(lib.slimps_options_create)

    def set(self, name: str, value: str) -> None:
        """InvalidArgumentError: there is no option of that name, or it cannot take the value."""
        what = "option %s" % name
        check(lib.slimps_options_set(self.pointer, text(name, "option"), text(value, what)))

    def get(self, name: str) -> str:
        """Returns the value of an option as text; "" for one that is not set."""
        value = ctypes.c_char_p()
        check(lib.slimps_options_get(self.pointer, text(name, "option"), ctypes.byref(value)))
        return (value.value or b"").decode("utf-8")

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            lib.slimps_options_destroy(self.pointer)
