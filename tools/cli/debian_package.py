# SPDX-License-Identifier: Apache-2.0
"""Packs the Debian package: debhelper does what tools/debian says with what Bazel has built."""

import argparse
import email.utils
import os
import shutil
import tempfile

from cli import python_wheel
from cli import setup

CHANGELOG = """slimps (%s) unstable; urgency=medium

  * CHANGELOG.md.gz says what changed.

 -- slimps maintainers <maintainers@slimps.invalid>  %s
"""


def stage(tree, built):
    """Fills the folder `tree` with what the files of tools/debian expect. `built` is bazel-bin."""
    debian = os.path.join(tree, "debian")
    left_out = shutil.ignore_patterns("BUILD", "README.md")
    shutil.copytree(os.path.join(setup.REPOSITORY, "tools", "debian"), debian, ignore=left_out)
    shutil.copy(os.path.join(setup.REPOSITORY, "CHANGELOG.md"), debian)
    python = os.path.join(tree, "python")
    python_wheel.stage(python, built)
    info = "slimps-%s.dist-info" % python_wheel.version()
    shutil.rmtree(os.path.join(python, info, "licenses"))  # debian/copyright names them
    # Links go from where Python looks to where Debian wants these.
    bin_folder = os.path.join(tree, "bin")
    shutil.move(os.path.join(python, "slimps_launch", "bin"), bin_folder)
    shutil.copy(setup.program_path("slimps_worker", built), bin_folder)
    shutil.copy(os.path.join(debian, "command"), os.path.join(bin_folder, "slimps"))
    include = os.path.join(built, "worker", "c_api_package", "include")
    shutil.copytree(include, os.path.join(tree, "include"))
    shutil.move(os.path.join(python, "slimps", "native", "libslimps.so.1"), tree)


def pack(out, built, seconds):
    """Packs what lies in `built` into the folder `out`. Returns the package's path.

    Equal inputs give equal bytes. `seconds` since 1970 are the time of everything in it.
    SetupError: a step failed.
    """
    version = python_wheel.version()
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        tree = os.path.join(folder, "slimps")
        os.mkdir(tree)
        stage(tree, built)
        changelog = CHANGELOG % (version, email.utils.formatdate(seconds))
        python_wheel.write(os.path.join(tree, "debian", "changelog"), changelog)
        build = ["dpkg-buildpackage", "--build=binary", "--no-sign"]
        setup.run(["env", "--chdir=" + tree] + build, setup.bazel_environment())
        os.makedirs(out, exist_ok=True)
        return shutil.copy(os.path.join(folder, "slimps_%s_amd64.deb" % version), out)


def build_date():
    """Returns SOURCE_DATE_EPOCH, or else the date of the commit that is checked out."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    log = ["git", "-C", setup.REPOSITORY, "log", "-1", "--format=%ct"]
    return int(given or setup.output(log))


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps deb",
        description="Builds slimps_VERSION_amd64.deb for Debian 12: daemons, units, the command "
        "slimps, the Python package, and the library for C. SOURCE_DATE_EPOCH dates it; else the "
        "commit does.",
    )
    parser.add_argument(
        "--out", metavar="DIR", default=".", help="where the package goes (default: here)"
    )
    options = parser.parse_args(arguments)
    setup.install_packages()
    worker, _ = setup.PROGRAMS["slimps_worker"]
    python_wheel.build_package([worker, "//worker:c_api_package"])
    path = pack(os.path.abspath(options.out), setup.built(), build_date())
    print("%s: %.1f MB" % (path, os.path.getsize(path) / 1e6))
    return 0
