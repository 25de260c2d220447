# SPDX-License-Identifier: Apache-2.0
"""The wheel: what it holds, and what it needs of the machine that it is installed on."""

import base64
import csv
import email
import hashlib
import io
import os
import pathlib
import re
import subprocess
import zipfile

import pytest

WHEEL = os.environ.get("SLIMPS_WHEEL", "")
VERSION = pathlib.Path("VERSION").read_text(encoding="utf-8").strip()
INFO = "slimps-%s.dist-info/" % VERSION
LIBRARY = "slimps/native/libslimps.so.1"
PROGRAMS = [
    "slimps_launch/bin/slimps_scheduler",
    "slimps_launch/bin/slimps_server",
    "slimps_launch/tools/bin/bench_codec",
    "slimps_launch/tools/bin/describe_model",
]
# What every Linux has from which a Python comes, and of these the newest versions that the tag
# allows: those of Ubuntu 22.04.
SYSTEM = {
    "ld-linux-x86-64.so.2": {"GLIBC": (2, 35)},
    "libc.so.6": {"GLIBC": (2, 35)},
    "libgcc_s.so.1": {"GCC": (12, 0)},
    "libm.so.6": {"GLIBC": (2, 35)},
    "libpthread.so.0": {"GLIBC": (2, 35)},
    "libresolv.so.2": {"GLIBC": (2, 35)},
    "libstdc++.so.6": {"CXXABI": (1, 3, 13), "GLIBCXX": (3, 4, 30)},
    "libz.so.1": {"ZLIB": (1, 2, 9)},
}
OURS = "slimps_bundled_"


def said(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(name="archive", scope="module")
def opened():
    assert WHEEL, "SLIMPS_WHEEL names no wheel: tools/slimps test makes one"
    with zipfile.ZipFile(WHEEL) as archive:
        yield archive


@pytest.fixture(name="tree", scope="module")
def unpacked(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    archive.extractall(folder)
    return folder


def programs_of(tree):
    """Returns what a machine loads: the library, the daemons and what is bundled."""
    bundled = sorted((tree / "slimps.libs").iterdir())
    return [tree / LIBRARY] + [tree / name for name in PROGRAMS] + bundled


def symbols(path, *which):
    """Returns the symbols that the loader looks for or finds, without the names of versions."""
    rows = [line.split() for line in said("nm", "-DP", *which, path).splitlines()]
    return {row[0] for row in rows if row[1] not in "Avw"}


def test_its_name_says_every_python_and_a_linux_of_2022():
    assert os.path.basename(WHEEL) == "slimps-%s-py3-none-manylinux_2_35_x86_64.whl" % VERSION


def test_it_has_at_most_40_megabytes():
    assert os.path.getsize(WHEEL) <= 40e6


def test_it_holds_the_packages_the_daemons_and_nothing_of_a_build(archive):
    names = set(archive.namelist())
    built = {
        str(path.relative_to("python/package"))
        for path in pathlib.Path("python/package").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    launch = {str(path) for path in pathlib.Path("python").glob("slimps_launch/**/*.py")}
    launch = {name[len("python/") :] for name in launch}
    assert {LIBRARY, "slimps/py.typed", "slimps/kv.py"} <= built
    assert "slimps_launch/command.py" in launch
    tools = {"slimps_launch/" + str(path) for path in pathlib.Path("tools").glob("[bcp]*/**/*.py")}
    assert "slimps_launch/tools/plan/plan_command.py" in tools
    assert built | launch | tools <= names
    rest = {
        name
        for name in names - built - launch - tools
        if not name.startswith(("slimps.libs/", INFO))
    } - {"slimps_launch/tools/plan/reference.json", "slimps_launch/tools/plan/set_ups.json"}
    assert rest == {"slimps_launch/digits.csv.gz"} | set(PROGRAMS)


def test_programs_may_be_executed_and_times_say_nothing(archive):
    for entry in archive.infolist():
        mode = entry.external_attr >> 16 & 0o777
        assert bool(mode & 0o111) == (entry.filename in PROGRAMS), entry
        assert entry.date_time == (1980, 1, 1, 0, 0, 0), entry


def test_its_metadata_says_what_it_needs(archive):
    metadata = email.message_from_bytes(archive.read(INFO + "METADATA"))
    assert metadata["Name"] == "slimps"
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata.get_all("Requires-Dist") == ["numpy>=1.22"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload().startswith("# slimps\n")
    wheel = email.message_from_bytes(archive.read(INFO + "WHEEL"))
    assert wheel["Root-Is-Purelib"] == "false"
    assert wheel.get_all("Tag") == ["py3-none-manylinux_2_35_x86_64"]
    scripts = archive.read(INFO + "entry_points.txt").decode()
    assert scripts == "[console_scripts]\nslimps = slimps_launch.__main__:console\n"


def test_its_record_is_true(archive):
    rows = list(csv.reader(io.StringIO(archive.read(INFO + "RECORD").decode())))
    assert {row[0] for row in rows} == set(archive.namelist())
    assert [INFO + "RECORD", "", ""] in rows
    for name, digest, size in rows:
        if name != INFO + "RECORD":
            content = archive.read(name)
            sha256 = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert (digest, int(size)) == ("sha256=" + sha256.decode(), len(content))


def test_the_library_exports_the_c_api_alone(tree):
    script = pathlib.Path("worker/c_api.lds").read_text(encoding="utf-8")
    names = set(re.findall(r"^ +(slimps_\w+);$", script, flags=re.MULTILINE))
    exported = [name.split("@@SLIMPS_") for name in symbols(tree / LIBRARY, "--defined-only")]
    assert {name for name, _ in exported} == names
    assert "slimps_create" in names


def test_it_needs_nothing_that_an_older_system_lacks(tree):
    bundled = {path.name for path in (tree / "slimps.libs").iterdir()}
    for path in programs_of(tree):
        said_of = said("objdump", "-p", path)
        needed = set(re.findall(r"NEEDED +(\S+)", said_of))
        assert needed <= bundled | set(SYSTEM), path
        for search in re.findall(r"R(?:UN)?PATH +(\S+)", said_of):
            assert search.startswith("$ORIGIN"), path
        for library, versions in re.findall(r"required from (\S+):\n((?:    0x.*\n)*)", said_of):
            for name in re.findall(r"(\S+)\n", versions) if library in SYSTEM else []:
                kind, _, number = name.partition("_")
                version = tuple(int(digits) for digits in number.split("."))
                assert version <= SYSTEM[library][kind], (path, name)


def test_what_is_bundled_shares_no_name_with_others(tree):
    """So neither torch's protobuf nor another TBB can take the place of these."""
    bundled = sorted((tree / "slimps.libs").iterdir())
    listed = said("/sbin/ldconfig", "-p")
    files = [re.search(r"\b%s .*=> (\S+)" % re.escape(name), listed).group(1) for name in SYSTEM]
    system = {name.split("@")[0] for file in files for name in symbols(file, "--defined-only")}
    for path in bundled + [tree / name for name in PROGRAMS]:
        for name in {name.split("@")[0] for name in symbols(path)} - system:
            assert name.startswith(OURS), path
    for name in symbols(tree / LIBRARY, "--undefined-only"):
        assert name.startswith(OURS) or name.split("@")[0] in system


def test_the_licences_of_what_is_bundled_come_along(archive):
    licences = {name.split("/")[-1] for name in archive.namelist() if "/licenses/" in name}
    assert {"LICENSE", "libzmq5", "libprotobuf32", "libtbb12", "liblzma5"} <= licences
