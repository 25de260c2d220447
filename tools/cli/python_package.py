# SPDX-License-Identifier: Apache-2.0
"""The Python package: installs its wheel, and finds it for jobs of `slimps launch`."""

import argparse
import os
import shutil
import tempfile

from cli import pip_environment
from cli import python_wheel
from cli import setup
from slimps_launch import worker_command

PYTHON = "/usr/bin/python3"
# Debian and others ask pip to keep its hands off their Python. What is only for this user is fine.
MANAGED = (
    "import os, sys, sysconfig; print(sys.prefix == sys.base_prefix and os.path.exists("
    "os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED')))"
)


def install(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps install-python",
        description="Builds the wheel and installs it. Where the system manages the Python, as "
        "Debian does, it is installed for this user alone.",
    )
    parser.add_argument(
        "--python", metavar="PATH", default=PYTHON, help="for this Python (default %(default)s)"
    )
    parser.add_argument(
        "--target", metavar="DIR", help="install into this folder instead; put it in PYTHONPATH"
    )
    options = parser.parse_args(arguments)
    target = options.target and os.path.abspath(options.target)
    python = shutil.which(options.python)
    if python is None:
        raise setup.SetupError("--python %s: not found, or not to be run" % options.python)
    managed = setup.output([python, "-c", MANAGED]) == "True\n"
    # The environment's pip, since a Python may have none.
    pip = [pip_environment.ensure("wheel"), "-m", "pip", "--python", python, "install"]
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        wheel = python_wheel.build(folder)
        if target:
            setup.run(pip + ["--no-deps", "--upgrade", "--target", target, wheel])
        else:
            pip += ["--user", "--break-system-packages"] if managed else []
            setup.run(pip + [wheel])
            # An earlier build may have the same version.
            setup.run(pip + ["--no-deps", "--force-reinstall", wheel])
    path = "PYTHONPATH=%s " % target if target else ""
    print("try it: %s%s -m slimps_launch demo" % (path, python))
    return 0


PACKAGE = os.path.join(setup.REPOSITORY, "bazel-bin", "python", "package")


def build_package():
    """Builds the package of this checkout. Returns its folder, for PYTHONPATH."""
    setup.install_packages()
    setup.build(["//python:package"])
    return PACKAGE


def environment(command):
    """Returns the variables that a job's command needs if it is a Python.

    It finds the package that was built here, which belongs to the daemons that were built here.
    Neither is built again if it is there.
    """
    if not worker_command.is_python(command):
        return {}
    if not os.path.exists(os.path.join(PACKAGE, "slimps", "__init__.py")):
        build_package()
    folders = [PACKAGE] + list(filter(None, [os.environ.get("PYTHONPATH")]))
    # Lines are shown when they are written.
    return {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(folders)}
