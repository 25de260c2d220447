# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 in a folder, with little in it. debootstrap makes it from apt's sources here.

    with tempfile.TemporaryDirectory() as folder:
        system = debian_system.System(os.path.join(folder, "system"))
        system.install("gcc")
        system.run("gcc --version")
"""

import os
import shutil
import subprocess
import tempfile

RELEASE = "bookworm"
# Mounts and processes end with the first process.
ENTER = [
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"),
    'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" sh -ec "$1"',
]
REACH_SECONDS = 60  # for a small file
SECONDS = 600.0  # only a failing test waits this long


def said(*command):
    """Returns what a command prints to stdout, also if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    return done.stdout


def source():
    """Returns the address from which apt gets the release's packages. None: it has none."""
    listed = said(
        "apt-get", "indextargets", "--format", "$(RELEASE) $(SITE)", "Identifier: Packages"
    )
    sites = [line.split()[1] for line in listed.splitlines() if line.split()[0] == RELEASE]
    return sites[0] if sites else None


def why_not():
    """Returns why no system can be made here. None: it can. Asks apt's source, at most a minute."""
    if os.geteuid() != 0:
        return "debootstrap needs root"
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "no file system may be mounted here"
    if source() is None:
        return "apt has no source of Debian 12's packages"
    with tempfile.TemporaryDirectory() as folder:
        address = "%s/dists/%s/InRelease" % (source().rstrip("/"), RELEASE)
        fetch = ["timeout", "%d" % REACH_SECONDS, "/usr/lib/apt/apt-helper", "download-file"]
        said(*fetch, address, os.path.join(folder, "release"))
        return None if os.listdir(folder) else "%s cannot be reached" % address


def output(process, what):
    """Returns the output of a process that ends well. AssertionError: it does not."""
    text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, "%s: status %s\n%s" % (what, process.returncode, text)
    return text


class System:
    def __init__(self, folder):
        """Makes the system in `folder`, which is not there yet."""
        self.folder = folder
        proxy = said("apt-config", "dump", "--format=%v", "Acquire::http::Proxy")
        command = ["debootstrap", "--variant=minbase", RELEASE, folder, source()]
        self._end(command, {**os.environ, **({"http_proxy": proxy} if proxy else {})})
        # Libraries are as new as those that the programs were built with.
        shutil.rmtree(self.at("etc/apt"))
        shutil.copytree("/etc/apt", self.at("etc/apt"))
        with open(self.at("etc/dpkg/dpkg.cfg.d/fast"), "w", encoding="utf-8") as text:
            text.write("force-unsafe-io\n")  # nobody needs this system after a crash
        self.run("apt-get -q update")

    def at(self, path):
        return os.path.join(self.folder, path)

    def start(self, script):
        """Starts a shell script in the system. Returns the process, which leaves nothing behind."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        return self._start(ENTER + [self.folder, script], environment)

    def run(self, script):
        """Runs a shell script in the system. Returns what it prints. AssertionError: it failed."""
        return output(self.start(script), script)

    def start_unit(self, unit, log, instance=""):
        """Runs a unit's command as systemd does with Restart=always. Its lines go to the file `log`
        of the system. Returns the process."""
        with open(self.at("lib/systemd/system/" + unit), encoding="utf-8") as text:
            lines = [line.split("=", 1) for line in text.read().splitlines() if "=" in line]
        of = {name: value.replace("%i", instance) for name, value in lines}
        assert of["Restart"] == "always", of
        script = """exec > %s 2>&1
set -a
. /etc/default/slimps
while :; do
  setpriv --reuid={User} --regid={User} --clear-groups {ExecStart} || :
  sleep {RestartSec}
done"""
        return self.start(script.format(**of) % log)

    def install(self, *packages):
        self.run("apt-get -q install -y --no-install-recommends " + " ".join(packages))

    @staticmethod
    def _start(command, environment):
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def _end(self, command, environment):
        return output(self._start(command, environment), " ".join(command))
