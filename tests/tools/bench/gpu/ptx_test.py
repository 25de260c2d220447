# SPDX-License-Identifier: Apache-2.0
"""The kernels of slimps bench gpu as the build compiles them, where no GPU runs them."""

import re
import unittest

PTX = "tools/bench/gpu/levels_kernels.ptx"


class PtxTest(unittest.TestCase):
    def setUp(self):
        with open(PTX, encoding="ascii") as text:
            self.ptx = text.read()

    def test_the_entry_points_have_the_names_and_parameters_that_the_bench_calls(self):
        entries = re.findall(r"\.visible \.entry (\w+)\((.*?)\)", self.ptx, re.DOTALL)
        found = {name: re.findall(r"\.param \.(\w+)", rest) for name, rest in entries}
        self.assertEqual(
            {
                "slimps_encode_1bit": ["u64", "u64", "f32", "u32", "u64"],
                "slimps_encode_2bit": ["u64", "u64", "f32", "f32", "u32", "u64"],
            },
            found,
        )

    def test_the_arithmetic_is_the_cpus(self):
        self.assertIn("div.rn.f32", self.ptx)
        for other in ("fma.", ".ftz", ".approx"):  # fused, denormals to zero, not quite rounded
            self.assertNotIn(other, self.ptx)


if __name__ == "__main__":
    unittest.main()
