# SPDX-License-Identifier: Apache-2.0
"""The examples as `slimps launch` runs them."""

import io
import re
import unittest

from slimps_launch import job_launch

LAST = re.compile(
    r"worker0\| loss ([\d.]+),(?: accuracy ([\d.]+) %,)? (\d+) samples/s, "
    r"pushed (\d+) bytes \(ratio ([\d.]+)\), pulled (\d+) bytes"
)


def launch(*command, workers=2):
    """Launches a command as a job. Returns the exit status and the output of all processes."""
    out = io.StringIO()
    job = job_launch.Job(
        ["scheduler/slimps_scheduler"], ["server/slimps_server"], list(command), workers, 2
    )
    return job_launch.Launcher(job, out=out).run(), out.getvalue()


class Examples(unittest.TestCase):
    def trained(self, *command, **rest):
        status, said = launch(*command, **rest)
        self.assertEqual(0, status, said)
        found = LAST.findall(said)
        self.assertEqual(1, len(found), said)
        return [float(number) for number in found[0] if number], said

    def test_c_in_full_precision(self):
        (loss, speed, pushed, ratio, pulled), said = self.trained("examples/kvstore_c")
        self.assertIn("worker0| round 60: loss", said)
        self.assertLess(loss, 0.1)
        self.assertGreater(speed, 0)
        self.assertEqual((60 * 512 * 4, 1.0, 60 * 512 * 4), (pushed, ratio, pulled))

    def test_c_compressed_by_an_option_on_the_command_line(self):
        (loss, _, pushed, ratio, _), _ = self.trained(
            "examples/kvstore_c", "compression=1bit", "threshold=0"
        )
        self.assertLess(loss, 0.2)
        self.assertLess(pushed, 60 * 512 * 4 / 15)
        self.assertGreater(ratio, 15)

    def test_cpp_compresses_what_is_above_the_threshold(self):
        (loss, accuracy, _, pushed, ratio, pulled), _ = self.trained("examples/kvstore_cpp")
        self.assertLess(loss, 1.5)
        self.assertGreater(accuracy, 60)
        self.assertLess(pushed, pulled / 15)
        self.assertGreater(ratio, 15)

    def test_cpp_by_three_workers_in_full_precision(self):
        (_, _, _, pushed, ratio, pulled), _ = self.trained(
            "examples/kvstore_cpp", "compression=none", workers=3
        )
        self.assertEqual((1.0, pushed), (ratio, pulled))

    def test_a_wrong_option_is_named(self):
        for program in ("kvstore_c", "kvstore_cpp"):
            status, said = launch("examples/" + program, "threshhold=1")
            self.assertEqual(1, status, said)
            self.assertIn("no option \"threshhold\"; there are compression, threshold, ", said)


if __name__ == "__main__":
    unittest.main()
