# SPDX-License-Identifier: Apache-2.0
"""The Python package: installs its wheel for this user, finds it for jobs of `slimps launch`."""

import argparse
import base64
import csv
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import zipfile

from cli import setup

PYTHON = "/usr/bin/python3"  # the extension is built for this Python
VERSION = "3.11"
NAME = re.compile(r"python(3(\.\d+)?)?$")
PROBE = (
    "import importlib.util as u, sys; "
    "print('%d.%d' % sys.version_info[:2], u.find_spec('numpy') is not None, u.find_spec('slimps') "
    "is not None)"
)


# ---- slimps install-python
# ---------------------------------------------------------------------------


def built_wheel():
    setup.install_packages()
    setup.build(["//python:wheel"])
    wheels = glob.glob(os.path.join(setup.REPOSITORY, "bazel-bin", "python", "slimps-*.whl"))
    return max(wheels, key=os.path.getmtime)


def user_folder():
    """Returns the folder in which Debian's python3 looks for this user's packages."""
    return subprocess.run(
        [PYTHON, "-m", "site", "--user-site"], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()


def remove(folder):
    """Removes the files that an earlier installation has recorded."""
    for record in glob.glob(os.path.join(glob.escape(folder), "slimps-*.dist-info", "RECORD")):
        with open(record, encoding="utf-8", newline="") as lines:
            names = [row[0] for row in csv.reader(lines) if row]
        for name in names:
            path = os.path.normpath(os.path.join(folder, name))
            if path.startswith(os.path.normpath(folder) + os.sep) and os.path.isfile(path):
                os.remove(path)
        shutil.rmtree(os.path.dirname(record))


def unpack(wheel, folder):
    """Installs a wheel in the standard form, so that pip can list and remove it.

    Debian does not let pip itself install for its python3.
    SetupError: the wheel does not agree with its RECORD.
    """
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        for name, digest, _ in csv.reader(io.StringIO(archive.read(record).decode("utf-8"))):
            if digest and digest != "sha256=" + base64.urlsafe_b64encode(
                hashlib.sha256(archive.read(name)).digest()
            ).rstrip(b"=").decode("ascii"):
                raise setup.SetupError("%s: %s is not as its RECORD says" % (wheel, name))
        remove(folder)
        archive.extractall(folder)
    installer = os.path.join(os.path.dirname(record), "INSTALLER")
    with open(os.path.join(folder, installer), "w", encoding="utf-8") as text:
        text.write("slimps\n")
    with open(os.path.join(folder, record), "a", encoding="utf-8") as lines:
        lines.write(installer + ",,\n")


def install(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps install-python",
        description="Builds the Python package and installs it for %s, for this user alone."
        % PYTHON,
    )
    parser.add_argument(
        "--target", metavar="DIR", help="install into this folder instead; put it in PYTHONPATH"
    )
    options = parser.parse_args(arguments)
    folder = os.path.abspath(options.target) if options.target else user_folder()
    if not folder:
        raise setup.SetupError(
            "%s does not say where its user's packages are; give --target DIR" % PYTHON
        )
    wheel = built_wheel()
    try:
        unpack(wheel, folder)
    except OSError as error:
        raise setup.SetupError("cannot install into %s: %s" % (folder, error))
    print("installed %s into %s" % (os.path.basename(wheel), folder))
    path = "PYTHONPATH=%s " % folder if options.target else ""
    print("try it: %s%s -c 'import slimps; print(slimps.__version__)'" % (path, PYTHON))
    print(
        "        %s launch --workers 2 --servers 2 -- python3 %s"
        % (
            os.path.join(setup.REPOSITORY, "tools", "slimps"),
            os.path.join(setup.REPOSITORY, "examples", "kvstore_numpy.py"),
        )
    )
    return 0


# ---- slimps launch -- python3 ...
# ---------------------------------------------------------------------


def probe(python):
    """Returns (why this Python cannot load the package, or None; True if it is installed)."""
    try:
        said = subprocess.run(
            [python, "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
            check=False,
        ).stdout.split()
    except OSError as error:
        return "cannot be run (%s)" % error.strerror, False
    if len(said) != 3:
        return "does not say which Python it is", False
    version, numpy, installed = said
    if version != VERSION:
        return "is Python %s, and the package slimps is built for %s" % (version, VERSION), False
    return None if numpy == "True" else "has no numpy", installed == "True"


def ensure_package():
    """Returns the package as a folder for PYTHONPATH. Builds it if it is not there yet."""
    folder = os.path.join(setup.REPOSITORY, "bazel-bin", "python", "package")
    if not os.path.exists(os.path.join(folder, "slimps", "__init__.py")):
        setup.install_packages()
        setup.build(["//python:package"])
    return folder


def prepare(command, say=print):
    """Returns a job's command, and the variables that it needs if it is a Python.

    If "python3" cannot load the package (another version, no numpy), it is replaced by Debian's
    python3, and a line says so. A Python given by its path is not replaced; a line says why it
    cannot load the package.
    """
    if not NAME.match(os.path.basename(command[0])):
        return command, {}
    unusable, installed = probe(command[0])
    if unusable and os.sep in command[0]:
        say("slimps: %s %s" % (command[0], unusable))
    elif unusable:
        path = shutil.which(command[0])
        say(
            "slimps: %s is %s; running %s"
            % (command[0], "%s, which %s" % (path, unusable) if path else "not in PATH", PYTHON)
        )
        command = [PYTHON] + command[1:]
        unusable, installed = probe(PYTHON)
    environment = {"PYTHONUNBUFFERED": "1"}  # lines are shown when they are written
    if not unusable and not installed:
        folders = [ensure_package()] + list(filter(None, [os.environ.get("PYTHONPATH")]))
        environment["PYTHONPATH"] = os.pathsep.join(folders)
    return command, environment
