# SPDX-License-Identifier: Apache-2.0
"""Runs nodes of a job on this machine for a launcher on another one.

    slimps agent     # started by ssh; reads what to run from stdin

The first line of stdin is a JSON with `folder`, `cores` and `nodes`: name, role, command,
environment, and the text of a key file if the job has keys. Further lines are signals: "signal 15",
and "signal 0" every few seconds, which says that the launcher is there. When it is not, or stdin
closes, the nodes end.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time

from slimps_launch import carried
from slimps_launch import cores
from slimps_launch import job_node
from slimps_launch import network
from slimps_launch import processes
from slimps_launch.identity import keys

# Seconds for the daemons to see the job's end after a signal: less than the 30 s after which Slurm,
# Kubernetes and torchrun kill.
DAEMON_GRACE = 20.0
CLOSED = -1  # the event of a stdin that has closed
SILENCE = 30.0  # seconds until a launcher that says nothing counts as lost: its machine may be


class Agent(processes.Processes):
    """Owned by the main thread."""

    told_to_stop = False
    silent_at = float("inf")  # when the launcher counts as lost; it speaks through stdin

    def heard(self, node, line):
        self.write("%s| %s" % (node.name, line))

    def write(self, line):
        # One write a line: lines of several threads do not mix.
        try:
            os.write(1, (line + "\n").encode("utf-8", "replace"))
        except BrokenPipeError:
            pass

    def begin(self, node, environment, **how):
        self.start(node, environment, **how)
        self.write(carried.report(node.name, pid=node.pid, host=socket.gethostname()))

    def listen(self, lines):
        """Obeys the launcher's lines from now on, which are read on a thread of their own."""

        def read():
            for line in lines:
                # Here, since a stdout that nobody reads may hold up the main thread.
                self.silent_at = time.monotonic() + SILENCE
                number = int(line.split()[1])
                if number:
                    self.events.put(number)
            self.events.put(CLOSED)

        self.silent_at = time.monotonic() + SILENCE
        threading.Thread(target=read, name="stdin", daemon=True).start()

    def run(self):
        """Waits until all nodes have ended. Returns the status of the first one that failed.

        A signal goes to the workers. The daemons see the job's end, and have time for that.
        """
        status = 0
        reported = 0
        stop_at = float("inf")  # when all are stopped
        while reported < len(self.nodes):
            event = self.next_event(min(60.0, min(stop_at, self.silent_at) - time.monotonic()))
            if time.monotonic() >= self.silent_at:
                event = CLOSED
            if time.monotonic() >= stop_at:
                self.kill_all()
                return status or 128 + signal.SIGTERM
            if isinstance(event, job_node.Node):
                reported += 1
                self.tell_end(event)
                status = status or job_node.exit_status(event.status)
                if status:
                    # The launcher stops the others now, unless the way to it is broken.
                    stop_at = min(stop_at, time.monotonic() + DAEMON_GRACE)
            elif event == CLOSED:
                self.kill_all()
                return 128 + signal.SIGTERM
            elif event is not None:
                self.told_to_stop = True
                stop_at = min(stop_at, time.monotonic() + DAEMON_GRACE)
                for node in self.running():
                    if node.role == "worker":
                        node.signal(event)
        if status and not self.told_to_stop:
            # The engine would stop all others now, before the one that they blame has ended.
            deadline = time.monotonic() + self.stop_grace
            while time.monotonic() < deadline and not self.next_event(deadline - time.monotonic()):
                pass
        return status

    def tell_end(self, node):
        for line in node.last_lines:  # why it could not be started
            self.heard(node, line)
        self.write(carried.report(node.name, status=node.status, stopped=self.told_to_stop))


def main():
    """Runs what the first line of stdin says, until it has ended or stdin closes."""
    agent = Agent()
    agent.catch_signals()
    # The client's address is the one by which this machine sees the launcher's.
    addresses = os.environ.get("SSH_CONNECTION", "").split()
    agent.write(
        carried.report(
            carried.AGENT,
            host=socket.gethostname(),
            launcher=addresses[0] if addresses else None,
            address=addresses[2] if addresses else None,
            port=network.free_port("0.0.0.0"),
        )
    )
    first = sys.stdin.readline()
    if not first.startswith("{"):  # the launcher ends before the job has begun
        return 128 + signal.SIGTERM
    what = json.loads(first)
    agent.listen(sys.stdin)
    shared = None
    if what["share_cores"]:
        servers = [node["role"] for node in what["nodes"]].count("server")
        shared = cores.share(os.sched_getaffinity(0), servers, len(what["nodes"]) - servers)
        if shared:
            agent.write("slimps: %s: %s" % (socket.gethostname(), cores.words(shared, servers)))
    # The folder has mode 0700 and is gone with the job.
    with tempfile.TemporaryDirectory(prefix="slimps-keys-") as key_folder:
        for number, node in enumerate(what["nodes"]):
            if "key" in node:
                node["environment"]["SLIMPS_KEY_FILE"] = keys.put(
                    key_folder, node["name"], node["key"]
                )
            agent.begin(
                job_node.Node(
                    node["name"], node["role"], node["command"], shared[number] if shared else None
                ),
                {**os.environ, **node["environment"]},
                cwd=what["folder"],
            )
        try:
            return agent.run()
        finally:
            agent.kill_all()
            agent.put_back()
