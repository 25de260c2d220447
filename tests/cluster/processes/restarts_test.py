# SPDX-License-Identifier: Apache-2.0
"""Nodes that are killed while a job trains, and started again: the weights are the same bits."""

import os
import re
import time
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
    "--epochs",
    "12",
    "--partition_bytes",
    "1000",
]
BOTH_WAYS = [
    "--compression",
    "1bit",
    "--threshold",
    "0",
    "--pull_compression",
    "1bit",
    "--pull_threshold",
    "0",
    "--backup_model",
    "on",
]


def read(path):
    with open(path, "rb") as content:
        return content.read()


def newest_step(cluster):
    return max(map(int, re.findall(r" step (\d+)/", cluster.output("worker0"))), default=0)


def snapshots_of(cluster):
    """Returns the number of server 0's newest snapshot."""
    names = os.listdir(cluster.path("snapshots/slimps/server-0"))
    numbers = re.findall(r"snapshot-(\d+)-\w+$", "\n".join(names), re.MULTILINE)
    return max(map(int, numbers), default=0)


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class RestartsTest(unittest.TestCase):
    def train(self, flags, kills=(), pause=0.0, snapshots=1):
        """Trains by two workers and two servers. Kills and restarts the processes `kills`, each
        after some more steps. Returns the weights and the outputs."""
        files = os.environ.get("TEST_TMPDIR", "/tmp")
        weights = os.path.join(files, "weights")
        flags = TRAIN + flags + ["--save_weights", weights + "{rank}"]
        said = {}  # by processes that were killed: the next one's output replaces theirs
        with ProcessCluster(2, 2, flags, snapshots=snapshots) as cluster:
            for step, name in enumerate(kills):
                goal = 60 * (step + 1)
                cluster.wait_for(lambda: newest_step(cluster) >= goal, "step %d" % goal)
                cluster.kill(name)
                cluster.wait_for_end([name])
                said[name] = said.get(name, "") + cluster.output(name)
                time.sleep(pause)
                if name == "scheduler":
                    cluster.start_scheduler()
                elif name.startswith("worker"):
                    cluster.start_worker(int(name[-1]), [cluster.worker] + flags)
                else:
                    cluster.start_server(int(name[-1]))
            statuses = cluster.wait_for_all()
            outputs = {name: said.get(name, "") + cluster.output(name) for name in statuses}
        self.assertEqual(set(statuses.values()), {0}, (statuses, outputs))
        self.assertEqual(read(weights + "0"), read(weights + "1"))
        return read(weights + "0"), outputs

    def test_a_scheduler_that_is_killed_is_missed_by_nobody(self):
        calm, _ = self.train([], snapshots=None)
        storm, outputs = self.train([], kills=["scheduler", "scheduler"], pause=2.0)
        self.assertEqual(calm, storm)
        self.assertIn("going on by a journal", outputs["scheduler"])

    def check_same_bits(self, flags):
        calm, _ = self.train(flags, snapshots=None)
        storm, outputs = self.train(flags, kills=["server0", "server1", "server0"])
        self.assertEqual(calm, storm)
        self.assertIn("server 1 was started again", outputs["worker1"])
        self.assertRegex(outputs["scheduler"], r"server 1 \(.*\) has closed its connection")
        self.assertIn("is gone; a process that was started anew", outputs["scheduler"])

    def test_raw(self):
        self.check_same_bits([])

    def test_compressed_both_ways_with_backup_model(self):
        self.check_same_bits(BOTH_WAYS)

    def test_clipped_by_the_norm_of_the_mean(self):
        self.check_same_bits(["--clip_norm", "0.5"])

    def check_workers_come_back(self, flags):
        calm, calm_outputs = self.train(flags, snapshots=None)
        storm, outputs = self.train(flags, kills=["worker1", "worker0", "worker1"])
        for name in ("worker0", "worker1"):
            self.assertIn("took its rank back", outputs[name])
        steps = re.compile(r"test accuracy ([\d.]+) %")
        was, now = (
            float(steps.search(text["worker0"]).group(1)) for text in (calm_outputs, outputs)
        )
        self.assertLess(abs(was - now), 3)
        left_out = re.findall(r"left (\d+) pushes out", outputs["worker0"] + outputs["worker1"])
        return calm == storm, {int(count) for count in left_out}

    def test_raw_workers_come_back(self):
        # A gradient that is not compressed is the same again, if the former process left none out.
        same, left_out = self.check_workers_come_back([])
        self.assertTrue(same or left_out != {0}, left_out)

    def test_workers_come_back_to_clipped_steps(self):
        self.check_workers_come_back(["--clip_norm", "0.5"])

    def test_workers_come_back_with_backup_model_and_one_bit(self):
        self.check_workers_come_back(BOTH_WAYS)

    def check_an_absent_worker_is_taken_back(self, come_back):
        """Lets the job go on without worker 1, kills server 0, and starts both again by
        `come_back(cluster, start_server, start_worker)`."""
        weights = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "weights")
        flags = TRAIN + ["--epochs", "400", "--log_every", "50"]
        flags += ["--save_weights", weights + "{rank}"]
        scheduler = ["--worker_timeout", "1", "--heartbeat_timeout_ms", "3000"]
        scheduler += ["--heartbeat_interval_ms", "200"]
        with ProcessCluster(3, 2, flags, scheduler, snapshots=1) as cluster:
            cluster.wait_for_line("worker0", "step 50/")
            time.sleep(1.0)  # heartbeats tell the scheduler that the worker has pushed
            cluster.kill("worker1")
            cluster.wait_for_line("scheduler", "the job goes on without it")
            before = snapshots_of(cluster)
            # Two more snapshots, and heartbeats that tell of them: then all that came from it is
            # saved, and a server may die while it is away.
            cluster.wait_for(lambda: snapshots_of(cluster) >= before + 2, "two snapshots")
            time.sleep(1.0)
            cluster.kill("server0")
            cluster.wait_for_end(["server0"])
            come_back(
                cluster,
                lambda: cluster.start_server(0),
                lambda: cluster.start_worker(1, [cluster.worker] + flags),
            )
            cluster.wait_for_line("worker1", "took its rank back")
            statuses = cluster.wait_for_all(200.0)
            outputs = {name: cluster.output(name) for name in statuses}
        self.assertEqual(set(statuses.values()), {0}, (statuses, outputs))
        self.assertEqual(read(weights + "0"), read(weights + "1"))
        self.assertEqual(read(weights + "0"), read(weights + "2"))

    def test_the_job_goes_on_without_a_worker_and_takes_it_back(self):
        def come_back(cluster, start_server, start_worker):
            start_server()
            cluster.wait_for_line("worker0", "was started again")
            start_worker()

        self.check_an_absent_worker_is_taken_back(come_back)

    def test_also_while_a_server_is_gone(self):
        def come_back(cluster, start_server, start_worker):
            start_worker()
            cluster.wait_for_line("scheduler", "not yet: a server is gone")
            start_server()

        self.check_an_absent_worker_is_taken_back(come_back)


if __name__ == "__main__":
    unittest.main()
