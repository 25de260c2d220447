# SPDX-License-Identifier: Apache-2.0
"""What the processes of a job learn where they meet, and the port that is held for them."""

import contextlib
import dataclasses
import errno
import json
import queue
import socket
import time
import unittest
from unittest import mock

from eventually import eventually
from slimps_launch import engine
from slimps_launch import errors
from slimps_launch import network
from slimps_launch import processes
from slimps_launch import run_command
from slimps_launch.placement import meeting
from slimps_launch.placement import process_group

HOST = "10.0.0.254"


def hello(part, machine, is_worker=True, address=None, host=HOST):
    address = address or "10.0.0.%d" % machine
    return meeting.Hello("job", part, is_worker, "n%d" % machine, address, host, 9000 + part)


class MembersTest(unittest.TestCase):
    def places(self, hellos):
        """Returns (rank, local rank, local size) of each part, None for a server."""
        found = meeting.members(hellos)
        return [
            found[part]
            and dataclasses.astuple(found[part])[0::2][:1]
            + (found[part].local_rank, found[part].local_size)
            for part in sorted(found)
        ]

    def test_workers_are_numbered_machine_by_machine_wherever_the_engine_put_them(self):
        block = [hello(part, part // 2) for part in range(4)]
        cyclic = [hello(part, part % 2) for part in range(4)]
        self.assertEqual([(0, 0, 2), (1, 1, 2), (2, 0, 2), (3, 1, 2)], self.places(block))
        self.assertEqual([(0, 0, 2), (2, 0, 2), (1, 1, 2), (3, 1, 2)], self.places(cyclic))

    def test_servers_have_no_number_and_uneven_machines_their_own_counts(self):
        parts = [hello(0, 1, is_worker=False), hello(1, 2), hello(2, 1), hello(3, 2)]
        self.assertEqual([None, (1, 0, 2), (0, 0, 1), (2, 1, 2)], self.places(parts))

    def test_machines_of_one_name_are_told_apart_by_their_addresses(self):
        parts = [hello(0, 1, address="10.0.0.1"), hello(1, 1, address="10.0.0.2")]
        self.assertEqual([(0, 0, 1), (1, 0, 1)], self.places(parts))

    def test_rank_0_s_machine_has_the_master_with_the_port_that_it_holds(self):
        parts = [hello(0, 2, is_worker=False), hello(1, 1), hello(2, 2)]
        found = meeting.members(parts)
        self.assertEqual(0, found[2].rank)
        for part in (1, 2):
            self.assertEqual(("10.0.0.2", 9002), (found[part].address, found[part].port))

    def test_a_host_that_is_127_0_1_1_to_itself_is_told_as_others_see_it(self):
        parts = [hello(0, 1, address="127.0.1.1", host="127.0.1.1"), hello(1, 2, host="10.0.0.1")]
        self.assertEqual("10.0.0.1", meeting.members(parts)[1].address)
        alone = [hello(0, 1, address="127.0.0.1", host="127.0.0.1")]
        self.assertEqual("127.0.0.1", meeting.members(alone)[0].address)


class MeetingTest(unittest.TestCase):
    def setUp(self):
        self.said = []
        self.done = queue.SimpleQueue()

    def host(self, count):
        return meeting.Host("127.0.0.1", 0, "job", count, self.said.append)

    def visit(self, host, part, patience=60.0, **other):
        told = dataclasses.replace(hello(part, 1), address="", host="", **other)
        return meeting.Visit("127.0.0.1", host.port, told, patience, lambda: self.done.put(part))

    def test_all_learn_their_places_when_the_last_has_come(self):
        host = self.host(3)
        visits = [self.visit(host, 2), self.visit(host, 0, is_worker=False)]
        self.assertTrue(eventually(lambda: len(host.there) == 2))
        self.assertFalse(any(visit.done for visit in visits))
        visits.append(self.visit(host, 1))
        self.assertEqual({0, 1, 2}, {self.done.get(timeout=60) for _ in visits})
        self.assertEqual([1, None, 0], [visit.member and visit.member.rank for visit in visits])
        self.assertEqual(("127.0.0.1", 9001), (visits[0].member.address, visits[0].member.port))
        with network_listener(host.port):  # the scheduler's now
            pass

    def test_what_is_no_part_of_the_job_is_ignored(self):
        host = self.host(2)
        good = dataclasses.asdict(hello(0, 1))
        for line in (
            b"\xff\n",
            b"[]\n",
            b"{}\n",
            b"x" * 9000,
            b"[" * 4000 + b"\n",
            b"GET / HTTP/1.1\r\n\r\n",
            json.dumps({**good, "job": "another"}).encode() + b"\n",
            json.dumps({**good, "part": 2}).encode() + b"\n",
            json.dumps({**good, "part": -1}).encode() + b"\n",
            json.dumps({**good, "part": True}).encode() + b"\n",
            json.dumps({**good, "port": "1"}).encode() + b"\n",
            json.dumps({**good, "address": "x"}).encode() + b"\n",
            json.dumps({**good, "machine": "\ud800"}).encode() + b"\n",
        ):
            where = ("127.0.0.1", host.port)
            with self.subTest(line[:40]), socket.create_connection(where, timeout=60) as to:
                to.sendall(line)
                with contextlib.suppress(OSError):  # the host may have hung up already
                    to.shutdown(socket.SHUT_WR)
                try:
                    self.assertEqual(b"", to.recv(1))
                except ConnectionResetError:  # it has not read all
                    pass
        self.assertEqual({}, host.there)
        visits = [self.visit(host, 0), self.visit(host, 1)]
        self.assertEqual({0, 1}, {self.done.get(timeout=60) for _ in visits})

    def test_who_speaks_too_slowly_is_left(self):
        with mock.patch.object(meeting, "SECONDS_TO_SPEAK", 0.2):
            host = self.host(1)
            with socket.create_connection(("127.0.0.1", host.port)) as to:
                with self.assertRaises(OSError):
                    for _ in range(1200):  # 60 s, and shorter than the longest line
                        to.sendall(b"x")
                        time.sleep(0.05)
        self.visit(host, 0)
        self.assertEqual(0, self.done.get(timeout=60))

    def test_without_files_for_connections_it_says_so_once_and_goes_on(self):
        full = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
        accept = socket.socket.accept

        def accepted(listener):
            if full:
                raise full.pop()
            return accept(listener)

        with mock.patch.object(socket.socket, "accept", accepted):
            self.visit(self.host(1), 0)
            self.assertEqual(0, self.done.get(timeout=60))
        self.assertEqual(
            ["slimps: where the processes meet: Too many open files; trying again"], self.said
        )

    def test_there_may_be_a_file_for_each_part(self):
        for count, limit in ((2, 258), (900, 1000)):
            with mock.patch.object(meeting, "resource") as resource:
                resource.getrlimit.return_value = (100, 1000)
                self.host(count)
            resource.setrlimit.assert_called_once_with(resource.RLIMIT_NOFILE, (limit, 1000))

    def test_a_host_that_answers_something_else_or_a_mistake_of_ours_ends_the_visit(self):
        with network_listener(0) as other:
            visit = self.visit(mock.Mock(port=network.port_of(other)), 0, patience=0.0)
            with other.accept()[0] as connection:
                connection.sendall(b"[" * 4000 + b"\n")
                self.done.get(timeout=60)
        self.assertIsInstance(visit.error, RecursionError)
        with mock.patch.object(meeting.Visit, "_ask", side_effect=KeyError("mine")), mock.patch(
            "threading.excepthook"
        ):
            visit = self.visit(mock.Mock(port=1), 0)
            self.done.get(timeout=60)
        self.assertTrue(visit.done)
        self.assertIsInstance(visit.error, KeyError)

    def test_who_has_not_come_is_named(self):
        with mock.patch.object(meeting, "SAY_WAITING", 0.1):
            host = self.host(3)
            self.visit(host, 1)
            self.assertTrue(eventually(lambda: self.said))
        self.assertRegex(
            self.said[0], "after 0 s . of 3 processes have not come: the engine's rank 0, .*are on:"
        )
        for part in (0, 2):
            self.visit(host, part)
        self.assertEqual({0, 1, 2}, {self.done.get(timeout=60) for _ in range(3)})

    def test_a_host_that_is_not_there_ends_the_visit_with_its_error(self):
        with network.hold_port() as held:
            visit = self.visit(mock.Mock(port=network.port_of(held)), 0, patience=0.0)
            self.done.get(timeout=60)
        self.assertEqual(errno.ECONNREFUSED, visit.error.errno)

    def test_a_port_in_use_is_named(self):
        with network_listener(0) as other:
            port = network.port_of(other)
            with self.assertRaisesRegex(errors.LaunchError, "meet at 127.0.0.1:%d: Addr" % port):
                meeting.Host("127.0.0.1", port, "job", 1, self.said.append)


class PartTest(unittest.TestCase):
    def part(self, rank):
        seat = engine.Seat("mpirun", rank, 2, 0, 1, rank, 2, start="job")
        options = mock.Mock(interface=None, join_timeout_s=60)
        part = run_command.Part(seat, engine.plan(seat), options, ["true"])
        part.address = "127.0.0.1"
        self.runner = processes.Processes()
        self.addCleanup(self.runner.put_back)
        return part

    def test_a_signal_ends_the_wait_for_the_others(self):
        host = meeting.Host("127.0.0.1", 0, "job", 2, print)
        part = self.part(0)
        self.runner.events.put(15)
        with self.assertRaises(processes.Stop) as stop:
            part.meet(self.runner, print, host.port, "job")
        self.assertEqual(15, stop.exception.number)

    def test_a_name_may_come_while_it_waits_as_a_pod_s_does(self):
        host = meeting.Host("127.0.0.1", 0, "job of 2", 2, print)
        part = self.part(1)
        part.options.scheduler = ("pod-0.digits", host.port)
        self.runner.say = print
        unknown = [socket.gaierror(socket.EAI_NONAME, "unknown") for _ in range(3)]
        known = socket.getaddrinfo

        def resolved(name, *more):
            if name == "pod-0.digits" and unknown:
                raise unknown.pop()
            return known("127.0.0.1", *more)

        with mock.patch.object(socket, "getaddrinfo", resolved):
            told = dataclasses.replace(hello(0, 1), job="job of 2")
            meeting.Visit("127.0.0.1", host.port, told, 60.0, lambda: None)
            self.assertEqual(host.port, part.find_scheduler(self.runner))
        self.assertEqual([], unknown)
        self.assertEqual((1, 2), (part.member.rank, part.member.size))

    def test_a_host_that_stays_away_is_named_with_what_it_was_asked_for(self):
        part = self.part(1)
        part.options.join_timeout_s = 0
        with network.hold_port() as held:
            port = network.port_of(held)
            with self.assertRaisesRegex(
                errors.LaunchError, "worker1 does not learn its rank at 127.0.0.1:%d.*refus" % port
            ), mock.patch("builtins.print"):
                part.meet(self.runner, print, port, "job")


def network_listener(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


class VariablesTest(unittest.TestCase):
    MEMBER = process_group.Member(3, 4, 3, 4, "127.0.1.1", 4711)

    def test_they_are_torchrun_s_and_name_the_interface(self):
        self.assertEqual(
            {
                "DMLC_WORKER_ID": "3",
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "3",
                "LOCAL_WORLD_SIZE": "4",
                "MASTER_ADDR": "127.0.1.1",
                "MASTER_PORT": "4711",
                "GLOO_SOCKET_IFNAME": "lo",
                "NCCL_SOCKET_IFNAME": "=lo",
            },
            process_group.variables(self.MEMBER, {}),
        )

    def test_the_loopback_is_no_interface_towards_other_machines(self):
        one_of_two = dataclasses.replace(self.MEMBER, local_rank=1, local_size=2)
        for given in ({}, {"DMLC_INTERFACE": "lo"}):
            found = process_group.variables(one_of_two, given)
            self.assertEqual([], [name for name in found if name.endswith("_SOCKET_IFNAME")])

    def test_the_user_s_interfaces_come_first(self):
        given = {"DMLC_INTERFACE": "eth7", "NCCL_SOCKET_IFNAME": "ib"}
        found = process_group.variables(self.MEMBER, given)
        self.assertEqual("eth7", found["GLOO_SOCKET_IFNAME"])
        self.assertEqual("ib", found["NCCL_SOCKET_IFNAME"])
        elsewhere = dataclasses.replace(self.MEMBER, address="no.such.host.invalid")
        self.assertNotIn("GLOO_SOCKET_IFNAME", process_group.variables(elsewhere, {}))


class HeldPortTest(unittest.TestCase):
    def test_nobody_else_gets_it_but_who_reuses_it_can_listen(self):
        with network.hold_port() as held, socket.socket() as other:
            port = network.port_of(held)
            with self.assertRaises(OSError) as refused:
                other.bind(("127.0.0.1", port))
            self.assertEqual(errno.EADDRINUSE, refused.exception.errno)
            with network_listener(port), socket.create_connection(("127.0.0.1", port)):
                pass


if __name__ == "__main__":
    unittest.main()
