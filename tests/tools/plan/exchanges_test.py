# SPDX-License-Identifier: Apache-2.0
"""What codecs make of a tensor: phases, matrices, bytes; and what that does to an iteration."""

import dataclasses
import unittest

import small_jobs
from plan import exchanges
from plan.simulator import simulate
from plan.terms import Layer, Model, Partition, System, Tensor

SQUARE = Tensor("m", 1 << 20, (1 << 10, 1 << 10))
VECTOR = Tensor("v", 1 << 20, (1 << 20,))


def costs_with(spec, **changes):
    """Returns costs that know one more codec, "other"."""
    known = dataclasses.replace(small_jobs.codec(payload=0.5), spec=spec, **changes)
    return dataclasses.replace(small_jobs.FREE, codecs={**small_jobs.FREE.codecs, "other": known})


def exchange_of(spec, tensor=SQUARE, **changes):
    return exchanges.Codecs(System("s", push="other"), costs_with(spec, **changes)).push(tensor)


def model_of(*tensors):
    layers = tuple(Layer(index, 1, 1.0, 2.0) for index in range(len(tensors)))
    return Model("small", tensors, layers)


class PowerSgdTest(unittest.TestCase):
    def test_factors_go_in_two_phases_and_one_worker_sends_them(self):
        codec = exchange_of("powersgd:rank=4")
        self.assertEqual((4 << 10, 4 << 10), codec.keys(SQUARE))
        self.assertEqual(1, codec.senders(7))
        # Half of the rows: their part of P, and all of Q.
        half = Partition(0, 1 << 19, 0)
        self.assertEqual(32 + 4 * 4 * (512 + 1024), codec.payload_bytes(SQUARE, half))

    def test_a_tensor_is_cut_at_rows_into_as_many_parts_as_there_are_servers(self):
        codec = exchange_of("powersgd:rank=4")
        self.assertEqual(512 << 10, codec.cut(SQUARE, 2))
        self.assertEqual(342 << 10, codec.cut(SQUARE, 3))
        layout = exchanges.layout_of(
            model_of(SQUARE), 2, exchanges.Codecs(System("s", push="other"), costs_with("powersgd"))
        )
        self.assertEqual([1 << 19, 1 << 19], [part.elements for part in layout.partitions[0]])
        self.assertEqual([0, 1], [key.phase for key in layout.keys[0]])
        self.assertEqual({0, 1}, {key.server for key in layout.keys[0]})

    def test_what_is_no_worthwhile_matrix_travels_raw(self):
        for tensor in (VECTOR, Tensor("small", 64, (8, 8)), Tensor("thin", 8192, (4096, 2))):
            codec = exchange_of("powersgd:rank=4", tensor)
            self.assertIsInstance(codec, exchanges.Raw)
            self.assertEqual((), codec.keys(tensor))

    def test_phases_take_their_time_and_their_ways(self):
        system = System("s", push="other")
        free = costs_with("powersgd:rank=1", phases=small_jobs.linear(0.0))
        slow = costs_with("powersgd:rank=1", phases=small_jobs.linear(10 / SQUARE.elements))
        took = [
            simulate(model_of(SQUARE), system, small_jobs.cluster(**changes), costs).iteration_ms
            for costs, changes in ((free, {}), (slow, {}), (free, {"round_trip_ms": 6.0}))
        ]
        self.assertAlmostEqual(10.0, took[1] - took[0])
        # Each phase goes and comes back, as the payload and the weights do.
        self.assertAlmostEqual(18.0, took[2] - took[0])

    def test_small_keys_do_not_wait_for_company_that_never_comes(self):
        tensors = [Tensor("m%d" % index, 1 << 14, (128, 128)) for index in range(5)]
        costs = costs_with("powersgd:rank=1", phases=small_jobs.linear(1e-4))
        for workers in (1, 2):
            took = simulate(
                model_of(*tensors),
                System("s", push="other"),
                small_jobs.cluster(workers=workers),
                costs,
            )
            self.assertGreater(took.iteration_ms, 5 * 3)


class AtomoTest(unittest.TestCase):
    def test_its_payload_is_as_many_vectors_as_its_budget(self):
        codec = exchange_of("atomo")
        part = Partition(0, 1 << 18, 0)  # 256 rows
        self.assertEqual(32 + 4 * 3 * (256 + 1024), codec.payload_bytes(SQUARE, part))
        self.assertEqual((), codec.keys(SQUARE))

    def test_a_cut_row_counts(self):
        part = Partition(0, 1 << 18, 0, first=512)  # from the middle of a row
        self.assertEqual(257, exchanges.rows_of(SQUARE, part))

    def test_work_grows_with_the_shorter_side(self):
        codec = exchange_of("atomo", encode=small_jobs.linear(1.0))
        square = codec.encode_ms(Tensor("m", 1 << 18, (512, 512)), Partition(0, 1 << 18, 0))
        flat = codec.encode_ms(Tensor("m", 1 << 18, (32, 8192)), Partition(0, 1 << 18, 0))
        self.assertAlmostEqual(1 << 18, square, 3)
        self.assertAlmostEqual(square / 16 ** (2 / 3), flat, 3)

    def test_a_part_of_one_row_travels_whole(self):
        wide = Tensor("m", 8 << 20, (8, 1 << 20))
        codec = exchange_of("atomo:s=1", wide)
        self.assertEqual(
            32 + 4 * (1 + (1 << 18)), codec.payload_bytes(wide, Partition(0, 1 << 18, 0))
        )


class ThcTest(unittest.TestCase):
    def test_one_phase_has_a_norm_for_each_block(self):
        codec = exchange_of("thc", phases=small_jobs.linear(1e-6))
        self.assertEqual((256,), codec.keys(SQUARE))
        self.assertEqual((1,), codec.keys(Tensor("v", 5, (5,))))
        self.assertAlmostEqual(1.048576, codec.phase_ms(VECTOR))
        self.assertEqual(3, codec.senders(3))

    def test_further_payloads_cost_less_than_the_first(self):
        codec = exchange_of("thc", decode=small_jobs.linear(5.0), further=small_jobs.linear(1.0))
        self.assertAlmostEqual(8.0, codec.sum_ms(VECTOR, Partition(0, 1, 0), 4))
        plain = exchange_of("1bit", decode=small_jobs.linear(5.0))
        self.assertAlmostEqual(20.0, plain.sum_ms(VECTOR, Partition(0, 1, 0), 4))


class PushedTest(unittest.TestCase):
    def test_phases_count_as_pushed(self):
        model = model_of(SQUARE)
        system = System("s", push="other")
        thc = exchanges.pushed_bytes(model, system, 1, costs_with("thc"))
        plain = exchanges.pushed_bytes(model, system, 1, costs_with("1bit"))
        self.assertEqual(4 * 256, thc - plain)

    def test_options_are_found_in_a_spec(self):
        self.assertEqual("2", exchanges.option("powersgd:seed=3,rank=2", "rank", "4"))
        self.assertEqual("4", exchanges.option("powersgd", "rank", "4"))


if __name__ == "__main__":
    unittest.main()
