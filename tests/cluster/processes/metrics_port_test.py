# SPDX-License-Identifier: Apache-2.0
"""Servers and workers that export their own metrics, while the scheduler exports those of all."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
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
STEPS = 40
SHORT = TRAIN + ["--max_steps", str(STEPS), "--simulate_compute_ms", "100"]
FIRST_WEIGHTS = 4 * (64 * 10 + 10)  # bytes, which come before training
PROMTOOL = shutil.which("promtool")


def families_of(text):
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def sum_of(text, name, direction):
    """Returns the sum of a metric's samples with this direction."""
    samples = re.findall(r"^%s\{(.*)\} (\S+)$" % name, text, re.MULTILINE)
    return sum(float(value) for labels, value in samples if 'direction="%s"' % direction in labels)


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

    def test_what_is_exported_last_is_what_the_summary_has(self):
        folder = tempfile.TemporaryDirectory(prefix="slimps-test-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "summary.json")
        patient = ["--heartbeat_timeout_ms=60000"]
        worker = SHORT + PORT + ["--summary_json", path]
        with ProcessCluster(1, 1, worker, patient) as cluster:
            # The worker trains on alone, but cannot leave before the scheduler lets it go.
            cluster.wait_for_line("worker0", "step 1/")
            cluster.kill("scheduler", signal.SIGSTOP)
            cluster.wait_for_line("worker0", "step %d/" % STEPS)
            exported = cluster.metrics_of("worker0")
            cluster.kill("scheduler", signal.SIGCONT)
            self.assertEqual(0, cluster.wait_for_end(["worker0"])["worker0"])
        with open(path, encoding="utf-8") as text:
            summary = json.load(text)
        self.assertEqual(STEPS, summary["steps"])
        pulled = summary["bytes_pulled"] + FIRST_WEIGHTS
        for expected, name, direction in (
            (summary["bytes_pushed"], "slimps_payload_bytes_total", "push"),
            (4 * summary["elements_pushed"], "slimps_raw_bytes_total", "push"),
            (pulled, "slimps_payload_bytes_total", "pull"),
        ):
            self.assertEqual(expected, sum_of(exported, name, direction), (name, direction))

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
