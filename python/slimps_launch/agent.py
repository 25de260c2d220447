# SPDX-License-Identifier: Apache-2.0
"""Runs nodes of a job on this machine for a launcher on another one.

    slimps agent     # started by ssh; reads what to run from stdin

The first line of stdin is a JSON with `folder`, `share_cores`, `snapshots`, `trace` and `nodes`:
name, role, command, environment, a worker's place in the job (process_group.Member) as `member`,
and the text of a key file if the job has keys. With `trace` the nodes' parts of a trace go to the
launcher when all have ended. Further lines are signals: "signal 15", and "signal 0" every few
seconds, which says that the launcher is there; when the job is over, "end_if_stopped worker1"; and,
in a job whose processes may be started again (`snapshots`), "start server1". When the launcher is
not there, or stdin closes, the nodes end.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time

from slimps_launch import carried
from slimps_launch import job_folders
from slimps_launch import job_node
from slimps_launch import job_trace
from slimps_launch import pieces
from slimps_launch import processes
from slimps_launch import restarts
from slimps_launch.identity import keys
from slimps_launch.placement import cores
from slimps_launch.placement import process_group

CLOSED = -1  # the event of a stdin that has closed
SAID = ("error", "code", "cause")  # of a node's report
MOST_SAID = 512  # characters
CHUNK = 48 << 10  # bytes of a part that go into one line
SILENCE = 30.0  # seconds until a launcher that says nothing counts as lost: its machine may be


class Agent(processes.Processes):
    """Owned by the main thread."""

    caught = processes.Processes.caught + (carried.STOP,)
    told_to_stop = False
    folder = None  # where the nodes run; None: here
    restarts = False  # True: the launcher says which processes start again, and when the job ends
    silent_at = float("inf")  # when the launcher counts as lost; it speaks through stdin

    def __init__(self):
        super().__init__()
        self.writing = threading.Lock()  # a pipe mixes long lines of several threads

    def heard(self, node, stream, text, end):
        self.write(carried.line_of(node.name, stream, text, end))

    def write(self, line):
        with self.writing, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(1, line) :]

    def say(self, line):
        self.write(pieces.encoded(line) + b"\n")

    def begin(self, node, environment):
        node.environment = environment
        self.start(node, environment, cwd=self.folder)
        self.write(carried.report(node.name, pid=node.pid, host=socket.gethostname()))

    def listen(self, lines):
        """Obeys the launcher's lines from now on, which are read on a thread of their own."""

        def read():
            for line in lines:
                # Here, since a stdout that nobody reads may hold up the main thread.
                self.silent_at = time.monotonic() + SILENCE
                verb, what = line.split()
                if verb == "start":
                    self.events.put(what)
                elif verb == "end_if_stopped":
                    for node in self.nodes:  # srun tells each agent the names of all
                        if node.name == what:
                            node.end_if_stopped()
                elif int(what):
                    self.events.put(int(what))
            self.events.put(CLOSED)

        self.silent_at = time.monotonic() + SILENCE
        threading.Thread(target=read, name="stdin", daemon=True).start()

    def run(self):
        """Waits until all nodes have ended. Returns the status of the first one that failed.

        A signal goes to the workers. The daemons see the job's end, and have time for that.
        """
        failed = {}  # the statuses of nodes, but for those that were started again
        waits = list(self.nodes)  # for their ends
        stop_at = float("inf")  # when all are stopped
        parent = os.getppid()
        while waits or (self.restarts and failed and not self.told_to_stop):
            event = self.next_event(min(60.0, min(stop_at, self.silent_at) - time.monotonic()))
            if time.monotonic() >= self.silent_at:
                event = CLOSED
            if time.monotonic() >= stop_at:
                self.kill_all()
                return next(iter(failed.values()), 128 + signal.SIGTERM)
            if isinstance(event, job_node.Node):
                waits.remove(event)
                self.tell_end(event)
                if event.status != 0:
                    failed[event.name] = job_node.exit_status(event.status)
                if failed and not self.restarts:
                    # The launcher stops the others now, unless the way to it is broken.
                    stop_at = min(stop_at, time.monotonic() + processes.SAVE_GRACE)
            elif isinstance(event, str):
                failed.pop(event, None)
                waits.append(self.start_again(event))
            elif event == CLOSED or (self.told_to_stop and os.getppid() != parent):
                self.kill_all()
                return 128 + signal.SIGTERM
            elif event is not None and not self.told_to_stop:  # launch and the engine may say it
                self.told_to_stop = True
                self.signalled = signal.SIGTERM if event == carried.STOP else event
                stop_at = min(stop_at, time.monotonic() + processes.SAVE_GRACE)
                for node in self.workers_running():
                    node.pass_on(self.signalled)
        if failed and not self.told_to_stop:
            # The engine would stop all others now, before the one that they blame has ended.
            deadline = time.monotonic() + self.stop_grace
            while time.monotonic() < deadline and not self.next_event(deadline - time.monotonic()):
                pass
        return next(iter(failed.values()), 0)

    def start_again(self, name):
        """Starts the node of that name again, and returns it."""
        former = next(node for node in self.nodes if node.name == name)
        again = former.successor(self)
        self.begin(again, again.environment)
        return again

    def send_part(self, name, path):
        """Sends a node's part of a trace to the launcher, if it has left one."""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as part:
            at = 0
            while chunk := part.read(CHUNK):
                text = base64.b64encode(chunk).decode("ascii")
                self.write(carried.report(name, part=text, at=at))
                at += len(chunk)

    def tell_end(self, node):
        for line in node.last_lines:  # why it could not be started
            self.heard(node, 2, pieces.encoded(line), pieces.LINE)
        stopped = self.told_to_stop or node.stopped
        # Engines mix long lines, so this one goes without the traceback, which was printed.
        said = {key: node.report[key][:MOST_SAID] for key in SAID if key in node.report}
        self.write(carried.report(node.name, status=node.status, stopped=stopped, report=said))


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
            port=agent.hold_port(),  # for a process group
        )
    )
    first = sys.stdin.readline()
    if not first.startswith("{"):  # the launcher ends before the job has begun
        return 128 + signal.SIGTERM
    what = json.loads(first)
    agent.listen(sys.stdin)
    shared = [None] * len(what["nodes"])
    if what["share_cores"]:
        servers = [node["role"] for node in what["nodes"]].count("server")
        shared = cores.of_machine(
            servers,
            len(what["nodes"]) - servers,
            lambda words: agent.say("slimps: %s: %s" % (socket.gethostname(), words)),
        )
    agent.folder = what["folder"]
    with contextlib.ExitStack() as until_the_end:
        key_folder = until_the_end.enter_context(job_folders.folder("keys"))
        base = None  # of the nodes' parts of a trace
        if what["trace"]:
            traces = until_the_end.enter_context(job_folders.folder("trace"))
            base = os.path.join(traces, "part.json")
        of_server = []
        if what["snapshots"] is not None:
            agent.restarts = True
            snapshots = restarts.Snapshots(**what["snapshots"])
            of_server = snapshots.of_server(until_the_end.enter_context(snapshots.folder()))
        for number, node in enumerate(what["nodes"]):
            if "key" in node:
                node["environment"]["SLIMPS_KEY_FILE"] = keys.put(
                    key_folder, node["name"], node["key"]
                )
            if base:
                node["environment"][job_trace.VARIABLE] = base
            command = node["command"] + (of_server if node["role"] == "server" else [])
            environment = {**os.environ, **node["environment"]}
            if "member" in node:
                member = process_group.Member(**node["member"])
                environment.update(process_group.variables(member, environment))
            agent.begin(
                job_node.Node(node["name"], node["role"], command, shared[number]), environment
            )
        try:
            return agent.run()
        finally:
            agent.kill_all()
            agent.put_back()
            for node in what["nodes"] if base else []:
                agent.send_part(node["name"], job_trace.part_path(base, node["name"]))
