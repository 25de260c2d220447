# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on slurm, and slimps run under srun: a slurmctld, and two slurmd.

Each slurmd is in a network namespace with a host name of its own. Skipped where namespaces cannot
be made.
"""

import os
import re
import shlex
import signal
import subprocess
import sys

import commands
import pytest
from commands import DEMO, SLIMPS, SMALL, TRAIN, Command

sys.path.insert(0, os.path.join(commands.ROOT, "tools"))

from bench.cluster import net  # noqa: E402
from eventually import eventually  # noqa: E402

WHY_NOT = net.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

CONFIG = """
ClusterName=test
SlurmctldHost={host}(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=5
NodeName=n1 NodeAddr=10.77.0.1 CPUs=2
NodeName=n2 NodeAddr=10.77.0.2 CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""
# slurmd wants a folder for control groups, which it does not use here.
SLURMD = "hostname n%d && mount -t tmpfs none /sys/fs/cgroup && exec slurmd -D -f %s"
MUNGED = "munged --foreground --force --key-file={0}/key --socket={0}/munge.socket"
MUNGED += " --pid-file={0}/munged.pid --log-file={0}/munged.log --seed-file={0}/seed"
FOUR = ["--workers=2", "--servers=2"]


class Cluster:
    def __init__(self, network, folder, proctrack="linuxproc"):
        self.network = network
        self.config = os.path.join(folder, "slurm.conf")
        os.mkdir(os.path.join(folder, "state"))
        about = {"folder": folder, "host": os.uname().nodename, "proctrack": proctrack}
        self.write(self.config, CONFIG.format(**about))
        self.write(os.path.join(folder, "cgroup.conf"), "CgroupPlugin=cgroup/v1\n")
        self.write(os.path.join(folder, "key"), os.urandom(64).hex())
        os.chmod(os.path.join(folder, "key"), 0o600)
        self.daemons = []
        self.start(net.HUB, MUNGED.format(folder))
        assert eventually(lambda: os.path.exists(os.path.join(folder, "munge.socket")))
        self.start(net.HUB, "slurmctld -D -f " + self.config)
        for node in (0, 1):
            script = SLURMD % (node + 1, self.config)
            self.start(node, "unshare --uts sh -c " + shlex.quote(script))
        assert eventually(lambda: self.output("sinfo", "-h", "-o", "%D %T") == "2 idle", 60.0)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="ascii") as out:
            out.write(text)

    def start(self, node, command):
        line = self.network.command(node, shlex.split(command))
        self.daemons.append(
            subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def end(self):
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait()

    def output(self, *command):
        return subprocess.run(
            self.network.command(net.HUB, list(command)),
            env={**os.environ, "SLURM_CONF": self.config},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout.strip()

    def command(self, *command, tasks=4, flags=()):
        """Returns a command in an allocation."""
        line = ["salloc", "--quiet", "--ntasks=%d" % tasks, *flags, *command]
        return self.network.command(net.HUB, line)

    def launch(self, *command, flags=("--insecure",), tasks=4):
        line = SLIMPS + ["launch", "--on", "slurm", *FOUR, *flags, "--"]
        return self.command(*line, *command, tasks=tasks)

    def job(self, *command, **rest):
        return Command(self.launch(*SMALL, *command, **rest), SLURM_CONF=self.config)

    @staticmethod
    def launchers(job):
        """Returns the number of the launcher, for which salloc waits, in a list."""
        return job.processes("\0".join(SLIMPS) + "\0launch", at_begin=True)

    def trained(self, command):
        return "\n".join(commands.trained(command, SLURM_CONF=self.config))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with net.Network(2, congestion="default") as network:
        made = Cluster(network, str(tmp_path_factory.mktemp("slurm")))
        try:
            yield made
        finally:
            made.end()


def test_it_trains_as_a_local_job_does(cluster, tmp_path):
    flags = ("--insecure", "--logs", str(tmp_path))
    said = cluster.trained(cluster.launch(*DEMO, flags=flags))
    assert re.search(r"scheduler listens at 10.77.0.254:\d+ \(interface \w+\)", said)
    for rank, node in ((0, 1), (1, 2)):
        assert re.search(r"server %d .*listens at tcp://10.77.0.%d:" % (rank, node), said), said
    assert {"server0.log", "server1.log", "worker0.log", "worker1.log"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_each_process_has_the_cpus_of_its_task(cluster):
    line = SLIMPS + ["launch", "--on", "slurm", "--workers=1", "--servers=1", "--insecure", "--"]
    shell = ["sh", "-c", 'grep Cpus_allowed_list /proc/self/status && exec "$@"', "sh"]
    command = cluster.command(*line, *shell, *TRAIN, tasks=2, flags=["--cpus-per-task=2"])
    bound = {"SLURM_CONF": cluster.config, "SLURM_CPU_BIND": "threads"}
    with Command(command, **bound) as job:
        assert job.status() == 0, job.said
        assert "worker0| Cpus_allowed_list:\t0-1" in job.lines, job.said


def test_servers_may_have_nodes_of_their_own(cluster):
    said = cluster.trained(cluster.launch(*TRAIN, flags=("--insecure", "--servers-apart")))
    assert len(re.findall(r"server . .*listens at tcp://10.77.0.1:", said)) == 2, said


def test_without_launch_the_first_node_has_the_scheduler(cluster):
    run = SLIMPS + ["run", "--insecure", "--servers=2", "--scheduler=10.77.0.1:%d"]
    run[-1] %= commands.free_port()
    said = cluster.trained(cluster.command("srun", *run, "--", *TRAIN))
    assert re.search(r"scheduler listens at 10.77.0.1:", said)


def test_without_launch_on_one_node_nothing_need_be_said(cluster):
    said = cluster.trained(cluster.command("srun", *SLIMPS, "run", "--", *TRAIN, tasks=2))
    assert re.search(r"scheduler listens at 127.0.0.1:", said)


def test_an_error_of_a_rank_is_told_with_its_name_node_and_status(cluster):
    with cluster.job("fail") as job:
        assert job.status() == 1
        job.wait_for("slimps: the job failed: worker1 exited with status 1 on n2: ValueError: bad")
        assert job.nobody_is_left(), job.said


def test_a_killed_process_ends_the_job_and_is_named(cluster):
    with cluster.job("wait") as job:
        ready = {match.group(1): match for match in job.wait_for(r"ready: rank (.), pid (\d+)", 2)}
        os.kill(int(ready["1"].group(2)), signal.SIGKILL)
        assert job.status() == 128 + signal.SIGKILL
        assert "slimps: the job failed: worker1 was killed by SIGKILL on n2" in job.said
        assert job.nobody_is_left(), job.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "time_limit"])
def test_workers_may_save_after_a_signal_with_the_servers_still_there(cluster, number):
    with cluster.job("save") as job:
        job.wait_for("ready: ", 2)
        for pid in cluster.launchers(job):
            os.kill(pid, number)
        assert job.status() == 128 + number
        job.wait_for("saved: ", 2)
        assert job.nobody_is_left(), job.said


def test_a_killed_launcher_leaves_nobody_behind(cluster):
    with cluster.job("wait") as job:
        job.wait_for("ready: ", 2)
        for pid in cluster.launchers(job):
            os.kill(pid, signal.SIGKILL)
        assert job.nobody_is_left(), job.said


def test_a_batch_job_may_save_ahead_of_its_time_limit(cluster, tmp_path):
    line = SLIMPS + ["launch", "--on", "slurm", *FOUR, "--insecure", "--", *SMALL, "save"]
    script, output = tmp_path / "job.sh", tmp_path / "output"
    script.write_text("#!/bin/sh\nexec %s\n" % shlex.join(line))
    command = ["sbatch", "--parsable", "--wait", "--ntasks=4", "--output=%s" % output, str(script)]
    with Command(cluster.network.command(net.HUB, command), SLURM_CONF=cluster.config) as batch:
        number = batch.wait_for(r"^(\d+)$")[0].group(1)
        assert eventually(
            lambda: output.exists() and output.read_text().count("ready: ") == 2, commands.SECONDS
        )
        cluster.output("scancel", "--batch", "--signal=TERM", number)  # as --signal=B:TERM@120
        assert batch.status() == 128 + signal.SIGTERM
        assert output.read_text().count("saved: ") == 2, output.read_text()
        assert batch.nobody_is_left()


def test_run_in_a_batch_script_without_srun_is_refused(cluster, tmp_path):
    script, output = tmp_path / "job.sh", tmp_path / "output"
    script.write_text("#!/bin/sh\nexec %s\n" % shlex.join([*SLIMPS, "run", "--", *TRAIN]))
    command = ["sbatch", "--wait", "--ntasks=2", "--output=%s" % output, str(script)]
    with Command(cluster.network.command(net.HUB, command), SLURM_CONF=cluster.config) as batch:
        assert batch.status() == 1
    assert "slimps: neither torchrun, srun, mpirun nor" in output.read_text()


def test_scancel_ends_all(cluster):
    with cluster.job("wait") as job:
        job.wait_for("ready: ", 2)
        cluster.output("scancel", "--user=root")
        assert job.status() != 0
        assert job.nobody_is_left(), job.said


def test_a_small_allocation_is_refused_in_one_line(cluster):
    with cluster.job("wait", tasks=3) as job:
        assert job.status() == 1
        assert re.match(
            r"slimps: the allocation \d+ \(--ntasks=3\) has room for 3 processes; 2 workers and 2 "
            r"servers need --ntasks=4$",
            job.said,
        )


def test_outside_of_an_allocation_one_line_says_what_to_do():
    with Command(SLIMPS + ["launch", "--on", "slurm", *FOUR, "--"] + TRAIN) as job:
        assert job.status() == 1
        assert job.lines == [
            "slimps: --on slurm: this is no allocation: start it in a script by sbatch, or by "
            "salloc --ntasks=4"
        ]


def test_a_lost_node_ends_the_job_and_is_named(cluster):
    """The last test: the node stays lost."""
    with cluster.job("wait") as job:
        job.wait_for("ready: ", 2)
        net.run(["ip", "-n", cluster.network.name(1), "link", "set", net.INTERFACE, "down"])
        assert job.status() != 0
        job.wait_for("slimps: the job failed: (worker|server)1 on n2 is lost: .* silent")
