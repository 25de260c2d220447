# SPDX-License-Identifier: Apache-2.0
"""The wheel in an empty virtual environment: pip install is all that a job of several processes
needs. Nothing of the checkout is in reach."""

import os
import re
import shutil
import subprocess

import pytest

PYTHONS = {"/usr/bin/python3", os.environ.get("SLIMPS_NEWEST_PYTHON", "/usr/bin/python3")}


class Installed:
    def __init__(self, python, folder):
        self.folder = folder
        self.run(python, "-m", "venv", folder / "venv")
        self.python = folder / "venv" / "bin" / "python"
        self.run(self.python, "-m", "pip", "install", "-q", os.environ["SLIMPS_WHEEL"])
        self.script = shutil.copy("examples/kvstore_numpy.py", folder)

    def run(self, *command):
        """Runs a command and returns what it printed."""
        ran = subprocess.run(
            command,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        return ran.stdout

    def slimps(self, *arguments):
        return self.run(self.folder / "venv" / "bin" / "slimps", *arguments)

    def files(self):
        return {path.name for path in (self.folder / "venv").rglob("slimps*")}


@pytest.fixture(name="installed", scope="module", params=sorted(PYTHONS))
def install(request, tmp_path_factory):
    return Installed(request.param, tmp_path_factory.mktemp("installed"))


def test_the_command_says_the_version_of_the_package(installed):
    ask = "import slimps; print('slimps', slimps.__version__)"
    assert installed.slimps("--version") == installed.run(installed.python, "-c", ask)


def test_a_job_of_two_workers_and_two_servers_trains(installed):
    size = ["--workers", "2", "--servers", "2"]
    said = installed.slimps("launch", *size, "--", installed.python, installed.script)
    assert "slopes [1. 2. 3. 4. 5. 6. 7. 8.]" in said


def test_the_demo_trains_three_times_with_the_same_accuracy_in_fewer_bytes(installed):
    said = installed.slimps("demo", "--link", "1gbit")
    rows = re.findall(r"^(\w+) +([\d.]+) % +[\d.]+ +([\d.]+) ", said, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["fp32", "bf16", "1bit"], said
    for _, accuracy, _ in rows:
        assert float(accuracy) > 95
    assert float(rows[1][2]) < 0.51 * float(rows[0][2])


def test_pip_removes_all_of_it(installed):
    """The last one, since nothing can run after it."""
    assert {"slimps", "slimps_launch", "slimps.libs", "slimps_server"} <= installed.files()
    installed.run(installed.python, "-m", "pip", "uninstall", "-q", "-y", "slimps")
    assert installed.files() == set()
