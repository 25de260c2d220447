# SPDX-License-Identifier: Apache-2.0
"""Python unittest files that run with Debian's python3, which other Python rules do not find."""

def python_test(name, data = [], **rest):
    """Runs `name`.py of the calling package."""
    native.sh_test(
        name = name,
        size = "medium",
        srcs = ["//tests/repo:run_python_test.py"],
        args = ["%s/%s.py" % (native.package_name(), name)],
        data = [name + ".py"] + data,
        **rest
    )
