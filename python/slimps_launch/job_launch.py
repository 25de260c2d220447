# SPDX-License-Identifier: Apache-2.0
"""Runs one job: a scheduler, servers and workers, each a process of its own.

The scheduler starts beside the launcher on a free port, which it writes to a file. Then the place
starts servers and workers, which get the scheduler's address through DMLC_* variables. When all
workers have ended well, the scheduler and the servers end by themselves. When a process fails, and
cannot be started again (restarts.py), the launcher stops everything and names the failure. If the
job has a checkpoint to go back to, all of it then starts anew.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time

from slimps_launch import blame
from slimps_launch import carried
from slimps_launch import job_folders
from slimps_launch import job_node
from slimps_launch import job_output
from slimps_launch import network
from slimps_launch import processes
from slimps_launch import restarts
from slimps_launch.places import here

KEEP = 3.0  # seconds between two words to the agents of nodes
JOIN_TIMEOUT = "SLIMPS_JOIN_TIMEOUT_S"  # variables that the programs of a job read
TIMEOUT = "SLIMPS_TIMEOUT_S"
PATIENCE = 1.0  # seconds in which stdout must take a line while the job needs this thread


class Job:
    """What to run. Commands are lists; all workers run the command `worker`."""

    def __init__(self, scheduler, server, worker, workers, servers, environment=None):
        self.scheduler = scheduler
        self.server = server
        self.worker = worker
        self.workers = workers
        self.servers = servers
        self.environment = dict(environment or {})
        self.share_cores = False
        self.keys = None  # a keys.Folder, or None: a job without keys
        self.restarts = 0  # how often what died is started again, in all
        self.snapshots = None  # a restarts.Snapshots, if there are restarts
        self.kept = None  # the folder of the running job's snapshots
        self.worker_timeout = None  # seconds until it goes on without a worker; None: never
        self.roster_timeout = None  # seconds until all nodes have come; None: join_timeout
        self.checkpoints = None  # a checkpoint.Folder, to which the whole job may go back
        self.settle = 0.5  # seconds to wait after a failure for failures of others
        self.end_grace = 30.0  # seconds for the daemons to end after the workers or one daemon
        self.save_grace = processes.SAVE_GRACE  # seconds for the workers to save after a signal
        self.stop_grace = 5.0  # seconds from SIGTERM to SIGKILL
        self.join_timeout = 600  # seconds until all have come

    def set_timeouts(self, join, call):
        """Sets join_timeout, and the seconds that a worker's call waits for others that live."""
        self.join_timeout = join
        self.environment.update({JOIN_TIMEOUT: str(join), TIMEOUT: str(call)})

    def server_of(self, rank):
        """Returns the command of one server, which asks for its rank as workers do."""
        flags = self.snapshots.of_server(self.kept) if self.kept else []
        return self.remote_server(rank) + flags

    def remote_server(self, rank):
        """As server_of, for another machine, which has a folder for snapshots of its own."""
        return self.server + ["--wanted_rank", str(rank)]

    def scheduler_command(self):
        flags = ["--ends_from_stdin"]
        flags += self.snapshots.of_scheduler(self.kept) if self.kept else []
        if self.worker_timeout:
            flags += ["--worker_timeout", str(self.worker_timeout)]
        if self.roster_timeout:
            flags += ["--roster_timeout_s", "%d" % self.roster_timeout]
        return self.scheduler + flags

    def key_variables(self, name):
        """Returns the variables by which the process `name`, as "worker1", finds its keys."""
        return self.keys.variables(name) if self.keys else {}

    def variables(self, role, address, port):
        """Returns the variables by which a process of this role finds the job."""
        return {
            "DMLC_ROLE": role,
            "DMLC_PS_ROOT_URI": address,
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_NUM_WORKER": str(self.workers),
            "DMLC_NUM_SERVER": str(self.servers),
            **self.environment,
        }


class Launcher(processes.Processes):
    """Starts a job's processes, shows their output and waits for their end."""

    def __init__(self, job, show=None, verbose=False, out=None, place=None, logs=None):
        super().__init__(job.stop_grace)
        self.job = job
        self.place = place or here.Place()
        self.verbose = verbose
        self.output = job_output.Output(
            out or sys.stdout, out or sys.stderr, show or (lambda node: True), logs
        )
        self.port = None  # the scheduler's, once it listens
        self.interrupted = None  # the number of the signal that ended the job
        self.again = None  # a restarts.Restarts, while it runs

    def run(self):
        """Runs the job, more than once if it goes back to a checkpoint. Returns its exit status."""
        self.again = restarts.Restarts(self)
        self.catch_signals()
        try:
            while (status := self._run_once()) is None:
                self.nodes = []
                self.again.begin()
            return status
        finally:
            self.kill_all()
            self.put_back()
            for done, error in self.output.unsaid.items():
                sys.stderr.write(
                    "slimps: some lines of the job could not be %s: %s\n" % (done, error.strerror)
                )

    def _run_once(self):
        """Runs the job. Returns its exit status, or None if it is to begin anew."""
        snapshots = self.job.snapshots
        with snapshots.folder() if snapshots else contextlib.nullcontext() as self.job.kept:
            try:
                self.place.start(self, self.place.find_scheduler(self))
                return self._wait()
            except processes.Stop as stop:
                if stop.failed:  # at its start, which would fail again
                    return self._report_failure(stop.failed)
                return self._forward(stop.number)

    # ---- starting --------------------------------------------------------------------------------

    def start_scheduler(self, port=0):
        """Starts the scheduler at the place's address and returns its port. Stop: it does not."""
        with job_folders.folder("port") as folder:
            port_file = os.path.join(folder, "port")
            node = self.start_here(
                "scheduler",
                "scheduler",
                self.job.scheduler_command() + ["--port", str(port), "--port_file", port_file],
                port,
            )
            # The file is moved into place as a whole, without an event: look again every 10 ms.
            self.wait_until(
                lambda: os.path.exists(port_file), self.job.join_timeout, 0.01, fatal=[node]
            )
            if os.path.exists(port_file):
                with open(port_file, encoding="ascii") as text:
                    self.port = int(text.read())
                return self.port
        node.last_lines.append("it does not listen after %d s" % self.job.join_timeout)
        node.kill()
        node.process.wait()
        node.status = node.process.returncode
        raise processes.Stop(failed=[node])

    def announce_scheduler(self, port=0):
        """As start_scheduler, and says where it listens."""
        port = self.start_scheduler(port)
        name = network.interface_of(network.resolve(self.place.address))
        self.say(
            "slimps: the scheduler listens at %s:%d%s"
            % (self.place.address, port, " (interface %s)" % name if name else "")
        )
        return port

    def start_here(self, name, role, command, port, own=None, cores=None):
        """Starts a process of the job on this machine, with the variables `own` too."""
        node = job_node.Node(name, role, command, cores)
        self.start_node(
            node,
            {
                **(own or {}),
                **self.job.variables(role, self.place.address, port),
                **self.job.key_variables(name),
            },
        )
        return node

    def start_node(self, node, environment, **how):
        node.environment = environment
        if node.role == "scheduler":
            how["stdin"] = subprocess.PIPE
        if self.verbose:
            self.say("slimps: %s: %s" % (node.name, " ".join(node.command)))
        if self.output.logs is not None:
            for heard in [node] + node.inner():
                self.output.logs.open(heard.name)
        self.start(node, {**os.environ, **environment}, **how)
        if node.role == "scheduler":
            self._tell_ends(self.all_nodes())

    def next_event(self, seconds):
        event = super().next_event(seconds)
        if isinstance(event, job_node.Node):
            self._tell_ends([event])
        return event

    def _tell_ends(self, nodes):
        """Tells the scheduler which workers have ended by themselves: it knows who said goodbye.

        A worker that failed ends the job, or is started again.
        """
        schedulers = [node for node in self.running() if node.role == "scheduler"]
        for node in nodes:
            for scheduler in schedulers if node.status == 0 and node.role == "worker" else ():
                scheduler.tell("ended %s %d" % (node.name[len(node.role) :], node.pid))

    # ---- output ----------------------------------------------------------------------------------

    def heard(self, node, stream, text, end):
        node.hear(stream, text, end, self)

    def say(self, line):
        """Prints one line. Thread-safe."""
        self.output.say(line)

    def _complain(self, line):
        self.output.say(line, job_output.STDERR)

    def _print(self, seconds, function, *arguments):
        """Calls what prints, but goes on after `seconds`: nobody may read stdout. None: waits."""
        printer = threading.Thread(target=function, args=arguments, daemon=True)
        printer.start()
        printer.join(seconds)

    # ---- waiting ---------------------------------------------------------------------------------

    def all_nodes(self):
        """Returns the processes here, and the nodes that some of them carry."""
        return self.nodes + [inner for node in self.nodes for inner in node.inner()]

    def _wait(self):
        """Waits until the job ends: well, by a failure, or by a signal. Returns the status."""
        ended = []
        deadline = None
        nodes = self.all_nodes()
        while len(ended) < len(nodes):
            for node in self.running():
                node.keep()
            for node in nodes if self._is_over() else ():
                if node.role == "worker" and node.status is None:
                    node.end_if_stopped()
            self.again.start_due()
            left = KEEP if deadline is None else deadline - time.monotonic()
            event = self.next_event(max(0.0, min(left, KEEP, self.again.seconds_left())))
            if isinstance(event, int):
                return self._forward(event)
            if event is None:
                if deadline is None or time.monotonic() < deadline:
                    continue
                if not self._is_over():
                    return self._report_late(nodes, ended)
                deadline = None
                names = ", ".join(node.name for node in nodes if node.status is None)
                self.say("slimps: the job is over, but %s goes on; waiting for its end" % names)
                continue
            if event in ended or event not in nodes:  # or of the job before it began anew
                continue
            if event.status != 0 and (started := self.again.take(event)) is not None:
                nodes[nodes.index(event)] = started
                continue
            ended.append(event)
            if isinstance(event, carried.Carrier):
                lost = event.lost()
                ended += lost
                begun = any(node.pid is not None for node in lost)
                self.again.death = self.again.death or begun
                if not lost:  # its nodes have said how they ended
                    continue
            if event.status != 0 and event.stopped and self._is_over():
                self.say("slimps: %s was stopped, and the job has ended without it" % event.name)
            elif event.status != 0 and not self.again.goes_on_without(event):
                return self._end_of_failure(self._settle([event]))
            # The daemons end by themselves when the last worker has said goodbye. So the deadline
            # for the other daemons begins when the first daemon or the last worker has ended. When
            # all daemons have ended, a worker may go on without them, to evaluate or save.
            left = [node.role for node in nodes if node not in ended and node.role != "carrier"]
            if not left:
                deadline = None
                for node in self.running():
                    node.say_no_more()  # an agent that starts nodes again waits for that
            elif deadline is None and (event.role != "worker" or "worker" not in left):
                deadline = time.monotonic() + self.job.end_grace
        return 0

    def _is_over(self):
        """True if the daemons of this launcher have ended well: the job has."""
        nodes = self.all_nodes()
        daemons = [node.status for node in nodes if node.role in ("server", "scheduler")]
        return bool(daemons) and all(status == 0 for status in daemons)

    def _report_late(self, nodes, ended):
        late = [node for node in nodes if node not in ended]
        if any(node.role == "worker" for node in late):
            return self._report_failure([node for node in ended if node.role != "worker"])
        self._print(
            PATIENCE,
            self.say,
            "slimps: all workers have ended, but %s did not follow within %.0f s; they wait for "
            "workers to join. Does the program make a store (in Python slimps.kv.create, "
            "DistributedOptimizer or CommHookState)?"
            % (", ".join(node.name for node in late), self.job.end_grace),
        )
        return 1

    def _settle(self, failed):
        """Waits for further failures and returns all that failed.

        Others may learn of a failure, and end, before the process that caused it has ended.
        """
        begun = time.monotonic()
        while True:
            nodes = self.all_nodes()
            late = any(blame.is_late(node, nodes) for node in nodes)
            left = begun + (self.job.stop_grace if late else self.job.settle) - time.monotonic()
            if left <= 0:
                return failed
            event = self.next_event(min(left, self.job.settle))
            # A carrier fails because its nodes do; they say more.
            if event in nodes and event.status != 0 and event.role != "carrier":
                failed.append(event)

    def _end_of_failure(self, failed):
        """Stops the job. Returns None if it goes back to a checkpoint, or else reports."""
        report = self._report(failed)
        may_go_back = self.again.may_go_back(failed)
        self.kill_all()
        found = self.again.way_back() if may_go_back and not self.signalled else None
        if found is None:
            self.put_back()  # nothing is left to stop, and stdout may take its time
            return report.of()
        self.say("slimps: the job cannot go on: %s" % report.why())
        self.say(
            "slimps: all of it goes back to its last checkpoint, %s (round %d); %d more restarts "
            "are left" % (found.folder, found.rounds, self.again.left)
        )
        self.job.environment.update(self.job.checkpoints.variables(found))
        return None

    def _report_failure(self, failed):
        """Stops the job, says why it failed, and returns the exit status."""
        report = self._report(failed) if failed else None
        self.kill_all()
        self.put_back()
        return report.of() if report else 1

    def _report(self, failed):
        return blame.Report(self.all_nodes(), failed, self._complain, self.output.show)

    # ---- stopping --------------------------------------------------------------------------------

    def _forward(self, number):
        """Passes a signal on to the workers and waits for the end of the job, as the others see it.

        So workers can save, with the servers still there. Ends all when no worker is left and one
        went without a goodbye, after the grace time, or when a second signal comes. Returns the
        exit status.
        """
        self.interrupted = number
        self._print(
            PATIENCE, self.say, "slimps: %s: stopping the job" % job_node.signal_name(number)
        )
        for node in self.workers_running():
            node.pass_on(number)
        workers = [node for node in self.all_nodes() if node.role == "worker"]
        deadline = time.monotonic() + self.job.save_grace
        while self.running() and time.monotonic() < deadline:
            if isinstance(self.next_event(deadline - time.monotonic()), int):
                break
            died = any(node.status is None or node.status < 0 for node in workers)
            if died and not self.workers_running():
                break
        self.kill_all()
        return 128 + number
