# SPDX-License-Identifier: Apache-2.0
"""Processes that may open few files: they raise what they may, or say at once what is missing."""

import os
import subprocess
import unittest

from process_cluster import ProcessCluster

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = ["--model", "logistic", "--dataset", "digits", "--epochs", "1"]
FEW = ["prlimit", "--nofile=48:48"]
RAISABLE = ["prlimit", "--nofile=20:4096"]
MISSING = r"too few file descriptors: expected \d+ .*got a hard limit of 48: raise it \(ulimit -Hn"


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class FewDescriptorsTest(unittest.TestCase):
    def test_a_soft_limit_is_raised_by_every_role(self):
        with ProcessCluster(2, 2, TRAIN, worker_prefix=RAISABLE, server_prefix=RAISABLE) as job:
            ends = job.wait_for_all()
            self.assertEqual({0}, set(ends.values()), "".join(map(job.output, ends)))

    def test_a_scheduler_says_what_it_lacks(self):
        command = FEW + ["scheduler/slimps_scheduler", "--num_workers=1", "--num_servers=1"]
        command += ["--port=0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(2, ended.returncode, ended.stderr)
        self.assertRegex(ended.stderr, "slimps_scheduler: " + MISSING)

    def test_a_server_says_what_it_lacks(self):
        with ProcessCluster(1, 1, TRAIN, server_prefix=FEW) as job:
            self.assertEqual({"server0": 2}, job.wait_for_end(["server0"]))
            self.assertRegex(job.output("server0"), "slimps_server: " + MISSING)

    def test_a_worker_says_what_it_lacks(self):
        with ProcessCluster(1, 1, TRAIN, worker_prefix=FEW) as job:
            self.assertEqual({"worker0": 1}, job.wait_for_end(["worker0"]))
            self.assertRegex(job.output("worker0"), MISSING)


if __name__ == "__main__":
    unittest.main()
