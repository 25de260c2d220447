# SPDX-License-Identifier: Apache-2.0
"""slimps beside torch, which has a protobuf of its own, and in Debian a TBB and a glog, too.

Once as it is built here, with Debian's libraries, and once as the wheel, which has its own.
"""

import os
import subprocess
import sys
import zipfile

import pytest

# torch's symbols are global here, so that they could take the place of the others'.
TRAINING = """
import os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import %s
import numpy as np
with slimps.kv.create("device", compression="1bit", threshold=0) as store:
    weights = np.zeros(1 << 20, np.float32)
    store.init("w", weights)
    store.push("w", [np.ones(1 << 20, np.float32)] * 2)
    store.pull("w", out=weights)
print(set(weights.tolist()), (torch.ones(64, 64) @ torch.ones(64, 64)).sum().item())
"""
LOADED = """
import slimps, sys
print("torch" in sys.modules, "libtorch" in open("/proc/self/maps").read())
"""


@pytest.fixture(name="folder", params=["package", "wheel"])
def package_in(request, tmp_path):
    if request.param == "package":
        return os.path.abspath("python/package")
    with zipfile.ZipFile(os.environ["SLIMPS_WHEEL"]) as archive:
        archive.extractall(tmp_path)
    return str(tmp_path)


def run_python(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PYTHONPATH": folder, "HOME": "/"},
        cwd="/",
        check=False,
    ).stdout


@pytest.mark.parametrize("order", ["slimps, torch", "torch, slimps"])
def test_both_work_in_one_process(order, folder):
    assert run_python(TRAINING % order, folder) == "{2.0} 262144.0\n"


def test_slimps_does_not_bring_torch_along(folder):
    assert run_python(LOADED, folder) == "False False\n"
