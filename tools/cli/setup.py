# SPDX-License-Identifier: Apache-2.0
"""Installs packages and builds targets, which every subcommand of tools/slimps needs first."""

import os
import shutil
import subprocess
import sys

from slimps_launch import errors

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
IS_CHECKOUT = os.path.exists(os.path.join(REPOSITORY, "WORKSPACE"))  # else a wheel, installed
PACKAGE_LIST = os.path.join(REPOSITORY, "tools", "debian_packages.txt")
TEST_PACKAGE_LIST = os.path.join(REPOSITORY, "tools", "debian_test_packages.txt")

# The programs, and the target and file of each.
PROGRAMS = {
    "slimps_scheduler": ("//scheduler:slimps_scheduler", "scheduler/slimps_scheduler"),
    "slimps_server": ("//server:slimps_server", "server/slimps_server"),
    "slimps_worker": ("//worker:slimps_worker", "worker/slimps_worker"),
}
DAEMONS = ["slimps_scheduler", "slimps_server"]


class SetupError(errors.LaunchError):
    """Something is missing, or did not do what it should. Only the message is shown."""


def run(command, environment=None):
    """Runs a command. Its output goes to stderr, since stdout belongs to the subcommand.

    SetupError: it failed.
    """
    if subprocess.run(command, stdout=sys.stderr, env=environment, check=False).returncode != 0:
        raise SetupError("failed: " + " ".join(command))


def output(command):
    """Runs a command and returns what it prints to stdout. SetupError: it failed."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise SetupError("failed: " + " ".join(command))
    return ended.stdout


def wanted_packages(path=PACKAGE_LIST):
    with open(path, encoding="utf-8") as lines:
        words = [line.split("#")[0].strip() for line in lines]
    return [word for word in words if word]


def missing_packages(packages):
    """Returns those of `packages` that are not installed according to dpkg, in their order."""
    try:
        listing = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"] + packages,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        ).stdout
    except FileNotFoundError:
        raise SetupError(
            "dpkg-query not found: slimps builds on Debian 12 (see " + PACKAGE_LIST + ")"
        )
    installed = {line.split()[0] for line in listing.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def install_packages(*further_lists):
    """Installs what is missing of the packages that slimps needs, and of further lists of them."""
    lists = [PACKAGE_LIST, *further_lists]
    missing = missing_packages([package for path in lists for package in wanted_packages(path)])
    if not missing:
        return
    prefix = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise SetupError(
                "these Debian packages are missing, and installing them needs root or sudo:\n"
                "  apt-get install -y --no-install-recommends " + " ".join(missing)
            )
        prefix = ["sudo"]
    print("slimps: installing " + " ".join(missing), flush=True)
    apt = prefix + ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    run(apt + ["update"])
    run(apt + ["install", "-y", "--no-install-recommends"] + missing)


def bazel_command():
    for candidate in ("/usr/bin/bazel", shutil.which("bazel")):
        if candidate and os.path.exists(candidate):
            return candidate
    raise SetupError("bazel not found (Debian package bazel-bootstrap)")


def bazel_environment():
    """Returns the environment of builds.

    Debian's tools come first in PATH, since builds must not use another python3 or bazel.
    """
    environment = dict(os.environ)
    environment["PATH"] = "/usr/bin:/bin:/usr/sbin:/sbin:" + environment.get("PATH", "")
    environment.setdefault("HOME", os.path.expanduser("~"))
    return environment


def start_bazel(verb, arguments, stdout):
    """Runs bazel in the repository and returns the ended process."""
    command = [bazel_command(), verb]
    if not sys.stderr.isatty():
        command += ["--color=no", "--curses=no", "--show_progress_rate_limit=30"]
    return subprocess.run(
        command + arguments,
        cwd=REPOSITORY,
        env=bazel_environment(),
        stdout=stdout,
        text=True,
        check=False,
    )


def run_bazel(verb, arguments):
    """Runs bazel in the repository and returns its exit status. Its output goes to stderr."""
    return start_bazel(verb, arguments, sys.stderr).returncode


def bazel_output(verb, arguments):
    """Runs bazel in the repository and returns what it prints to stdout."""
    result = start_bazel(verb, arguments, subprocess.PIPE)
    if result.returncode != 0:
        raise SetupError("bazel %s failed (see above)" % verb)
    return result.stdout


def build(targets, options=()):
    if run_bazel("build", list(options) + list(targets)) != 0:
        raise SetupError("the build failed (see above): bazel build " + " ".join(targets))


def built():
    """Returns the folder with what Bazel has built."""
    return os.path.join(REPOSITORY, "bazel-bin")


def slimps_command():
    """Returns the command line of slimps."""
    if IS_CHECKOUT:
        return [os.path.join(REPOSITORY, "tools", "slimps")]
    return [sys.executable, "-m", "slimps_launch"]


def program_path(name, folder=None):
    """Returns where a program lies in `folder`, which is built() by default."""
    return os.path.join(folder or built(), PROGRAMS[name][1])


def ensure_programs(names):
    """Builds the daemons of `names` that are not there yet. Returns {name: path}."""
    absent = [name for name in names if not os.access(program_path(name), os.X_OK)]
    if absent:
        install_packages()
        build([PROGRAMS[name][0] for name in absent])
    return {name: program_path(name) for name in names}
