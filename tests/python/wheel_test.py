# SPDX-License-Identifier: Apache-2.0
"""The wheel: it is complete, matches its record, and can be installed and imported from there."""

import base64
import csv
import glob
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import zipfile

import pytest

import slimps


@pytest.fixture(name="wheel")
def built_wheel():
    return glob.glob("python/slimps-*.whl")[0]


def package_files():
    found = glob.glob("python/package/slimps/**", recursive=True)
    return [path for path in found if os.path.isfile(path) and "__pycache__" not in path]


def test_its_name_says_version_and_platform(wheel):
    assert os.path.basename(wheel) == "slimps-%s-cp311-cp311-linux_x86_64.whl" % slimps.__version__


def test_it_holds_what_the_package_holds(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("slimps/")}
    assert names == {path[len("python/package/") :] for path in package_files()}
    assert {"slimps/py.typed", "slimps/native/libslimps.so.1", "slimps/kv.py"} <= names


def test_its_record_is_true(wheel):
    archive = zipfile.ZipFile(wheel)
    record = "slimps-%s.dist-info/RECORD" % slimps.__version__
    rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    assert [row[0] for row in rows] == archive.namelist()
    assert rows[-1] == [record, "", ""]
    for name, digest, size in rows[:-1]:
        content = archive.read(name)
        assert (
            digest
            == "sha256="
            + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        )
        assert int(size) == len(content)


def test_the_same_files_give_the_same_bytes(tmp_path, wheel):
    spec = importlib.util.spec_from_file_location("make_wheel", "python/make_wheel.py")
    make_wheel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_wheel)
    again = tmp_path / os.path.basename(wheel)
    make_wheel.write(str(again), sorted(package_files(), reverse=True))
    assert again.read_bytes() == open(wheel, "rb").read()


def run_python(code, path):
    return subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(path)),
        cwd="/",
        check=False,
    )


def test_it_runs_where_it_is_unpacked(tmp_path, wheel):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    ran = run_python(
        "import importlib.metadata as m, slimps; print(slimps.__file__, m.version('slimps'))",
        tmp_path,
    )
    assert ran.stdout.split() == [
        str(tmp_path / "slimps" / "__init__.py"),
        slimps.__version__,
    ], ran.stdout


@pytest.mark.parametrize("order", ["import slimps, torch", "import torch, slimps"])
def test_it_lives_beside_torch(order):
    ran = run_python(
        order + "; torch.ones(2).sum(); slimps.optimizer.SGD().spec(); print('both')",
        os.path.abspath("python/package"),
    )
    assert ran.stdout == "both\n"


def test_it_does_not_bring_torch_along():
    ran = run_python(
        "import slimps, sys; maps = open('/proc/self/maps').read(); "
        "print('torch' in sys.modules, 'libtorch' in maps)",
        os.path.abspath("python/package"),
    )
    assert ran.stdout == "False False\n"
