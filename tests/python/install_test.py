# SPDX-License-Identifier: Apache-2.0
"""The wheel in an empty virtual environment: pip install is all that a job of several processes
needs. Nothing of the checkout is in reach."""

import os
import re
import shutil
import subprocess

import pytest
from eventually import eventually

PYTHONS = {"/usr/bin/python3", os.environ.get("SLIMPS_NEWEST_PYTHON", "/usr/bin/python3")}


class Installed:
    def __init__(self, python, folder):
        self.folder = folder
        self.run(python, "-m", "venv", folder / "venv")
        self.python = folder / "venv" / "bin" / "python"
        self.run(self.python, "-m", "pip", "install", "-q", os.environ["SLIMPS_WHEEL"])
        self.script = shutil.copy("examples/kvstore_numpy.py", folder)

    def start(self, *command):
        return subprocess.Popen(
            command,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command):
        """Runs a command and returns what it printed."""
        with self.start(*command) as ran:
            said, _ = ran.communicate()
        assert ran.returncode == 0, said
        return said

    def start_slimps(self, *arguments):
        return self.start(self.folder / "venv" / "bin" / "slimps", *arguments)

    def slimps(self, *arguments):
        return self.run(self.folder / "venv" / "bin" / "slimps", *arguments)

    def status(self):
        """Returns what slimps status says, with or without a job."""
        with self.start_slimps("status") as asked:
            return asked.communicate()[0]

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
    whole, told = "2 of 2 workers, 2 of 2 servers there", []

    def seen():
        told.append(installed.status())
        return whole in told[-1]

    with installed.start_slimps("demo", "--link", "1gbit", "--page_port", "0") as demo:
        eventually(lambda: seen() or demo.poll() is not None)
        said, _ = demo.communicate()
    assert demo.returncode == 0, said
    assert whole in told[-1], said
    pages = re.findall(
        r"watch this job at http://127\.0\.0\.1:\d+/\?token=\w+$", said, re.MULTILINE
    )
    assert len(set(pages)) == 3, said
    rows = re.findall(r"^(\w+) +([\d.]+) % +[\d.]+ +([\d.]+) ", said, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["fp32", "bf16", "1bit"], said
    for _, accuracy, _ in rows:
        assert float(accuracy) > 95
    assert float(rows[1][2]) < 0.51 * float(rows[0][2])


def test_it_plans_and_measures_without_a_checkout(installed):
    said = installed.slimps("plan", "--model", "resnet50", "--link", "1gbit", "--workers", "2")
    assert "1bit+backup" in said, said
    said = installed.slimps("bench", "codec", "--quick", "--codecs", "1bit", "--ops", "encode")
    assert "1bit" in said, said
    with installed.start_slimps("bench", "transport") as refused:
        assert "no such program in an installed slimps" in refused.communicate()[0]


def test_pip_removes_all_of_it(installed):
    """The last one, since nothing can run after it."""
    assert {"slimps", "slimps_launch", "slimps.libs", "slimps_server"} <= installed.files()
    installed.run(installed.python, "-m", "pip", "uninstall", "-q", "-y", "slimps")
    assert installed.files() == set()
