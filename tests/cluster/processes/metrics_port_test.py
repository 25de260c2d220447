# SPDX-License-Identifier: Apache-2.0
"""Servers and workers that export their own metrics, while the scheduler exports those of all."""

import os
import re
import shutil
import subprocess
import unittest

from eventually import eventually
from process_cluster import ProcessCluster

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = ["--model", "logistic", "--dataset", "digits", "--log_every", "1", "--epochs", "1000"]
# On so slow a link that pushes are worth compressing: a threshold is decided.
COMPRESS = ["--model", "mlp", "--dataset", "digits", "--epochs", "1000", "--compression", "1bit"]
COMPRESS += ["--pull_compression", "1bit", "--emulate_link", "100mbit"]
PORT = ["--metrics_port=0"]
SCHEDULER = PORT + ["--heartbeat_interval_ms=100"]
PROMTOOL = shutil.which("promtool")


def families_of(text):
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def catalogue():
    with open("watch/metrics.cc", encoding="utf-8") as text:
        return set(re.findall(r"\{\"(slimps_\w+)\",", text.read()))


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class MetricsPortTest(unittest.TestCase):
    def test_every_node_exports_its_own_and_the_scheduler_all(self):
        with ProcessCluster(2, 1, TRAIN + PORT, SCHEDULER, PORT) as cluster:
            cluster.wait_for_line("worker0", "step 2/")
            server = 'slimps_partition_rounds_total{role="server",rank="0"} '
            worker = 'slimps_pushes_total{role="worker",rank="1"} '
            self.assertIn(server, cluster.metrics_of("server0"))
            self.assertIn(worker, cluster.metrics_of("worker1"))
            for line in (server, worker):
                cluster.wait_for(lambda: line in cluster.metrics_of("scheduler"), line)

    @unittest.skipIf(PROMTOOL is None, "promtool is missing (Debian package prometheus)")
    def test_promtool_finds_nothing_to_say_about_any_metric_of_a_job(self):
        with ProcessCluster(2, 1, COMPRESS + PORT, SCHEDULER, PORT, snapshots=1) as cluster:
            names = ("scheduler", "server0", "worker0", "worker1")
            texts = {}

            def all_families():
                texts.update((name, cluster.metrics_of(name)) for name in names)
                return set().union(*map(families_of, texts.values()))

            eventually(lambda: catalogue() == all_families())
            self.assertEqual(catalogue(), all_families(), cluster.output("scheduler"))
            for name, text in texts.items():
                checked = subprocess.run(
                    [PROMTOOL, "check", "metrics"],
                    input=text.encode(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                self.assertEqual((0, b""), (checked.returncode, checked.stdout), name)

    def test_a_server_that_was_started_again_is_counted(self):
        with ProcessCluster(2, 1, COMPRESS, SCHEDULER, snapshots=1) as cluster:
            saved = 'slimps_snapshot_age_seconds{role="server",rank="0"} '
            cluster.wait_for(lambda: saved in cluster.metrics_of("scheduler"), saved)
            cluster.kill("server0")
            cluster.wait_for_end(["server0"])
            cluster.start_server(0)
            line = 'slimps_restarts_total{role="server",rank="0"} 1\n'
            cluster.wait_for(lambda: line in cluster.metrics_of("scheduler"), line)


if __name__ == "__main__":
    unittest.main()
