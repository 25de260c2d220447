# SPDX-License-Identifier: Apache-2.0
"""What stops the package from being imported is said in one line, with what to do."""

import os
import re
import shutil
import subprocess
import sys

import pytest

PACKAGE = os.path.abspath("python/package")


def said_by(code, *path):
    """Returns the last line of a Python that fails at `code`. `path` comes before the package."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([*map(str, path), PACKAGE])),
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    return ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "numpy, complaint",
    [
        ("__version__ = '1.21.6'", "numpy 1.21.6: "),
        ("raise ImportError('no module named numpy')", "none (no module named numpy): "),
    ],
)
def test_numpy_is_missing_or_too_old(tmp_path, numpy, complaint):
    (tmp_path / "numpy.py").write_text(numpy)
    assert said_by("import slimps", tmp_path) == (
        "ImportError: slimps needs numpy 1.22 or newer, and %s has %s%s -m pip install --upgrade "
        "numpy" % (sys.executable, complaint, sys.executable)
    )


@pytest.mark.parametrize("version", ["1.13.1+cpu", "2.3.1"])
def test_torch_is_too_old(tmp_path, version):
    (tmp_path / "torch.py").write_text("__version__ = %r" % version)
    said = said_by("import slimps.torch", tmp_path)
    assert said == "ImportError: slimps.torch: expected torch 2.4 or newer, got torch " + version


def test_another_machine():
    said = said_by("import platform; platform.machine = lambda: 'aarch64'; import slimps")
    assert said == (
        "ImportError: slimps runs on Linux on x86-64 alone, and this is Linux on aarch64: use "
        "another machine"
    )


def test_a_machine_whose_glibc_is_too_old():
    said = said_by(
        "import ctypes\n"
        "def load(path): raise OSError(\"libm.so.6: version `GLIBC_2.38' not found\")\n"
        "ctypes.CDLL = load\n"
        "import slimps"
    )
    assert said == (
        "ImportError: slimps needs glibc 2.38 or newer, and this machine's is older: use a newer "
        "distribution, or a container of one"
    )


@pytest.mark.parametrize(
    "content, complaint",
    [
        (None, "is missing: install the wheel, or build the package by `bazel build"),
        (b"", "file too short"),
    ],
)
def test_the_library_is_missing_or_no_library(tmp_path, content, complaint):
    native = tmp_path / "slimps" / "native"
    shutil.copytree(
        os.path.join(PACKAGE, "slimps"), tmp_path / "slimps", ignore=lambda *_: ["libslimps.so.1"]
    )
    if content is not None:
        (native / "libslimps.so.1").write_bytes(content)
    said = said_by("import slimps", tmp_path)
    assert said.startswith("ImportError: slimps: ")
    assert str(native / "libslimps.so.1") in said and complaint in said


def test_the_library_is_older_than_the_package(tmp_path):
    shutil.copytree(os.path.join(PACKAGE, "slimps"), tmp_path / "slimps")
    library = tmp_path / "slimps" / "native" / "library.py"
    os.chmod(library, 0o644)
    text, changed = re.subn(r"API_VERSION = \d+", "API_VERSION = 1999", library.read_text())
    assert changed == 1
    library.unlink()
    library.write_text(text)
    said = said_by("import slimps", tmp_path)
    assert re.search(
        r"is of version 1\.\d{3}, and the package needs 1\.999: install the wheel again$", said
    )
