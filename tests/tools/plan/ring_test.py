# SPDX-License-Identifier: Apache-2.0
"""DDP's iterations, with times that can be worked out by hand."""

import dataclasses
import unittest

import small_jobs
from plan import ring
from plan.terms import Tensor

MB = 250000  # elements of 1e6 bytes, which takes 1 ms on the test cluster's link


class RingTest(unittest.TestCase):
    def test_an_all_reduce_is_equation_1(self):
        self.assertAlmostEqual(2 * 3 / 4, ring.ring_ms(small_jobs.cluster(workers=4), 1e6))
        slow = small_jobs.cluster(workers=4, round_trip_ms=2.0)
        self.assertAlmostEqual(2 * 3 / 4 + 2 * 3 * 1.0, ring.ring_ms(slow, 1e6))
        self.assertEqual(0.0, ring.ring_ms(small_jobs.cluster(workers=1), 1e6))

    def test_buckets_overlap_the_backward_pass(self):
        # Two workers: an all-reduce of x bytes takes x / 1e6 ms. Both tensors fill a bucket.
        model = small_jobs.model(30 * MB, 30 * MB, forward=1.0, backward=20.0)
        cluster = small_jobs.cluster(workers=2)
        # The back tensor's 30 ms begin at 22, the front one's after them.
        self.assertAlmostEqual(22 + 30 + 30, ring.ddp_ms(model, cluster, 4.0))
        # In half precision each takes 15 ms, and the first is over when the second is ready at 42.
        self.assertAlmostEqual(42 + 15, ring.ddp_ms(model, cluster, 2.0))

    def test_small_tensors_wait_for_their_bucket(self):
        model = small_jobs.model(*[100] * 10, backward=1.0)
        cluster = small_jobs.cluster(workers=2)
        self.assertAlmostEqual(10 + 10 + 10 * 100 * 4 / 1e6, ring.ddp_ms(model, cluster, 4.0))

    def test_powersgd_reduces_its_factors_after_the_backward_pass(self):
        model = dataclasses.replace(
            small_jobs.model(1000 * 1000, 50),
            tensors=(Tensor("w", 1000000, (1000, 1000)), Tensor("b", 50, (50,))),
        )
        cluster = small_jobs.cluster(workers=2)
        factors = 4 * ring.RANK * 1000  # bytes of one factor
        encode = 1000 * 1000 * ring.POWERSGD_NS * 1e-6
        self.assertAlmostEqual(
            6 + encode + (factors + 200) / 1e6 + factors / 1e6, ring.powersgd_ms(model, cluster)
        )

    def test_without_shapes_there_is_no_powersgd(self):
        model = small_jobs.model(10)
        model = dataclasses.replace(model, tensors=(Tensor("a", 10),))
        self.assertIsNone(ring.powersgd_ms(model, small_jobs.cluster()))

    def test_a_matrix_too_small_for_its_factors_is_left_whole(self):
        self.assertIsNone(ring.factor_elements(Tensor("w", 64, (8, 8))))
        self.assertEqual(ring.RANK * 200, ring.factor_elements(Tensor("w", 10000, (100, 10, 10))))


if __name__ == "__main__":
    unittest.main()
