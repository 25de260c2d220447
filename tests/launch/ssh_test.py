# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on ssh and --on mpi, with an sshd in each of two network namespaces.

Skipped where namespaces cannot be made.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import commands
import pytest
from commands import DEMO, SAVING, SLIMPS, SMALL, TRAIN, Command

sys.path.insert(0, os.path.join(commands.ROOT, "tools"))

from bench.cluster import net  # noqa: E402
from eventually import eventually  # noqa: E402

WHY_NOT = net.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
"""
SSH = "ssh -F /dev/null -i {folder}/key -oUserKnownHostsFile={folder}/known -oLogLevel=ERROR"


FOUR = ["--workers=2", "--servers=2"]
# OpenMPI would not run as root, as which this test runs.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Machines:
    """Two nodes with an sshd each, and the launcher's, which is the bridge between them."""

    def __init__(self, network, folder, etc_hosts="/etc/hosts"):
        self.network = network
        self.folder = folder
        self.ssh = (SSH + " -oStrictHostKeyChecking=accept-new").format(folder=folder)
        self.hostfile = os.path.join(folder, "hosts")
        self.hosts("10.77.0.1 slots=2  # the first", "10.77.0.2 slots=2")
        for name in ("key", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(folder, name)],
                check=True,
            )
        config = os.path.join(folder, "sshd_config")
        with open(config, "w", encoding="ascii") as out:
            out.write(SSHD.format(folder=folder))
        os.makedirs("/run/sshd", exist_ok=True)  # sshd insists
        self.daemons = []
        for node in (0, 1):
            script = "hostname m%d && mount --bind %s /etc/hosts && exec /usr/sbin/sshd -D -e -f %s"
            script %= (node + 1, etc_hosts, config)
            command = network.command(node, ["unshare", "--uts", "--mount", "sh", "-c", script])
            self.daemons.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        for node in (0, 1):
            reach = shlex.split(self.ssh) + [network.address(node), "true"]
            reach = network.command(net.HUB, reach)
            assert eventually(lambda: subprocess.run(reach, check=False).returncode == 0)

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()

    def hosts(self, *lines):
        with open(self.hostfile, "w", encoding="ascii") as out:
            out.write("".join(line + "\n" for line in lines))

    def launch(self, *command, flags=("--insecure",)):
        line = SLIMPS + ["launch", "--on", "ssh:" + self.hostfile, *FOUR]
        return self.network.command(net.HUB, line + [*flags, "--"] + list(command))

    def job(self, *command, **rest):
        return Command(self.launch(*SMALL, *command, **rest), SLIMPS_SSH=self.ssh)

    def sessions(self):
        """Returns what runs on the nodes beside sshd, which waits long for a lost launcher."""
        found = []
        for node in (0, 1):
            for pid in net.run(["ip", "netns", "pids", self.network.name(node)]).split():
                try:
                    with open("/proc/%s/comm" % pid, encoding="utf-8") as name:
                        found += [] if name.read() == "sshd\n" else [int(pid)]
                except (FileNotFoundError, ProcessLookupError):
                    pass
        return found

    def nobody_is_left(self):
        return eventually(lambda: not self.sessions(), commands.SECONDS)


@pytest.fixture
def machines(tmp_path):
    with net.Network(2, congestion="default") as network:
        with contextlib.closing(Machines(network, str(tmp_path))) as made:
            yield made


def test_it_trains_as_a_local_job_does(machines):
    logs = os.path.join(machines.folder, "logs")
    lines = commands.trained(
        machines.launch(*DEMO, flags=("--insecure", "--logs", logs)), SLIMPS_SSH=machines.ssh
    )
    said = "\n".join(lines)
    assert re.search(r"scheduler listens at 10.77.0.254:\d+ \(interface \w+\)", said)
    assert re.search("server . .*listens at tcp://10.77.0.1:", said), said
    assert re.search("server . .*listens at tcp://10.77.0.2:", said), said
    with open(os.path.join(logs, "worker0.log"), encoding="utf-8") as log:
        assert "worker0| " + log.read().splitlines()[-1] in lines
    assert machines.nobody_is_left()


def test_all_processes_of_the_hosts_are_in_one_trace(machines):
    path = os.path.join(machines.folder, "job.json")
    flags = ("--insecure", "--trace", path)
    lines = commands.trained(machines.launch(*TRAIN, flags=flags), SLIMPS_SSH=machines.ssh)
    with open(path, encoding="utf-8") as text:
        events = json.load(text)["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    expected = ["scheduler 0", "worker 0", "worker 1", "server 0", "server 1"]
    assert sorted(named) == sorted(expected)
    assert not [line for line in lines if "left out" in line]
    assert machines.nobody_is_left()


def test_an_error_of_a_rank_is_told_with_its_name_host_and_status(machines):
    with machines.job("fail") as job:
        assert job.status() == 1
        job.wait_for("slimps: the job failed: worker1 exited with status 1 on 10.77.0.2: ValueErr")
        assert job.nobody_is_left() and machines.nobody_is_left(), job.said


def test_a_killed_process_ends_the_job_and_is_named(machines):
    with machines.job("wait") as job:
        ready = {match.group(1): match for match in job.wait_for(r"ready: rank (.), pid (\d+)", 2)}
        os.kill(int(ready["1"].group(2)), signal.SIGKILL)
        assert job.status() == 128 + signal.SIGKILL
        assert "slimps: the job failed: worker1 was killed by SIGKILL on " in job.said
        assert machines.nobody_is_left(), job.said


def test_ctrl_c_ends_all(machines):
    with machines.job("wait") as job:
        job.wait_for("ready: ", 2)
        job.process.send_signal(signal.SIGINT)
        assert job.status() == 128 + signal.SIGINT
        assert machines.nobody_is_left(), job.said


def test_a_killed_launcher_leaves_nobody_behind(machines):
    with machines.job("wait") as job:
        job.wait_for("ready: ", 2)
        job.process.kill()
        assert job.nobody_is_left() and machines.nobody_is_left(), job.said


def test_a_lost_node_ends_the_job_and_is_named(machines):
    with machines.job("wait") as job:
        job.wait_for("ready: ", 2)
        net.run(["ip", "-n", machines.network.name(1), "link", "set", net.INTERFACE, "down"])
        assert job.status() != 0
        job.wait_for("slimps: the job failed: (worker|server)1 on 10.77.0.2 is lost: .* silent")
        assert machines.nobody_is_left(), job.said


def kill_on_hosts(machines, *variables):
    """Kills the processes that have one of these variables, as "DMLC_WORKER_ID=1": all at once, so
    that none is started again before the last has died."""
    found = []
    for pid in machines.sessions():
        try:
            with open("/proc/%d/environ" % pid, "rb") as environment:
                has = set(environment.read().decode("utf-8", "replace").split("\0"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        if has & set(variables):
            found.append(pid)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def saving_job(machines, *flags):
    """Starts a job of saving_worker.py. Returns it, with its two workers in the midst of it."""
    command = machines.launch(*SAVING, machines.folder, flags=("--snapshot_every=1", *flags))
    job = Command(command, SLIMPS_SSH=machines.ssh)
    job.wait_for("waits: ", 2)
    return job


def ends_with_the_same_weights(job, machines, first):
    with open(os.path.join(machines.folder, "go"), "w", encoding="ascii"):
        pass
    assert job.status() == 0, job.said
    with Command(SLIMPS + ["launch", *FOUR, "--", *SAVING, machines.folder]) as calm:
        assert calm.status() == 0, calm.said
        weights = calm.wait_for("weights .*,", 2)[0].group()
    job.wait_for(re.escape(weights) + " from round %d" % first)
    assert machines.nobody_is_left(), job.said


def test_what_dies_on_a_host_is_started_again_there(machines):
    with saving_job(machines, "--restart=5") as job:
        kill_on_hosts(machines, "DMLC_WORKER_ID=1")
        job.wait_for("slimps: worker1 was killed by SIGKILL on 10.77.0.2")
        job.wait_for("waits: rank 1", 2)
        kill_on_hosts(machines, "DMLC_ROLE=server")
        for rank in "01":
            job.wait_for("slimps: server%s was started again" % rank)
            job.wait_for("server %s was started again .*: sending what its snapshot lacks" % rank)
        ends_with_the_same_weights(job, machines, first=25)
        assert "has no keys" not in job.said


def test_a_job_on_hosts_goes_back_to_its_checkpoint(machines):
    saved = os.path.join(machines.folder, "saved")
    with saving_job(machines, "--restart=5", "--checkpoint", saved) as job:
        newest = os.path.join(saved, "step-000000020", "manifest.json")
        assert eventually(lambda: os.path.exists(newest), commands.SECONDS)
        kill_on_hosts(machines, "DMLC_WORKER_ID=1", "DMLC_ROLE=server")
        job.wait_for("slimps: all of it goes back to its last checkpoint, .* .round 20.")
        ends_with_the_same_weights(job, machines, first=20)


def test_a_host_that_answers_again_has_its_part_of_the_job_anew(machines):
    link = ["ip", "-n", machines.network.name(1), "link", "set", net.INTERFACE]
    saved = os.path.join(machines.folder, "saved")
    with saving_job(machines, "--restart=1", "--checkpoint", saved) as job:
        newest = os.path.join(saved, "step-000000020", "manifest.json")
        assert eventually(lambda: os.path.exists(newest), commands.SECONDS)
        net.run(link + ["down"])
        job.wait_for("slimps: all of it goes back to its last checkpoint, .* .round 20.")
        net.run(link + ["up"])
        ends_with_the_same_weights(job, machines, first=20)


@pytest.fixture(params=["openmpi", "mpich"])
def mpirun(request, machines):
    return mpirun_of(machines, request.param)


def mpirun_of(machines, mpi):
    """Returns an mpirun that starts its daemons by ssh."""
    if mpi == "mpich":
        path = os.path.join(machines.folder, "ssh")
        with open(path, "w", encoding="ascii") as script:
            script.write('#!/bin/sh\nexec %s "$@"\n' % machines.ssh)
        os.chmod(path, 0o755)
        return "mpirun.mpich -launcher ssh -launcher-exec " + path
    return "mpirun.openmpi --mca plm_rsh_agent %s --mca oob_tcp_if_include 10.77.0.0/24" % (
        shlex.quote(machines.ssh)
    )


def by_mpi(machines, mpirun, *command):
    line = SLIMPS + ["launch", "--on", "mpi:" + machines.hostfile, *FOUR, "--insecure", "--"]
    return Command(
        machines.network.command(net.HUB, line + list(command)), SLIMPS_MPIRUN=mpirun, **AS_ROOT
    )


def test_mpirun_places_processes_on_the_hosts(machines, mpirun):
    with by_mpi(machines, mpirun, *TRAIN) as job:
        assert job.status() == 0, job.said
        assert commands.TRAINED in job.lines, job.said
        for rank in (0, 1):
            found = r"server %d .*listens at tcp://10.77.0.%d:" % (rank, rank + 1)
            assert re.search(found, job.said), job.said
        assert machines.nobody_is_left(), job.said


def test_a_node_that_mpirun_loses_ends_the_job(machines, mpirun):
    with by_mpi(machines, mpirun, *SMALL, "wait") as job:
        job.wait_for("ready: ", 2)
        net.run(["ip", "-n", machines.network.name(1), "link", "set", net.INTERFACE, "down"])
        assert job.status() != 0
        job.wait_for("slimps: the job failed: (worker|server)1 on m2 is lost: .* silent")


def test_no_variable_is_in_a_command_line(machines):
    with machines.job("wait") as job:
        job.wait_for("ready: ", 2)
        for pid in job.processes() + machines.sessions():
            with open("/proc/%d/cmdline" % pid, "rb") as line:
                assert job.mark.encode() not in line.read()


def test_hosts_that_do_not_answer_are_told_with_what_to_do(machines):
    machines.hosts("10.77.0.1 slots=2", "10.77.0.9 slots=2")
    with machines.job("wait") as job:
        assert job.status() == 1
        assert len(job.lines) == 1, job.said
        assert re.match(
            r"slimps: .*/hosts:2: host 10.77.0.9 does not answer: ssh: connect to host 10.77.0.9 "
            r"port 22: .*; it must let this in: ssh .* -oBatchMode=yes 10.77.0.9 true$",
            job.said,
        )
        assert machines.nobody_is_left()


def test_an_open_network_is_used_with_keys(machines):
    lines = commands.trained(machines.launch(*TRAIN, flags=()), SLIMPS_SSH=machines.ssh)
    assert not [line for line in lines if "has no keys" in line]
    assert machines.nobody_is_left()
