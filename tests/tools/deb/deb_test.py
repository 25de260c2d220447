# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what it holds, lintian, and jobs in a Debian that has little beside it."""

import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import debian_system
from cli import debian_package
from cli import python_wheel
from cli import setup
from eventually import eventually
from slimps_launch import network

BUILT = os.getcwd()  # the runfiles: what Bazel has built for this test
SECONDS_SINCE_1970 = 1700000000
LIB = "usr/lib/x86_64-linux-gnu"
PYTHON = "usr/lib/python3/dist-packages"
INFO = PYTHON + "/slimps-%s.dist-info" % python_wheel.version()
# What is there beside Python modules and headers.
FILES = {
    "etc/default/slimps",
    "lib/systemd/system/slimps-scheduler.service",
    "lib/systemd/system/slimps-server@.service",
    "usr/bin/slimps",
    "usr/bin/slimps_scheduler",
    "usr/bin/slimps_server",
    "usr/bin/slimps_worker",
    LIB + "/cmake/slimps/slimps-config-version.cmake",
    LIB + "/cmake/slimps/slimps-config.cmake",
    LIB + "/libslimps.so",
    LIB + "/libslimps.so.1",
    LIB + "/pkgconfig/slimps.pc",
    INFO + "/METADATA",
    INFO + "/WHEEL",
    INFO + "/entry_points.txt",
    PYTHON + "/slimps/native/libslimps.so.1",
    PYTHON + "/slimps/py.typed",
    PYTHON + "/slimps_launch/bin/slimps_scheduler",
    PYTHON + "/slimps_launch/bin/slimps_server",
    PYTHON + "/slimps_launch/digits.csv.gz",
    "usr/lib/sysusers.d/slimps.conf",
    "usr/share/doc/slimps/CHANGELOG.md.gz",
    "usr/share/doc/slimps/changelog.gz",
    "usr/share/doc/slimps/copyright",
    "usr/share/lintian/overrides/slimps",
    "usr/share/man/man1/slimps.1.gz",
    "usr/share/man/man1/slimps_scheduler.1.gz",
    "usr/share/man/man1/slimps_server.1.gz",
    "usr/share/man/man1/slimps_worker.1.gz",
}
CMAKE = """cmake_minimum_required(VERSION 3.13)
project(example C)
find_package(slimps %s REQUIRED)
add_executable(by_cmake kvstore_c.c)
target_link_libraries(by_cmake slimps::slimps)
"""
EXAMPLES = ["kvstore_c.c", "kvstore_numpy.py"]
COMPILERS = ["gcc", "libc6-dev", "pkgconf", "cmake", "make"]
# What the examples say at their end.
TRAINED = r"(?m)^(worker0\| )?(loss 0\.0|slopes \[1\. 2\. 3\.)"
SECONDS = 60.0  # only a failing test waits this long
# Nothing of this is left by a purge.
GONE = ("usr/bin/slimps*", LIB + "/*slimps*", "lib/systemd/system/slimps*", "etc/default/slimps*")
GONE += (PYTHON + "/slimps*", "var/lib/slimps", "etc/systemd/system/*.wants/slimps*")


def relative(pattern):
    """Returns the files that match in the runfiles, from the pattern's first * on."""
    start = pattern.index("*")
    return {path[start:] for path in glob.glob(pattern, recursive=True)}


class DebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="slimps-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.deb = debian_package.pack(folder.name, BUILT, SECONDS_SINCE_1970)

    def test_it_holds_programs_units_pages_modules_and_headers(self):
        rows = setup.output(["dpkg-deb", "--contents", self.deb]).splitlines()
        paths = {re.search(r" \./(\S*)", row).group(1) for row in rows if row[0] != "d"}
        modules = {"slimps/" + name for name in relative("python/package/slimps/**/*.py")}
        modules |= {"slimps_launch/" + name for name in relative("python/slimps_launch/**/*.py")}
        headers = {
            "usr/include/slimps/" + name
            for name in relative("worker/c_api_package/include/slimps/*.h")
        }
        self.assertIn("usr/include/slimps/c_api.h", headers)
        self.assertIn("slimps/kv.py", modules)
        for room in python_wheel.TOOLS:
            modules |= {
                "slimps_launch/tools/%s/%s" % (room, name)
                for name in relative("tools/%s/**/*.py" % room)
            }
        for name in ("bin/bench_codec", "bin/describe_model", "plan/reference.json"):
            modules.add("slimps_launch/tools/" + name)
        modules.add("slimps_launch/tools/plan/set_ups.json")
        expected = FILES | headers | {PYTHON + "/" + name for name in modules}
        self.assertEqual(sorted(expected), sorted(paths))

    def test_equal_inputs_give_equal_bytes(self):
        again = os.path.join(self.folder, "again")
        packed = [self.deb, debian_package.pack(again, BUILT, SECONDS_SINCE_1970)]
        digests = set()
        for path in packed:
            with open(path, "rb") as content:
                digests.add(hashlib.sha256(content.read()).hexdigest())
        self.assertEqual(1, len(digests))

    def test_lintian_finds_nothing(self):
        command = ["lintian", "--no-cfg", "--allow-root", "--fail-on=error,warning", self.deb]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual((0, ""), (done.returncode, done.stdout))

    def test_a_small_debian_installs_it_and_trains(self):
        why_not = debian_system.why_not()
        if why_not is not None:
            self.skipTest(why_not)
        system = debian_system.System(os.path.join(self.folder, "system"))
        for path in [self.deb] + [os.path.join(BUILT, "examples", name) for name in EXAMPLES]:
            shutil.copy(path, system.at("root"))
        system.install("/root/" + os.path.basename(self.deb), *COMPILERS)
        system.run(
            "systemd-analyze verify --man=no slimps-scheduler.service slimps-server@0.service"
        )
        self.assertEqual("slimps %s\n" % python_wheel.version(), system.run("slimps --version"))
        system.run(
            "cc /root/kvstore_c.c $(pkg-config --cflags --libs slimps) -o /root/by_pkg_config"
        )
        python_wheel.write(system.at("root/CMakeLists.txt"), CMAKE % python_wheel.version())
        system.run("cd /root; cmake . -B build; cmake --build build")

        with self.subTest("the units serve one job after the other"):
            self.serve_two_jobs(system)
        for command in ("/root/build/by_cmake", "python3 /root/kvstore_numpy.py"):
            with self.subTest("launch runs a job", command=command):
                said = system.run("slimps launch --workers 2 --servers 2 -- " + command)
                self.assertRegex(said, TRAINED)
        with self.subTest("it installs over itself"):
            system.run("dpkg --install /root/" + os.path.basename(self.deb))
            self.assertEqual("slimps %s\n" % python_wheel.version(), system.run("slimps --version"))
        system.run("install -d -o slimps /var/lib/slimps; systemctl enable slimps-server@0")
        self.assertTrue(self.there(system, "etc/systemd/system/*.wants/slimps*"))
        system.run("apt-get -q purge -y slimps")
        self.assertEqual([], self.there(system, *GONE))

    @staticmethod
    def there(system, *patterns):
        """Returns what is there; a link of the system leads nowhere from here."""
        return [path for pattern in patterns for path in glob.glob(system.at(pattern))]

    def serve_two_jobs(self, system):
        variables = system.at("etc/default/slimps")
        job = re.sub("(DMLC_NUM_.*=)1", r"\g<1>2", python_wheel.read(variables))
        with network.hold_port() as held:
            port = r"\g<1>%d" % network.port_of(held)
        python_wheel.write(variables, re.sub("(DMLC_PS_ROOT_PORT=).*", port, job))
        units = [system.start_unit("slimps-scheduler.service", "/root/scheduler.log")]
        for rank in ("0", "1"):
            log = "/root/server%s.log" % rank
            units.append(system.start_unit("slimps-server@.service", log, instance=rank))

        def waits_for_workers():
            path = system.at("root/scheduler.log")
            return os.path.exists(path) and python_wheel.read(path).count("missing: 2 workers")

        try:
            for number in (1, 2):
                self.assertTrue(eventually(lambda: waits_for_workers() == number, SECONDS))
                script = "set -a; . /etc/default/slimps; DMLC_WORKER_ID=%d /root/by_pkg_config"
                workers = [system.start(script % rank) for rank in (0, 1)]
                said = [debian_system.output(worker, "a worker") for worker in workers]
                self.assertRegex(said[0], TRAINED)
        finally:
            for unit in units:
                unit.kill()
                unit.communicate()


if __name__ == "__main__":
    unittest.main()
