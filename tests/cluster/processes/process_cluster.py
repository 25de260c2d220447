# SPDX-License-Identifier: Apache-2.0
"""A job of real processes on loopback, for tests that kill some of them."""

import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "repo"))

from eventually import eventually  # noqa: E402

METRICS = re.compile(r"metrics at http://(127\.0\.0\.1:\d+)/metrics\n")


class ProcessCluster:
    """Use it as a context manager: every process has ended at its end. It finds programs from the
    working directory."""

    def __init__(
        self,
        workers,
        servers,
        worker_flags,
        scheduler_flags=(),
        server_flags=(),
        worker_prefix=(),
        server_prefix=(),
        worker="worker/slimps_worker",
        keys=None,
        snapshots=None,
    ):
        self.workers = workers
        self.servers = servers
        self.worker_flags = list(worker_flags)
        self.scheduler_flags = list(scheduler_flags)
        self.server_flags = list(server_flags)
        # Seconds between two snapshots of a server; None: daemons cannot be started again.
        self.snapshots = snapshots
        self.worker = worker  # None: the test starts workers by hand
        self.keys = keys  # a slimps_launch.identity.keys.Folder; None: a job without keys
        # A command that runs a worker in other surroundings.
        self.worker_prefix = list(worker_prefix)
        self.server_prefix = list(server_prefix)
        self.processes = {}
        self.folder = tempfile.TemporaryDirectory(prefix="slimps-test-")

    def __enter__(self):
        port_file = self.path("port")
        self.start_scheduler(["--port", "0", "--port_file", port_file])
        self.port = int(self.wait_for(lambda: self._read(port_file), "the scheduler's port"))
        for rank in range(self.servers):
            self.start_server(rank)
        for rank in range(self.workers if self.worker else 0):
            self.start_worker(rank, self.worker_prefix + [self.worker] + self.worker_flags)
        return self

    def start_scheduler(self, flags=()):
        """Starts it; after the first time on the port that it had."""
        flags = list(flags) or ["--port", str(self.port)]
        if self.snapshots is not None:
            flags += ["--restart_timeout_s", "60", "--journal", self.path("journal")]
        command = ["scheduler/slimps_scheduler"] + flags + self.scheduler_flags
        self._start("scheduler", "scheduler", command, 0)

    def start_server(self, rank):
        flags = list(self.server_flags) + ["--wanted_rank", str(rank)]
        if self.snapshots is not None:
            flags += ["--snapshot_dir", self.path("snapshots")]
            flags += ["--snapshot_every", str(self.snapshots)]
        command = self.server_prefix + ["server/slimps_server"] + flags
        self._start("server%d" % rank, "server", command, self.port)

    def start_worker(self, rank, command):
        self._start("worker%d" % rank, "worker", command, self.port, {"DMLC_WORKER_ID": str(rank)})

    def __exit__(self, *unused):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def kill(self, name, number=signal.SIGKILL):
        self.processes[name].send_signal(number)

    def output(self, name):
        return self._read(self.path(name + ".log")) or ""

    def wait_for(self, condition, what, seconds=60.0):
        """Returns what `condition` returns, once that is true. Fails after `seconds`."""
        value = eventually(condition, seconds)
        if value:
            return value
        logs = "\n".join(
            "--- %s\n%s" % (name, self.output(name)[-2000:]) for name in self.processes
        )
        raise AssertionError("waited %.0f s for %s\n%s" % (seconds, what, logs))

    def wait_for_line(self, name, text, seconds=60.0):
        self.wait_for(
            lambda: text in self.output(name), "%r in the output of %s" % (text, name), seconds
        )

    def wait_for_end(self, names, seconds=60.0):
        """Waits until these processes have ended. Returns their exit statuses by name."""
        self.wait_for(
            lambda: all(self.processes[name].poll() is not None for name in names),
            "the end of " + ", ".join(names),
            seconds,
        )
        return {name: self.processes[name].returncode for name in names}

    def wait_for_all(self, seconds=60.0):
        return self.wait_for_end(list(self.processes), seconds)

    def metrics_of(self, name):
        """Returns the text at the address of metrics that the process has logged."""
        self.wait_for(lambda: METRICS.search(self.output(name)), "the metrics of " + name)
        address = METRICS.search(self.output(name)).group(1)
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def listening_ports(self):
        """Returns the ports of the scheduler and the servers, as they print them."""
        ports = [self.port]
        for rank in range(self.servers):
            name = "server%d" % rank
            self.wait_for_line(name, "serving at tcp://127.0.0.1:")
            ports.append(
                int(self.output(name).split("serving at tcp://127.0.0.1:")[1].split(",")[0])
            )
        return ports

    def _start(self, name, role, command, port, own=None):
        environment = dict(
            os.environ,
            DMLC_ROLE=role,
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_PS_ROOT_PORT=str(port),
            DMLC_NUM_WORKER=str(self.workers),
            DMLC_NUM_SERVER=str(self.servers),
            **(own or {}),
            **(self.keys.variables(name) if self.keys else {}),
        )
        with open(self.path(name + ".log"), "wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @staticmethod
    def _read(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as text:
                return text.read()
        except FileNotFoundError:
            return None
