# SPDX-License-Identifier: Apache-2.0
"""Packs the wheel: the package, the launcher, the daemons, and the libraries that they need.

docs/decisions/wheel.md says why the libraries come along as they do.
"""

import argparse
import glob
import os
import re
import shutil
import tempfile

from bench.codec import codec_tables
from cli import pip_environment
from cli import setup
from plan import models

PACKAGE = os.path.join("python", "package")
PLATFORM = "manylinux_2_35_x86_64"
DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
METADATA = """Metadata-Version: 2.4
Name: slimps
Version: %s
Summary: A parameter server for data-parallel training that compresses gradients where that pays
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Description-Content-Type: text/markdown

%s"""
WHEEL = """Wheel-Version: 1.0
Generator: slimps
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""
ENTRY_POINTS = """[console_scripts]
slimps = slimps_launch.__main__:console
"""


TOOLS = ("bench", "cli", "plan")  # the commands plan and bench
DAEMONS = {name: setup.PROGRAMS[name] for name in setup.DAEMONS}
MEASURING = {**codec_tables.PROGRAM, **models.PROGRAM}


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def version():
    return read(os.path.join(setup.REPOSITORY, "VERSION")).strip()


def stage(tree, built):
    """Fills the folder `tree` with what is in `built`, in the layout of a wheel."""
    launch = os.path.join(tree, "slimps_launch")
    left_out = shutil.ignore_patterns("__pycache__", "BUILD", "README.md")
    shutil.copytree(os.path.join(built, PACKAGE), tree, ignore=left_out)
    shutil.copytree(
        os.path.join(setup.REPOSITORY, "python", "slimps_launch"), launch, ignore=left_out
    )
    for name in TOOLS:
        shutil.copytree(
            os.path.join(setup.REPOSITORY, "tools", name),
            os.path.join(launch, "tools", name),
            ignore=shutil.ignore_patterns(
                "__pycache__", "BUILD", "models", "*.md", "*.cc", "*.cu", "*.h"
            ),
        )
    for folder, programs in (("bin", DAEMONS), (os.path.join("tools", "bin"), MEASURING)):
        os.mkdir(os.path.join(launch, folder))
        for _, path in programs.values():
            shutil.copy(os.path.join(built, path), os.path.join(launch, folder))
    shutil.copy(DIGITS, launch)
    info = os.path.join(tree, "slimps-%s.dist-info" % version())
    os.makedirs(os.path.join(info, "licenses"))
    shutil.copy(os.path.join(setup.REPOSITORY, "LICENSE"), os.path.join(info, "licenses"))
    readme = read(os.path.join(setup.REPOSITORY, "README.md"))
    write(os.path.join(info, "METADATA"), METADATA % (version(), readme))
    write(os.path.join(info, "WHEEL"), WHEEL)
    write(os.path.join(info, "entry_points.txt"), ENTRY_POINTS)
    set_modes(tree)


def set_modes(tree):
    for folder, _, names in os.walk(tree):
        mode = 0o755 if os.path.basename(folder) == "bin" else 0o644
        for name in names:
            os.chmod(os.path.join(folder, name), mode)


def add_licenses(tree):
    """Adds the licence of each Debian package that a bundled library comes from."""
    [info] = glob.glob(os.path.join(tree, "*.dist-info"))
    bundled = os.listdir(os.path.join(tree, "slimps.libs"))
    # auditwheel adds 8 digits of a hash to a file's name.
    names = ["*/" + re.sub(r"-[0-9a-f]{8}(?=\.)", "", name) for name in bundled]
    for line in setup.output(["dpkg-query", "--search"] + names).splitlines():
        package = line.split(":")[0]
        license = os.path.join("/usr/share/doc", package, "copyright")
        shutil.copyfile(license, os.path.join(info, "licenses", package))


def defined(paths):
    """Returns the names of the symbols that shared objects define."""
    listing = setup.output(["nm", "--dynamic", "--defined-only", "--format=posix"] + paths)
    return {line.split()[0].split("@")[0] for line in listing.splitlines() if " " in line}


def isolate(tree, patchelf):
    """Renames what the bundled libraries define, in them and in what uses them.

    So they never meet another copy in the process, such as torch's own protobuf or TBB.
    """
    bundled = sorted(glob.glob(os.path.join(tree, "slimps.libs", "*")))
    library = os.path.join(tree, "slimps", "native", "libslimps.so.1")
    launch = os.path.join(tree, "slimps_launch")
    programs = sorted(glob.glob(os.path.join(launch, "**", "bin", "*"), recursive=True))
    loaded = [word for word in setup.output(["ldd", library]).split() if word.startswith("/")]
    system = [path for path in loaded if not path.startswith(tree)]
    names = os.path.join(os.path.dirname(tree), "names")
    ours = sorted(defined(bundled) - defined(system))
    write(names, "".join("%s slimps_bundled_%s\n" % (name, name) for name in ours))
    setup.run([patchelf, "--rename-dynamic-symbols", names] + bundled + [library] + programs)


def build_package(further_targets):
    """Builds what a wheel holds, and further targets."""
    # An earlier build may have left more there.
    shutil.rmtree(os.path.join(setup.built(), PACKAGE), ignore_errors=True)
    targets = [target for target, _ in [*DAEMONS.values(), *MEASURING.values()]]
    setup.build(["//python:package"] + targets + further_targets)


def build(out):
    """Builds the wheel into the folder `out`. Returns its path. Equal inputs give equal bytes.

    SetupError: a step failed, for example because pip cannot install auditwheel.
    """
    setup.install_packages()
    build_package([])
    python = pip_environment.ensure("wheel")
    tools = os.path.dirname(python)
    # The year 1980 is where the format of archives begins.
    environment = dict(os.environ, SOURCE_DATE_EPOCH="315532800")
    environment["PATH"] = tools + ":" + environment.get("PATH", "/usr/bin:/bin")
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:

        def run(module, *arguments):
            setup.run([python, "-m", module] + list(arguments), environment)

        def only(pattern):
            [path] = glob.glob(os.path.join(folder, pattern))
            return path

        stage(os.path.join(folder, "staged"), setup.built())
        run("wheel", "pack", "--dest-dir", folder, only("staged"))
        repair = [
            "--plat",
            PLATFORM,
            "--only-plat",
            "--wheel-dir",
            os.path.join(folder, "repaired"),
        ]
        run("auditwheel", "repair", *repair, only("*.whl"))
        run("wheel", "unpack", "--dest", os.path.join(folder, "unpacked"), only("repaired/*.whl"))
        tree = only("unpacked/*")
        add_licenses(tree)
        isolate(tree, os.path.join(tools, "patchelf"))
        set_modes(tree)
        os.makedirs(out, exist_ok=True)
        run("wheel", "pack", "--dest-dir", out, tree)
        return os.path.join(out, os.path.basename(only("repaired/*.whl")))


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps wheel",
        description="Builds the wheel slimps-VERSION-py3-none-%s.whl, which runs under any Python "
        "from 3.9 on, without Debian's packages." % PLATFORM,
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="where the wheel goes")
    path = build(os.path.abspath(parser.parse_args(arguments).out))
    print("%s: %.1f MB" % (path, os.path.getsize(path) / 1e6))
    return 0
