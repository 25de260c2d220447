# SPDX-License-Identifier: Apache-2.0
"""The meeting of a job's `slimps run` processes, which an engine has started.

Engines number their processes in ways of their own, and none says where rank 0 can listen. So each
process tells the host of the meeting where it is, and learns its worker's place when all have come.
Over TCP, a line of JSON each way; a part is one process:

    part: {"job": "17.0.0", "part": 3, "is_worker": true, "machine": "n2", "address": "10.77.0.2",
           "host": "10.77.0.1", "port": 4711}
    host: {"rank": 1, "size": 2, "local_rank": 0, ...}     a process_group.Member; {} for a server

Whoever reaches the host may speak there, as with torch's own store; lines that are something else
are ignored.
"""

import contextlib
import dataclasses
import json
import resource
import socket
import threading
import time

from slimps_launch import errors
from slimps_launch import network
from slimps_launch.placement import process_group

SAY_WAITING = 10.0  # seconds until a line names those that have not come
SECONDS_TO_CONNECT = 5.0  # and to take the answer
SECONDS_TO_SPEAK = 1.0  # in which a part has sent its line: the others wait
RETRY = 0.2  # seconds between two tries to reach the host, or to accept
OTHER_FILES = 256  # that a process has open beside its connections
LONGEST = 4096  # bytes of a line


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a part tells. Parts of one machine have the same `machine` and `address`."""

    job: str
    part: int
    is_worker: bool
    machine: str
    address: str  # its own, towards the host
    host: str  # the host's address, as it sees it
    port: int  # which it holds for rank 0

    @staticmethod
    def parse(line):
        """Returns the Hello of a line. ValueError: it is something else."""
        try:
            found = Hello(**json.loads(line))
        except TypeError as error:  # other fields, or no object
            raise ValueError(str(error)) from None
        for field in dataclasses.fields(Hello):
            if type(getattr(found, field.name)) is not field.type:
                raise ValueError("%s: expected a %s" % (field.name, field.type))
        network.is_loopback(found.address)
        network.is_loopback(found.host)
        if not (found.machine.isascii() and found.machine.isprintable()):
            raise ValueError("machine: expected a name")
        return found


def members(hellos):
    """Returns {part: its process_group.Member, or None for a server}.

    Workers are numbered machine by machine, in the order of the engine's first process of each.
    """
    machines = {}
    for hello in sorted(hellos, key=lambda hello: hello.part):
        machines.setdefault((hello.machine, hello.address), []).append(hello)
    workers = [
        (hello, local, len(group))
        for group in ([hello for hello in met if hello.is_worker] for met in machines.values())
        for local, hello in enumerate(group)
    ]
    first = workers[0][0]
    address = first.address
    if network.is_loopback(address):  # where the host's own name leads on its machine
        seen = [hello.host for hello in hellos if not network.is_loopback(hello.host)]
        address = seen[0] if seen else address
    found = dict.fromkeys(hello.part for hello in hellos)
    for rank, (hello, local, size) in enumerate(workers):
        found[hello.part] = process_group.Member(
            rank, len(workers), local, size, address, first.port
        )
    return found


class Host:
    """Receives the parts on a thread of its own until all `count` have come, and answers them.

    `address` is "" for all of this machine's; port 0 is any free one, which `port` has.
    LaunchError: nobody can listen there.
    """

    def __init__(self, address, port, job, count, say):
        self.job = job
        self.count = count
        self.say = say
        self.there = {}  # the Hello and the connection of each part
        _raise_files_limit(count + OTHER_FILES)
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((address, port))
            self.listener.listen(count)
        except OSError as error:
            self.listener.close()
            raise errors.LaunchError(
                "the processes of the job cannot meet at %s:%d: %s"
                % (address or "*", port, error.strerror)
            ) from None
        self.port = network.port_of(self.listener)
        threading.Thread(target=self._run, name="meeting", daemon=True).start()

    def _run(self):
        say_at = time.monotonic() + SAY_WAITING
        has_said = False  # why it cannot accept
        while len(self.there) < self.count:
            self.listener.settimeout(max(0.01, say_at - time.monotonic()) if say_at else None)
            try:
                connection = self.listener.accept()[0]
            except socket.timeout:
                say_at = None
                self._say_missing()
            except OSError as error:
                if not has_said:
                    self.say("slimps: where the processes meet: %s; trying again" % error.strerror)
                has_said = True
                time.sleep(RETRY)
            else:
                self._receive(connection)
        self.listener.close()  # before anybody uses the port otherwise
        found = members([hello for hello, _ in self.there.values()])
        for part, (_, connection) in self.there.items():
            answer = dataclasses.asdict(found[part]) if found[part] else {}
            with contextlib.suppress(OSError), connection:
                connection.settimeout(SECONDS_TO_CONNECT)
                connection.sendall(json.dumps(answer).encode("ascii") + b"\n")

    def _say_missing(self):
        missing = [str(part) for part in range(self.count) if part not in self.there]
        machines = sorted({hello.machine for hello, _ in self.there.values()})
        self.say(
            "slimps: after %.0f s %d of %d processes have not come: the engine's rank %s; the "
            "others are on: %s"
            % (
                SAY_WAITING,
                len(missing),
                self.count,
                ", ".join(missing),
                ", ".join(machines) or "nowhere",
            )
        )

    def _receive(self, connection):
        try:
            hello = Hello.parse(_line(connection, SECONDS_TO_SPEAK))
        except (OSError, RecursionError, ValueError):  # it has gone, or is no part of a job
            connection.close()
            return
        if hello.job != self.job or not 0 <= hello.part < self.count:
            connection.close()
            return
        self.there[hello.part] = (hello, connection)


def _raise_files_limit(wanted):
    """Lets this process have `wanted` open files, or as many as it may.

    No more: the programs that it starts inherit the limit, and some go through all numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _line(connection, seconds):
    """Returns the line that the other side sends.

    OSError, ValueError: it does not come as a whole in that time, or is too long.
    """
    deadline = time.monotonic() + seconds
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0.0:
            raise ValueError("no line in time")
        connection.settimeout(left)
        more = connection.recv(LONGEST)
        line += more
        if not more or len(line) > LONGEST:
            raise ValueError("no line")
    return line.decode("ascii")


class Visit:
    """A part's visit to the meeting, on a thread of its own, which calls `when_done` at its end.

    The address of the Hello `tell` is that on the way to the host, if it is "". The visit ends
    after `patience` seconds.
    """

    def __init__(self, host, port, tell, patience, when_done):
        self.done = False
        self.error = None  # why the host has not answered yet
        self.member = None  # its answer
        threading.Thread(
            target=self._run,
            args=((host, port), tell, time.monotonic() + patience, when_done),
            name="meeting",
            daemon=True,
        ).start()

    def _run(self, where, tell, deadline, when_done):
        try:
            while not self.done:
                try:
                    self.member = self._ask(where, tell, deadline)
                    self.done = True
                # Nobody is there, or has this name yet; or it is somebody else.
                except (OSError, RecursionError, TypeError, ValueError) as error:
                    self.error = error
                    self.done = time.monotonic() > deadline
                    time.sleep(RETRY)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.done = True
            when_done()

    def _ask(self, where, tell, deadline):
        with socket.create_connection(where, timeout=SECONDS_TO_CONNECT) as connection:
            self.error = None
            told = dataclasses.replace(
                tell,
                address=tell.address or connection.getsockname()[0],
                host=connection.getpeername()[0],
            )
            connection.sendall(json.dumps(dataclasses.asdict(told)).encode("ascii") + b"\n")
            answer = json.loads(_line(connection, max(RETRY, deadline - time.monotonic())))
        return process_group.Member(**answer) if answer else None
