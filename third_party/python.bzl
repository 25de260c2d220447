# SPDX-License-Identifier: Apache-2.0
"""Extensions of Debian's python3: shared objects that it loads as modules, bound by pybind11."""

PYTHON_TAG = "cpython-311-x86_64-linux-gnu"

# pybind11 wants hidden symbols; Debian keeps Python.h one level below the usual include folder.
COPTS = ["-isystem", "/usr/include/python3.11", "-fvisibility=hidden"]

def py_extension(name, srcs, deps, out):
    """Makes `out`, as "slimps/_slimps", with the file ending by which python3.11 alone finds it."""
    native.cc_binary(
        name = "%s.%s.so" % (out, PYTHON_TAG),
        srcs = srcs,
        copts = COPTS,
        linkshared = True,
        deps = deps,
    )
    native.alias(name = name, actual = "%s.%s.so" % (out, PYTHON_TAG))
