# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes whose workers use libslimps.so: the scenarios of c_api_worker.cc."""

import os
import unittest

import process_cluster

WORKER = "tests/cluster/processes/c_api_worker"


class CApi(unittest.TestCase):
    def run_scenario(self, scenario, type_="dist_sync", workers=2, servers=2, fails=False):
        with process_cluster.ProcessCluster(
            workers, servers, [scenario, type_], worker=WORKER
        ) as job:
            names = ["worker%d" % rank for rank in range(workers)]
            ends = job.wait_for_end(names, 150.0)
            said = "\n".join("--- %s\n%s" % (name, job.output(name)) for name in job.processes)
            self.assertEqual({0}, set(ends.values()), said)
            for name in names:
                self.assertIn("well\n", job.output(name), said)
            daemons = job.wait_for_all()
            self.assertEqual(fails, any(daemons.values()), daemons)

    def test_asynchronous_pulls_bring_every_workers_rounds(self):
        self.run_scenario("train_async")

    def test_a_key_that_was_never_initialised_is_an_error_and_no_more(self):
        self.run_scenario("unknown_key", workers=1)

    def test_an_abort_ends_the_other_workers_pull_with_the_reason(self):
        self.run_scenario("abort", fails=True)

    def test_calls_in_the_background_and_lists_bring_every_workers_rounds(self):
        self.run_scenario("train_in_background")

    def test_without_rounds_lists_in_the_background_end_too(self):
        self.run_scenario("train_in_background", type_="dist_async", workers=1)

    def test_an_abort_ends_calls_in_the_background_everywhere_with_the_reason(self):
        self.run_scenario("abort_in_background", fails=True)

    def test_the_exchange_trains_in_the_background(self):
        self.run_scenario("exchange")

    def test_the_exchange_trains_with_the_backup_model(self):
        self.run_scenario("exchange_with_backup")

    def test_rows_are_pushed_and_pulled_into_the_callers_memory(self):
        self.run_scenario("rows")

    def test_optimizer_states_are_saved_and_loaded(self):
        self.run_scenario("states")

    def test_an_optimizer_refused_at_one_worker_fails_for_all(self):
        self.run_scenario("wrong_optimizer")

    def test_rounds_go_on_without_a_worker_that_left(self):
        self.run_scenario("leave")

    def test_residuals_are_saved_and_loaded(self):
        self.run_scenario("residuals")

    def test_what_was_measured_decides(self):
        self.run_scenario("decision")

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "AddressSanitizer needs more addresses")
    def test_a_server_without_memory_refuses_or_ends_and_says_what_for(self):
        limited = ["prlimit", "--as=%d" % (1 << 30)]
        with process_cluster.ProcessCluster(
            1, 1, ["server_without_memory", "dist_sync"], worker=WORKER, server_prefix=limited
        ) as job:
            ends = job.wait_for_all(150.0)
            said = "\n".join("--- %s\n%s" % (name, job.output(name)) for name in job.processes)
            self.assertEqual(0, ends["worker0"], said)
            self.assertIn("well\n", job.output("worker0"), said)
            if "out of memory" not in job.output("worker0"):
                self.assertEqual(1, ends["server0"], said)
                self.assertRegex(
                    job.output("server0"), r"(?m)^slimps_server: .*out of memory", said
                )


if __name__ == "__main__":
    unittest.main()
