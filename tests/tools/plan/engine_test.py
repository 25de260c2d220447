# SPDX-License-Identifier: Apache-2.0
"""The parts of the simulator, with times that can be worked out by hand."""

import functools
import unittest

from plan.engine import Cores, Engine, Link, Threads


class BoundedEngine(Engine):
    """Fails instead of running for ever."""

    def at(self, time, action):
        if self._sequence == 100:
            raise AssertionError("events without end")
        super().at(time, action)


class CoresTest(unittest.TestCase):
    def setUp(self):
        self.engine = Engine()
        self.ended = {}

    def note(self, name):
        return lambda: self.ended.__setitem__(name, round(self.engine.now, 6))

    def test_tasks_up_to_the_cores_do_not_slow_each_other(self):
        cores = Cores(self.engine, 2)
        cores.run(3, self.note("a"))
        cores.run(5, self.note("b"))
        self.engine.run()
        self.assertEqual({"a": 3, "b": 5}, self.ended)

    def test_more_tasks_than_cores_share_them(self):
        cores = Cores(self.engine, 1)
        cores.run(2, self.note("a"))
        cores.run(4, self.note("b"))
        self.engine.run()
        # Half speed until a ends at 4; then b has 2 of 4 left, alone.
        self.assertEqual({"a": 4, "b": 6}, self.ended)
        self.assertAlmostEqual(6, cores.used)

    def test_a_task_that_comes_later_slows_the_rest_from_then_on(self):
        cores = Cores(self.engine, 1)
        cores.run(4, self.note("a"))
        self.engine.at(3, lambda: cores.run(1, self.note("b")))
        self.engine.run()
        self.assertEqual({"a": 5, "b": 5}, self.ended)

    def test_a_task_ends_even_where_the_clock_cannot_tell_its_time(self):
        # At 1e9 ms the clock's steps are 1e-7 ms, so 3e-8 ms never pass.
        engine = BoundedEngine()
        cores, ended = Cores(engine, 1), []
        for name, work in (("a", 3e-8), ("b", 1.03e-6)):
            engine.at(
                1e9, functools.partial(cores.run, work, functools.partial(ended.append, name))
            )
        engine.run()
        self.assertEqual(["a", "b"], ended)

    def test_a_task_without_work_ends_at_once_but_not_inside_the_call(self):
        cores = Cores(self.engine, 1)
        cores.run(0, self.note("a"))
        self.assertEqual({}, self.ended)
        self.engine.run()
        self.assertEqual({"a": 0}, self.ended)


class ThreadTest(unittest.TestCase):
    def test_the_highest_priority_goes_next_and_nothing_is_interrupted(self):
        engine, order = Engine(), []
        thread = Threads(Cores(engine, 4))
        for name, priority in (("running", 0), ("low", 1), ("high", 9), ("low too", 1)):
            thread.submit(priority, 2, lambda name=name: order.append((name, engine.now)))
        engine.run()
        self.assertEqual([("running", 2), ("high", 4), ("low", 6), ("low too", 8)], order)

    def test_several_threads_take_their_tasks_from_one_queue(self):
        engine, order = Engine(), []
        threads = Threads(Cores(engine, 4), 2)
        for name, priority, work in (("a", 0, 2), ("b", 0, 3), ("low", 1, 2), ("high", 9, 4)):
            threads.submit(priority, work, lambda name=name: order.append((name, engine.now)))
        self.assertEqual(2, len(threads))
        engine.run()
        self.assertEqual([("a", 2), ("b", 3), ("low", 5), ("high", 6)], order)


class LinkTest(unittest.TestCase):
    def setUp(self):
        self.engine = Engine()
        self.left = []

    def send(self, lane, name, size, priority=0):
        lane.send(priority, size, lambda end: self.left.append((name, self.engine.now, end)))

    def test_messages_leave_one_after_the_other(self):
        lane = Link(self.engine, 10.0).lane(ahead=0)
        self.send(lane, "a", 20)
        self.send(lane, "b", 30)
        self.engine.run()
        self.assertEqual([("a", 0, 2), ("b", 2, 5)], self.left)

    def test_priority_holds_beyond_what_is_handed_over(self):
        for ahead, order in ((0, "adcb"), (45, "abdc"), (1000, "abcd")):
            self.engine, self.left = Engine(), []
            lane = Link(self.engine, 10.0).lane(ahead)
            for name, priority in (("a", 0), ("b", 1), ("c", 2), ("d", 3)):
                self.send(lane, name, 30, priority)
            self.engine.run()
            self.assertEqual(order, "".join(name for name, _, _ in self.left), ahead)

    def test_senders_of_one_link_take_turns(self):
        link = Link(self.engine, 10.0)
        worker, server = link.lane(0), link.lane(0)
        for name in "abc":
            self.send(worker, name, 10)
        self.send(server, "X", 10)
        self.engine.run()
        self.assertEqual(["a", "X", "b", "c"], [name for name, _, _ in self.left])
        self.assertEqual(40, link.carried)

    def test_a_receiver_takes_a_message_while_it_is_sent(self):
        down = Link(self.engine, 10.0)
        self.assertEqual(2.0, down.receive(20, sent_at=2.0))
        # A second sender's message of the same time waits for the receiver's link.
        self.assertEqual(4.0, down.receive(20, sent_at=2.0))

    def test_an_unshaped_link_costs_nothing(self):
        lane = Link(self.engine, None).lane(0)
        self.send(lane, "a", 1e9)
        self.engine.run()
        self.assertEqual([("a", 0, 0)], self.left)


if __name__ == "__main__":
    unittest.main()
