# SPDX-License-Identifier: Apache-2.0
"""Who or what holds a job up: the log and the live page name it."""

import http.client
import json
import os
import re
import signal
import unittest

from process_cluster import ProcessCluster

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = ["--model", "logistic", "--dataset", "digits", "--log_every", "1", "--epochs", "1000"]
FLAGS = ["--heartbeat_interval_ms=200", "--heartbeat_timeout_ms=60000"]
FLAGS += ["--page_port=0", "--stall_warning=1"]


def state_of(cluster):
    found = re.search(r"http://(127\.0\.0\.1:\d+)/(\?token=\w+)", cluster.output("scheduler"))
    connection = http.client.HTTPConnection(found.group(1), timeout=60)
    try:
        connection.request("GET", "/job.json" + found.group(2))
        return json.load(connection.getresponse())
    finally:
        connection.close()


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class StallTest(unittest.TestCase):
    def test_a_worker_that_is_stopped_is_named_until_it_goes_on(self):
        with ProcessCluster(2, 1, TRAIN, scheduler_flags=FLAGS) as cluster:
            cluster.wait_for_line("worker0", "step 2/")
            cluster.kill("worker1", signal.SIGSTOP)
            cluster.wait_for_line("scheduler", "worker 1 has not been heard for ")
            cluster.wait_for_line("scheduler", " s for worker 1: s:")
            state = state_of(cluster)
            states = {(node["role"], node["rank"]): node["state"] for node in state["nodes"]}
            self.assertEqual("slow", states["worker", 1])
            self.assertTrue(any("worker 1" in stall["text"] for stall in state["stalls"]), state)
            cluster.kill("worker1", signal.SIGCONT)
            cluster.wait_for_line("scheduler", "worker 1 is heard again after ")
            cluster.wait_for_line("scheduler", " goes on after ")

    def test_a_server_that_is_stopped_is_named(self):
        with ProcessCluster(2, 2, TRAIN, scheduler_flags=FLAGS) as cluster:
            cluster.wait_for_line("worker0", "step 2/")
            cluster.kill("server1", signal.SIGSTOP)
            cluster.wait_for_line("scheduler", "server 1 has not been heard for ")
            cluster.kill("server1", signal.SIGCONT)
            cluster.wait_for_line("scheduler", "server 1 is heard again after ")

    def test_who_is_missing_at_a_barrier_is_named_until_it_comes(self):
        worker = "tests/cluster/processes/c_api_worker"
        flags = ["late_barrier", "dist_sync"]
        with ProcessCluster(2, 1, flags, scheduler_flags=FLAGS, worker=worker) as cluster:
            named = re.compile(
                r'barrier "kvstore/barrier" waits [\d.]+ s for worker 1; '
                r"worker 1: last call barrier [\d.]+ s ago"
            )
            cluster.wait_for(lambda: named.search(cluster.output("scheduler")), named.pattern)
            cluster.kill("worker1", signal.SIGUSR1)
            cluster.wait_for_line("scheduler", 'barrier "kvstore/barrier" goes on after ')
            cluster.kill("worker1", signal.SIGUSR1)
            self.assertEqual({0}, set(cluster.wait_for_all().values()))

    def test_a_node_that_does_not_come_is_named(self):
        with ProcessCluster(2, 1, TRAIN, scheduler_flags=FLAGS, worker=None) as cluster:
            cluster.start_worker(0, ["worker/slimps_worker"] + TRAIN)
            cluster.wait_for_line("scheduler", " the job waits for 1 worker; there: server 0")

    def test_raw_pulls_on_a_slow_link_are_named_by_the_advice(self):
        flags = ["--model", "mlp", "--dataset", "digits", "--epochs", "1000"]
        flags += ["--compression", "1bit", "--emulate_link", "100mbit"]
        with ProcessCluster(2, 1, flags, scheduler_flags=FLAGS) as cluster:
            # Where the machine is busy, other advice may come first.
            named = re.compile(r"pulls take [\d.]+ MB/s raw, \d+ times the pushes")
            cluster.wait_for(lambda: named.search(state_of(cluster)["advice"]), named.pattern)


if __name__ == "__main__":
    unittest.main()
