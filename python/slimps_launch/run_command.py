# SPDX-License-Identifier: Apache-2.0
"""slimps run: this process's part of a job whose processes an engine has started.

The role follows from the engine's variables (engine.py). The process of rank 0 starts the
scheduler. The others learn its address
    under torchrun from torchrun's TCPStore;
    from --scheduler HOST:PORT;
    under srun from the list of nodes and the job's number;
    from DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT, which slimps launch sets: it runs the scheduler.
But under torchrun, which numbers workers itself, all processes first meet there
(placement/meeting.py): the scheduler starts at the port of the meeting when that is over.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
import zlib

from slimps_launch import agent
from slimps_launch import engine
from slimps_launch import errors
from slimps_launch import job_launch
from slimps_launch import job_node
from slimps_launch import job_output
from slimps_launch import network
from slimps_launch import pieces
from slimps_launch import processes
from slimps_launch import torch_store
from slimps_launch import worker_command
from slimps_launch.placement import cores
from slimps_launch.placement import meeting
from slimps_launch.placement import process_group

# Set by slimps launch, which shows the lines and says why a job failed: a JSON with its host name,
# its PATH, which mpirun may change, and the meeting's job and port.
CARRIED = "SLIMPS_CARRIED"
SAY_WAITING = 10.0  # seconds until a line says what is waited for


def address_and_port(text):
    """Returns (host, port) of "HOST:PORT". ArgumentTypeError: it is something else."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError('expected HOST:PORT, got "%s"' % text)
    return host, int(port)


def slurm_port(start):
    """Returns the scheduler's port: the same for all processes of a step, another for the next."""
    return 20000 + zlib.crc32(start.encode("utf-8")) % 10000


class Quiet(job_node.Node):
    """A process whose lines are for this command, not for the terminal."""

    answer = None  # the last line of its stdout

    def hear(self, stream, text, end, launcher):
        self.remember(stream, text)
        if stream == job_output.STDOUT:
            self.answer = pieces.decoded(text)


class Part:
    """The place of a Launcher that runs one engine process's part of the job."""

    def __init__(self, seat, plan, options, command):
        self.seat = seat
        self.plan = plan
        self.options = options
        self.address = None
        self.member = None  # the worker's place among the others, once it is known
        # The store needs torch, which the Python of the user's command has.
        self.python = command[0] if worker_command.is_python(command) else sys.executable

    @property
    def name(self):
        if self.plan.worker is not None:
            return "worker%d" % (self.member.rank if self.member else self.plan.worker)
        return "server%d" % self.plan.server

    # ---- the scheduler ---------------------------------------------------------------------------

    def find_scheduler(self, launcher):
        """Returns the scheduler's port, with its address in `address`."""
        if self.seat.engine == "torchrun":
            return self._meet_by_store(launcher)
        self.address, port = self._known()
        count = self.seat.size or self.plan.workers + self.plan.servers
        job = "%s of %d" % (self.seat.start, count)
        if not self.plan.scheduler:
            self.meet(launcher, launcher.say, port, job)
            return port
        if self.seat.nodes > 1:
            self.address = self._reached(self.address, network.resolve(self.address))
        own = self.address if self.address == "127.0.0.1" else ""
        host = meeting.Host(own, port, job, count, launcher.say)
        self.meet(launcher, launcher.say, host.port, job)
        return launcher.announce_scheduler(port)

    def _known(self):
        """Returns the scheduler's (host, port), which all processes know without asking."""
        if self.options.scheduler:
            return self.options.scheduler
        if self.seat.size == 1:
            return self._own_address(), 0
        if self.seat.engine == "srun":
            nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ["SLURM_JOB_NODELIST"]
            host = "127.0.0.1" if self.seat.nodes == 1 else engine.first_host(nodes)
            return host, slurm_port(self.seat.start)
        raise errors.LaunchError(
            "%s does not say where the scheduler is: give --scheduler HOST:PORT, where HOST is "
            "that of rank 0 and PORT is free there" % self.seat.engine
        )

    def meet(self, runner, say, port, job):
        """Learns the worker's place from all processes of `job`, which meet at `address`.

        LaunchError: they do not come. Stop: a signal comes first.
        """
        interface = self.options.interface or os.environ.get("DMLC_INTERFACE")
        hello = meeting.Hello(
            job=job,
            part=self.seat.rank,
            is_worker=self.plan.worker is not None,
            # A pod is a machine of its own, even with its host's name.
            machine=str(self.seat.rank)
            if self.seat.engine == "Kubernetes"
            else socket.gethostname(),
            address=network.interface_address(interface) if interface else "",
            host="",
            port=runner.hold_port(),
        )
        visit = meeting.Visit(
            self.address, port, hello, self.options.join_timeout_s, lambda: runner.events.put(None)
        )
        runner.wait_until(lambda: visit.done, SAY_WAITING, 1.0)
        if visit.error:
            say("slimps: %s waits for %s:%d: %s" % (self.name, self.address, port, visit.error))
        runner.wait_until(lambda: visit.done, float("inf"), 1.0)
        if visit.error:
            raise errors.LaunchError(
                "%s does not learn its rank at %s:%d, where all processes of the job meet: %s"
                % (self.name, self.address, port, visit.error)
            )
        self.member = visit.member

    def _meet_by_store(self, launcher):
        """As find_scheduler, where torchrun has numbered the workers and has a store for them."""
        known = self.options.scheduler
        if self.plan.scheduler:
            self.address, port = known or (self._own_address(), 0)
            self._wait_for_name(launcher)
            port = launcher.announce_scheduler(port)
            if not known and self.seat.size > 1:
                self._ask_store(launcher, "set", "%s:%d" % (self.address, port))
        else:
            self.address, port = known or self._from_store(launcher)
            self._wait_for_name(launcher)
        self.member = process_group.Member(
            self.seat.rank,
            self.seat.size,
            self.seat.local_rank,
            self.seat.local_size,
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
        )
        return port

    def _own_address(self):
        if self.options.interface:
            return network.interface_address(self.options.interface)
        if self.seat.nodes == 1:
            return "127.0.0.1"
        address = network.route_address(os.environ["MASTER_ADDR"])
        return self._reached("MASTER_ADDR=" + os.environ["MASTER_ADDR"], address) and address

    def _reached(self, name, address):
        """Returns `name`, or the interface's address where the name is of the loopback here.

        LaunchError: other nodes do not reach this one there, and no interface is given.
        """
        if not network.is_loopback(address):
            return name
        if self.options.interface:
            return network.interface_address(self.options.interface)
        raise errors.LaunchError(
            "%s is %s here, where other nodes do not reach this one: give --interface NAME"
            % (name, address)
        )

    def _wait_for_name(self, launcher):
        """Waits until the scheduler's host has an address: a pod's name comes with the pod.

        Under torchrun alone: the meeting waits for the name, too, and for longer.
        """

        def known():
            try:
                return network.resolve(self.address)
            except errors.LaunchError:
                return None

        launcher.wait_until(known, SAY_WAITING, 0.2)
        if not known():
            launcher.say(
                "slimps: %s waits for the name %s, the scheduler's host" % (self.name, self.address)
            )
            launcher.wait_until(known, self.options.join_timeout_s, 0.5)
            network.resolve(self.address)

    def _ask_store(self, launcher, verb, *value):
        """Returns what torch_store.py prints. Stop: it failed."""
        node = Quiet(
            "rendezvous",
            "store",
            [self.python, torch_store.__file__, verb, self.seat.start + "/scheduler", *value],
        )
        launcher.start_node(node, launcher.job.environment)
        begun = time.monotonic()
        while node.status is None:
            event = launcher.next_event(SAY_WAITING)
            if isinstance(event, int):
                raise processes.Stop(event)
            if node.status is None and time.monotonic() - begun >= SAY_WAITING:
                begun = float("inf")
                launcher.say(
                    "slimps: %s waits for %s at torchrun's store %s:%s"
                    % (
                        self.name,
                        "the others" if value else "rank 0, which starts the scheduler,",
                        os.environ["MASTER_ADDR"],
                        os.environ["MASTER_PORT"],
                    )
                )
        if node.status != 0:
            raise processes.Stop(failed=[node])
        launcher.nodes.remove(node)
        return node.answer

    def _from_store(self, launcher):
        """Returns the scheduler's (host, port) as rank 0 has published it.

        After a change of members without a restart the store may still have the last scheduler's,
        which no longer listens.
        """
        deadline = time.monotonic() + self.options.join_timeout_s
        while True:
            host, port = address_and_port(self._ask_store(launcher, "get"))
            try:
                socket.create_connection((host, port), timeout=SAY_WAITING).close()
                return host, port
            except OSError as error:
                if time.monotonic() > deadline:
                    raise errors.LaunchError(
                        "no scheduler at %s:%d, where rank 0 said it is: %s"
                        % (host, port, error.strerror or error)
                    ) from None

    # ---- the others ------------------------------------------------------------------------------

    def start(self, launcher, port):
        for name, role, command, own, shared in self.nodes(launcher.job):
            launcher.start_here(name, role, command, port, own, shared)

    def nodes(self, job):
        """Returns (name, role, command, variables, cores) of what runs here."""
        plan = self.plan
        own_cores = self.cores_of(job)
        nodes = []
        if plan.server is not None:
            command = job.server_of(plan.server)
            nodes.append(("server%d" % plan.server, "server", command, {}, own_cores[0]))
        if self.member is not None:
            own = process_group.variables(self.member, {**os.environ, **job.environment})
            nodes.append((self.name, "worker", job.worker, own, own_cores[1]))
        return nodes

    def cores_of(self, job):
        """Returns the cores of the server and of the worker that run here, each may be None.

        Engines with a task per process have given each its cores already, as torchrun may have.
        """
        bound = os.sched_getaffinity(0) != os.sched_getaffinity(os.getppid())
        if self.seat.engine != "torchrun" or bound or not job.share_cores:
            return None, None

        def say(words):
            if self.plan.server is not None:
                print("slimps: node %d: %s" % (self.seat.node, words), flush=True)

        sets = cores.of_machine(1, self.seat.local_size, say)
        return sets[0], sets[1 + self.seat.local_rank]


def run_carried(part, job):
    """Runs this part for a `slimps launch` that started the engine. Returns the exit status."""
    runner = agent.Agent()
    runner.catch_signals()
    told = json.loads(os.environ.pop(CARRIED))
    os.environ["PATH"] = told["path"]
    part.address, port = os.environ["DMLC_PS_ROOT_URI"], os.environ["DMLC_PS_ROOT_PORT"]
    try:
        if part.address == "127.0.0.1" and told["host"] != socket.gethostname():
            raise errors.LaunchError(
                "%s runs on %s, and the scheduler listens at 127.0.0.1 of %s: give slimps launch "
                "--interface NAME" % (part.name, socket.gethostname(), told["host"])
            )
        if part.seat.engine == "srun":  # which gives its stdin to all tasks
            runner.listen(sys.stdin)
        part.meet(runner, runner.say, told["port"], told["job"])
        for name, role, command, own, shared in part.nodes(job):
            variables = {
                **os.environ,
                **own,
                **job.variables(role, part.address, port),
                **job.key_variables(name),
            }
            runner.begin(job_node.Node(name, role, command, shared), variables)
        return runner.run()
    except processes.Stop as stop:
        return 128 + (signal.SIGTERM if stop.number == agent.CLOSED else stop.number)
    finally:
        runner.kill_all()
        runner.put_back()


def run(options, command, job, environment, make_logs):
    """Runs this process's part. `job` has the commands; its counts are set here.

    LaunchError: no engine has started this process, or what it says makes no job.
    """
    seat = engine.seat(environment)
    if seat is None:
        raise errors.LaunchError(
            "neither torchrun, srun, mpirun nor Kubernetes has started this process; to start a "
            "job on this machine: slimps launch --workers N --servers S -- COMMAND"
        )
    plan = engine.plan(seat, options.workers, options.servers)
    job.workers, job.servers = plan.workers, plan.servers
    if job.keys:
        job.keys.check(plan.workers, plan.servers)
    if plan.workers > 1:
        job.end_grace = float("inf")  # the daemons here wait for workers elsewhere
    part = Part(seat, plan, options, command)
    if seat.engine != "Kubernetes":  # where this may be the first process
        job_node.end_with_parent()
    if CARRIED in environment:
        return run_carried(part, job)
    if seat.engine == "torchrun" and environment.get("DMLC_PS_ROOT_URI"):
        raise errors.LaunchError(
            "DMLC_PS_ROOT_URI is set, so a scheduler runs already: leave out slimps run"
        )
    logs = make_logs(options, ".restart%d" % seat.restart if seat.restart else "")
    return job_launch.Launcher(job, verbose=options.verbose, place=part, logs=logs).run()
