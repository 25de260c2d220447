# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package: each runs with Debian's numpy 1 and, as NAME_torch2, with numpy 2.

Tests that import torch run with torch 2 alone.
"""

JOB = [
    "//scheduler:slimps_scheduler",
    "//server:slimps_server",
    "//tests/cluster/processes:process_cluster.py",
    "//tests/python:jobs.py",
    "//tests/repo:eventually.py",
    "//tests/repo:scenario.py",
]

# Tags of tests of the wheel, which `tools/slimps test` makes. Bazel does not see when it changes.
WHEEL = ["external", "wheel"]

def _pytest(name, file, arguments, size, timeout, data, tags):
    # Tagged, since an extension built with a sanitizer cannot be loaded into a Python that was not.
    native.sh_test(
        name = name,
        size = size,
        timeout = timeout,
        srcs = ["//tests/python:run_pytest.sh"],
        args = arguments + [native.package_name() + "/" + file],
        data = [file, "//python:package"] + data,
        tags = ["python"] + tags,
    )

def pytest(name, size = "medium", data = [], debian = True, torch2 = True, tags = [], timeout = None):
    """Runs name.py.

    Args:
      name: the test's file, without its suffix.
      size: as of any test.
      data: what it needs beside the package, and JOB if it starts one.
      debian: run it with Debian's numpy. False for what imports torch: Debian's is too old.
      torch2: run it with numpy 2 and torch 2, too. `tools/slimps test` makes that environment.
      tags: further tags.
      timeout: as of any test, where it is not the size's.
    """
    if debian:
        _pytest(name, name + ".py", [], size, timeout, data, tags)
    if torch2:
        _pytest(name + "_torch2", name + ".py", ["--torch2"], size, timeout, data, ["torch2"] + tags)
