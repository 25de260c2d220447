# SPDX-License-Identifier: Apache-2.0
"""Servers and workers that export their own metrics, while the scheduler exports those of all."""

import os
import unittest

from process_cluster import ProcessCluster

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = ["--model", "logistic", "--dataset", "digits", "--log_every", "1", "--epochs", "1000"]


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class MetricsPortTest(unittest.TestCase):
    def test_every_node_exports_its_own_and_the_scheduler_all(self):
        flags = ["--metrics_port=0"]
        with ProcessCluster(
            2,
            1,
            TRAIN + flags,
            scheduler_flags=flags + ["--heartbeat_interval_ms=100"],
            server_flags=flags,
        ) as cluster:
            cluster.wait_for_line("worker0", "step 2/")
            server = 'slimps_partition_rounds_total{role="server",rank="0"} '
            worker = 'slimps_pushes_total{role="worker",rank="1"} '
            self.assertIn(server, cluster.metrics_of("server0"))
            self.assertIn(worker, cluster.metrics_of("worker1"))
            for line in (server, worker):
                cluster.wait_for(lambda: line in cluster.metrics_of("scheduler"), line)


if __name__ == "__main__":
    unittest.main()
