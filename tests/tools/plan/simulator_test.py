# SPDX-License-Identifier: Apache-2.0
"""Whole iterations, with times that can be worked out by hand."""

import dataclasses
import unittest

import small_jobs
from plan.engine import Cores, Engine, Link
from plan.exchanges import Codecs, layout_of
from plan.node import Node, Process
from plan.server_model import ServerModel
from plan.simulator import simulate
from plan.terms import Partition, System, Tensor

RAW = System("fp32")
MEBI = 1 << 18  # elements of one partition of 1 MiB, which takes 1.048576 ms
WIRE = 1.048576
MS = 1e6 / MEBI  # nanoseconds an element: 1 ms for that partition
UNSHAPED = {"bits_per_second": None}
BOTH = System("1bit", push="1bit", pull="1bit")
COPIES = dataclasses.replace(small_jobs.FREE, copy_ns=MS / 4)


def costs_of(name, phases_ns=None, spec="", **codec):
    """Returns costs in which only this codec's work counts."""
    made = dataclasses.replace(
        small_jobs.codec(payload=0.125, **codec),
        spec=spec,
        phases=None if phases_ns is None else small_jobs.linear(phases_ns * 1e-6),
    )
    return dataclasses.replace(small_jobs.FREE, codecs={**small_jobs.FREE.codecs, name: made})


def iteration(model, system=RAW, costs=small_jobs.FREE, **cluster):
    return simulate(model, system, small_jobs.cluster(**cluster), costs).iteration_ms


class WaitingTest(unittest.TestCase):
    def test_one_partition_goes_and_comes_back_after_the_backward_pass(self):
        self.assertAlmostEqual(3 + 2 * WIRE, iteration(small_jobs.model(MEBI)), 2)

    def test_a_link_that_costs_nothing_leaves_compute(self):
        model = small_jobs.model(MEBI, MEBI)
        self.assertAlmostEqual(6.0, iteration(model, bits_per_second=None))

    def test_a_round_trip_delays_push_and_answer_by_half_each(self):
        self.assertAlmostEqual(
            3 + 2 * WIRE + 5, iteration(small_jobs.model(MEBI), round_trip_ms=5.0), 2
        )

    def test_a_long_backward_pass_hides_the_back_layers(self):
        # The last layer's gradient goes and comes back while the first layer's is computed.
        model = small_jobs.model(MEBI, MEBI, backward=4.0)
        self.assertAlmostEqual(10 + 2 * WIRE, iteration(model), 2)

    def test_two_partitions_use_both_directions_at_once(self):
        # Push, push and its answer at once, answer.
        self.assertAlmostEqual(3 + 3 * WIRE, iteration(small_jobs.model(2 * MEBI)), 2)

    def test_a_step_ends_with_its_last_weights_whatever_the_order(self):
        model = small_jobs.model(MEBI, MEBI, MEBI, MEBI, forward=4.0, backward=0.0)
        self.assertAlmostEqual(5 * WIRE + 16, iteration(model), 1)
        unordered = System("fp32", prioritise=False)
        self.assertAlmostEqual(5 * WIRE + 16, iteration(model, unordered), 1)

    def test_a_payload_is_what_the_codec_makes(self):
        model = small_jobs.model(MEBI)
        self.assertAlmostEqual(3 + 2 * WIRE / 32, iteration(model, BOTH), 2)
        pushes = System("1bit", push="1bit")
        self.assertAlmostEqual(3 + WIRE + WIRE / 32, iteration(model, pushes), 2)

    def test_below_its_threshold_a_tensor_stays_raw(self):
        model = small_jobs.model(MEBI)
        above = System("1bit", push="1bit", pull="1bit", threshold=4 * MEBI + 1)
        self.assertAlmostEqual(3 + WIRE + WIRE / 32, iteration(model, above), 2)

    def test_work_of_every_stage_counts_once(self):
        costs = dataclasses.replace(
            costs_of("1bit", encode_ns=MS, decode_ns=MS), copy_ns=MS / 4, step_ns=MS
        )
        # Encode; sum; step; encode the change; add the change; write the parameter.
        took = iteration(small_jobs.model(MEBI), BOTH, costs, **UNSHAPED)
        self.assertAlmostEqual(3 + 6, took)

    def test_a_message_costs_both_ends(self):
        costs = dataclasses.replace(small_jobs.FREE, message_ms=0.25)
        took = iteration(small_jobs.model(MEBI), RAW, costs, bits_per_second=None)
        self.assertAlmostEqual(3 + 4 * 0.25, took)

    def test_items_of_one_message_cost_both_ends(self):
        costs = dataclasses.replace(small_jobs.FREE, item_ms=0.01)
        model = small_jobs.model(*[64] * 50, forward=0.0, backward=0.0)
        took = simulate(model, RAW, small_jobs.cluster(bits_per_second=None), costs)
        self.assertAlmostEqual(4 * 50 * 0.01, took.cpu_ms)


class ThreadsTest(unittest.TestCase):
    """A node has two cores, so a worker has two threads of each kind."""

    def test_two_partitions_are_encoded_and_merged_at_a_time(self):
        for work, way in (("encode_ns", "push"), ("decode_ns", "pull")):
            costs, system = costs_of("1bit", **{work: MS}), System("1bit", **{way: "1bit"})
            for partitions, cores, took in ((1, 2, 1), (2, 2, 1), (3, 2, 2), (2, 1, 2)):
                model = small_jobs.model(partitions * MEBI)
                found = iteration(model, system, costs, cores=cores, **UNSHAPED)
                self.assertAlmostEqual(3 + took, found, msg=way)

    def test_two_tensors_take_a_phase_at_a_time_and_one_takes_its_own_in_turn(self):
        costs = costs_of("thc", spec="thc", phases_ns=MS, encode_ns=MS)
        thc = System("thc", push="thc")
        # A phase, then the payloads of all of the tensor's partitions.
        for elements, cores, took in (
            ((MEBI,), 2, 2),
            ((MEBI, MEBI), 2, 2),
            ((MEBI, MEBI), 1, 4),
            ((2 * MEBI,), 2, 4),
        ):
            model = small_jobs.model(*elements, forward=0.0, backward=0.0)
            self.assertAlmostEqual(took, iteration(model, thc, costs, cores=cores, **UNSHAPED))

    def test_the_rounds_of_a_tensor_take_their_phases_in_turn(self):
        costs = costs_of("powersgd", spec="powersgd:rank=4", phases_ns=0.0)
        system = System("powersgd", push="powersgd", backup=True)
        matrix = Tensor("t0", MEBI, (512, 512))
        model = dataclasses.replace(small_jobs.model(MEBI), tensors=(matrix,))
        # Two phases go and come back. The payload of the round before travels meanwhile.
        took = iteration(model, system, costs, round_trip_ms=10.0, **UNSHAPED)
        self.assertAlmostEqual(20.0, took)

    def test_what_travels_raw_is_copied_by_the_caller_unless_it_is_lent(self):
        model = small_jobs.model(2 * MEBI)
        # Copied whole; then two partitions are merged, and written, at a time.
        self.assertAlmostEqual(3 + 2 + 1 + 1, iteration(model, RAW, COPIES, **UNSHAPED))
        above = System("1bit", push="1bit", threshold=8 * MEBI + 1)
        self.assertAlmostEqual(3 + 1 + 1 + 1, iteration(model, above, COPIES, **UNSHAPED))


class StepEndTest(unittest.TestCase):
    def test_weights_are_written_while_backward_goes_on(self):
        # The second layer's are there at 6, and written at 7; the first one's at 10, and 11.
        model = small_jobs.model(MEBI, MEBI, backward=4.0)
        self.assertAlmostEqual(11.0, iteration(model, BOTH, COPIES, **UNSHAPED))
        backup = dataclasses.replace(BOTH, backup=True)  # whose step writes them itself
        self.assertAlmostEqual(10.0, iteration(model, backup, COPIES, **UNSHAPED))

    def test_two_threads_write_a_large_parameter(self):
        model = small_jobs.model(3 * MEBI)
        self.assertAlmostEqual(3 + 2, iteration(model, BOTH, COPIES, **UNSHAPED))
        self.assertAlmostEqual(3 + 3, iteration(model, BOTH, COPIES, cores=1, **UNSHAPED))

    def test_a_step_ends_when_its_gradients_are_encoded(self):
        backup = System("1bit+backup", push="1bit", backup=True)
        costs = costs_of("1bit", encode_ns=5 * MS)
        self.assertAlmostEqual(3 + 5, iteration(small_jobs.model(MEBI), backup, costs, **UNSHAPED))
        # What phases read is a copy.
        costs = costs_of("thc", spec="thc", phases_ns=MS, encode_ns=MS)
        backup = System("thc+backup", push="thc", backup=True)
        self.assertAlmostEqual(3, iteration(small_jobs.model(MEBI), backup, costs, **UNSHAPED))


class ManyTest(unittest.TestCase):
    def test_two_workers_of_one_server_share_its_link(self):
        # Two pushes come over it; then two answers leave. The worker that is answered first is one
        # message ahead, so that its next push comes while the other's answer leaves.
        took = iteration(small_jobs.model(MEBI), workers=2)
        self.assertAlmostEqual(3 + 3 * WIRE, took, 2)

    def test_what_stays_on_a_node_crosses_no_link(self):
        took = iteration(small_jobs.model(MEBI), together=True)
        self.assertAlmostEqual(3.0, took)

    def test_two_servers_halve_what_each_link_carries(self):
        model = small_jobs.model(8 * MEBI)
        one = simulate(model, RAW, small_jobs.cluster(workers=2), small_jobs.FREE)
        two = simulate(model, RAW, small_jobs.cluster(workers=2, servers=2), small_jobs.FREE)
        self.assertAlmostEqual(2 * 8 * MEBI * 4, one.wire_bytes, -4)
        self.assertAlmostEqual(8 * MEBI * 4, two.wire_bytes, -4)
        self.assertLess(two.iteration_ms, one.iteration_ms)

    def test_one_machine_for_all_nodes_is_slower_than_a_machine_each(self):
        costs = dataclasses.replace(small_jobs.FREE, copy_ns=4.0)
        model = small_jobs.model(4 * MEBI)
        apart = iteration(model, RAW, costs, workers=4, cores=1)
        together = iteration(model, RAW, costs, workers=4, cores=1, one_machine=True)
        self.assertGreater(together, 1.5 * apart)


class BackupTest(unittest.TestCase):
    def test_communication_hides_behind_the_next_iteration(self):
        model = small_jobs.model(MEBI, backward=20.0)
        self.assertAlmostEqual(21.0, iteration(model, System("fp32+backup", backup=True)), 6)

    def test_a_slow_link_sets_the_pace(self):
        # Push and answer of one partition follow each other; one round of lag.
        model = small_jobs.model(16 * MEBI, forward=0.1, backward=0.1)
        took = iteration(model, System("fp32+backup", backup=True))
        self.assertAlmostEqual(16 * WIRE, took, 0)
        self.assertLess(took, iteration(model))

    def test_small_keys_of_two_rounds_may_share_a_message(self):
        # Phases are so slow that the first tensors' next round queues behind this one. A round
        # that was counted as another would leave the job waiting, which simulate refuses.
        costs = dataclasses.replace(
            costs_of("thc", spec="thc", phases_ns=50.0, encode_ns=50.0), message_ms=0.2
        )
        model = small_jobs.model(*[2000] * 40, forward=0.0, backward=0.0)
        system = System("thc", push="thc", backup=True)
        took = iteration(model, system, costs, workers=2, servers=2)
        self.assertGreater(took, 40 * 2000 * 50e-6)

    def test_the_local_step_counts(self):
        costs = dataclasses.replace(small_jobs.FREE, local_ns=MS)
        system = System("fp32+backup", backup=True)
        # Two threads share the step of one tensor.
        took = iteration(small_jobs.model(MEBI), system, costs, **UNSHAPED)
        self.assertAlmostEqual(3.5, took)


class ServerTest(unittest.TestCase):
    def test_rounds_are_applied_in_order(self):
        engine = Engine()
        cluster = small_jobs.cluster()
        node = Node(Cores(engine, 2), Link(engine, None), Link(engine, None), 1e6)
        model = small_jobs.model(100)
        codecs = Codecs(RAW, small_jobs.FREE)
        server = ServerModel(0, node, cluster, RAW, small_jobs.FREE, model, codecs)
        worker = Asker(node, cluster)
        server.connect([worker])
        partition = Partition(0, 100, 0)
        server.requested(0, partition, 1)
        server.pushed([(partition, 2)])
        engine.run()
        self.assertEqual([], worker.versions)
        server.pushed([(partition, 1)])
        engine.run()
        self.assertEqual([1], worker.versions)
        server.requested(0, partition, 2)
        engine.run()
        self.assertEqual([1, 2], worker.versions)


class Asker(Process):
    def __init__(self, node, cluster):
        super().__init__(node, cluster, small_jobs.FREE)
        self.versions = []

    def answered(self, partition, version):
        self.versions.append(version)


class PiecesTest(unittest.TestCase):
    def test_partitions_go_to_the_server_with_the_fewest_bytes(self):
        model = small_jobs.model(100, 2 * MEBI + 5, 300)
        places = [
            [(part.elements, part.server) for part in parts]
            for parts in layout_of(model, 2).partitions
        ]
        # By size: MEBI, MEBI, 300, 100, 5; equal servers in the order of their ranks.
        self.assertEqual([[(100, 1)], [(MEBI, 0), (MEBI, 1), (5, 1)], [(300, 0)]], places)

    def test_small_tensors_travel_together_unless_told_not_to(self):
        # While the large tensor is encoded, the small ones queue up behind it.
        slow = small_jobs.codec(encode_ns=1e6 / MEBI, payload=0.125)
        costs = dataclasses.replace(
            small_jobs.FREE, codecs={**small_jobs.FREE.codecs, "1bit": slow}, message_ms=0.1
        )
        model = small_jobs.model(*[64] * 50, 4 * MEBI, forward=0.0, backward=0.0)
        both = System("1bit", push="1bit")
        alone = dataclasses.replace(both, coalesce=False)
        unshaped = {"bits_per_second": None}
        self.assertLess(
            iteration(model, both, costs, **unshaped) + 3.0,
            iteration(model, alone, costs, **unshaped),
        )

    def test_a_codec_without_costs_is_refused(self):
        with self.assertRaises(KeyError):
            iteration(small_jobs.model(MEBI), System("x", push="unknown"))


if __name__ == "__main__":
    unittest.main()
