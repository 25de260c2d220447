# SPDX-License-Identifier: Apache-2.0
"""Whole jobs of real processes: they train, they end clean, and they say what was killed."""

import json
import os
import random
import socket
import unittest

from process_cluster import ProcessCluster

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = [
    "--model",
    "logistic",
    "--dataset",
    "digits",
    "--batch",
    "16",
    "--lr",
    "0.2",
    "--log_every",
    "1",
]
FOREVER = ["--epochs", "100000"]
QUICK_HEARTBEAT = ["--heartbeat_interval_ms", "200", "--heartbeat_timeout_ms", "5000"]


def read(path):
    with open(path, "rb") as content:
        return content.read()


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class ProcessClusterTest(unittest.TestCase):
    def run_job(self, workers, servers, flags):
        """Runs a job that must end well. Returns its summary and saved weights."""
        files = os.environ.get("TEST_TMPDIR", "/tmp")
        summary = os.path.join(files, "summary-%d-%d.json" % (workers, servers))
        weights = os.path.join(files, "weights-%d-%d" % (workers, servers))
        flags = TRAIN + flags + ["--summary_json", summary, "--save_weights", weights]
        with ProcessCluster(workers, servers, flags) as cluster:
            statuses = cluster.wait_for_all()
            outputs = {name: cluster.output(name) for name in statuses}
        self.assertEqual(set(statuses.values()), {0}, (statuses, outputs))
        with open(summary, encoding="utf-8") as text:
            return json.load(text), read(weights)

    def test_two_by_two_trains_to_a_real_accuracy(self):
        summary, _ = self.run_job(2, 2, ["--epochs", "4"])
        self.assertGreater(summary["test_accuracy"], 0.9)
        self.assertFalse(summary["link_emulated"])

    def test_four_by_three_ends_clean_with_parts_of_unequal_length(self):
        # 1437 samples over 4 workers in batches of 16: the last round of an epoch has fewer.
        summary, _ = self.run_job(
            4, 3, ["--epochs", "3", "--compression", "1bit", "--threshold", "0"]
        )
        self.assertGreater(summary["test_accuracy"], 0.8)
        self.assertGreater(summary["compression_ratio"], 5)

    def test_weights_are_the_same_bits_for_any_number_of_servers(self):
        flags = [
            "--epochs",
            "2",
            "--compression",
            "2bit:threshold=0.5",
            "--threshold",
            "1000",
            "--backup_model",
            "on",
            "--partition_bytes",
            "1000",
        ]
        _, one = self.run_job(2, 1, flags)
        _, three = self.run_job(2, 3, flags)
        self.assertEqual(one, three)

    def test_killed_worker_ends_the_job_and_is_named(self):
        with ProcessCluster(2, 2, TRAIN + FOREVER, QUICK_HEARTBEAT) as cluster:
            cluster.wait_for_line("worker0", "step")
            cluster.kill("worker1")
            statuses = cluster.wait_for_all()
            self.assertIn("worker 1", cluster.output("worker0"))
            self.assertIn("worker 1", cluster.output("scheduler"))
        self.assertEqual(statuses.pop("worker1"), -9)
        self.assertNotIn(0, statuses.values())
        self.assertTrue(all(status > 0 for status in statuses.values()), statuses)

    def test_killed_worker_holds_nobody_under_bounded_staleness(self):
        flags = ["--kvstore", "dist_ssp", "--staleness", "1"]
        with ProcessCluster(2, 2, TRAIN + FOREVER + flags, QUICK_HEARTBEAT) as cluster:
            cluster.wait_for_line("worker0", "step")
            cluster.kill("worker1")
            statuses = cluster.wait_for_all()
            self.assertIn("worker 1", cluster.output("worker0"))
        self.assertEqual(statuses.pop("worker1"), -9)
        self.assertTrue(all(status > 0 for status in statuses.values()), statuses)

    def test_killed_server_ends_the_job_and_is_named(self):
        with ProcessCluster(2, 2, TRAIN + FOREVER, QUICK_HEARTBEAT) as cluster:
            cluster.wait_for_line("worker0", "step")
            cluster.kill("server0")
            statuses = cluster.wait_for_all()
            for name in ("worker0", "worker1", "scheduler"):
                self.assertRegex(cluster.output(name), "server [01]")
        self.assertEqual(statuses.pop("server0"), -9)
        self.assertTrue(all(status > 0 for status in statuses.values()), statuses)

    def test_killed_scheduler_ends_the_job_and_is_named(self):
        with ProcessCluster(2, 1, TRAIN + FOREVER, QUICK_HEARTBEAT) as cluster:
            cluster.wait_for_line("worker0", "step")
            cluster.kill("scheduler")
            statuses = cluster.wait_for_end(["worker0", "worker1", "server0"])
            self.assertIn("scheduler", cluster.output("worker0"))
        self.assertTrue(all(status > 0 for status in statuses.values()), statuses)

    def test_garbage_on_every_port_harms_nothing(self):
        dice = random.Random(5)
        with ProcessCluster(2, 2, TRAIN + ["--epochs", "20"]) as cluster:
            ports = cluster.listening_ports()
            cluster.wait_for_line("worker0", "step")
            for port in ports:
                for size in (1, 9, 64, 5000):
                    with socket.create_connection(("127.0.0.1", port)) as stranger:
                        stranger.sendall(dice.randbytes(size))
                # The greeting of ZeroMQ's own protocol, then garbage.
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(
                        b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48) + dice.randbytes(200)
                    )
            statuses = cluster.wait_for_all()
        self.assertEqual(set(statuses.values()), {0}, statuses)

    def test_worker_that_stops_at_a_diverged_gradient_ends_the_job_for_all(self):
        # Weight decay that overshoots makes the weights, and then the gradients, infinite in a few
        # steps.
        with ProcessCluster(
            2, 1, TRAIN + FOREVER + ["--lr", "1e6", "--weight_decay", "1e6"]
        ) as cluster:
            statuses = cluster.wait_for_all()
            outputs = cluster.output("worker0") + cluster.output("worker1")
        self.assertRegex(outputs, "element [0-9]+ is -?(nan|inf)")
        self.assertTrue(all(status > 0 for status in statuses.values()), statuses)

    def test_missing_data_file_ends_the_job_with_its_name(self):
        flags = ["--model", "lenet", "--dataset", "mnist", "--data_dir", "/nonexistent"]
        with ProcessCluster(1, 1, flags) as cluster:
            statuses = cluster.wait_for_end(["worker0"])
            self.assertIn("/nonexistent/train-images-idx3-ubyte.gz", cluster.output("worker0"))
        self.assertGreater(statuses["worker0"], 0)

    def test_a_summary_that_cannot_be_written_is_refused_before_training(self):
        with ProcessCluster(
            2, 1, TRAIN + ["--epochs", "1", "--summary_json", "/nonexistent/summary.json"]
        ) as cluster:
            statuses = cluster.wait_for_all()
            outputs = cluster.output("worker0") + cluster.output("worker1")
        self.assertIn(
            "--summary_json: cannot write /nonexistent/summary.json: No such file", outputs
        )
        self.assertNotIn("step 1", outputs)
        self.assertTrue(all(statuses[worker] > 0 for worker in ("worker0", "worker1")), statuses)


if __name__ == "__main__":
    unittest.main()
