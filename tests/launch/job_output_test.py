# SPDX-License-Identifier: Apache-2.0
"""The output of a job's processes: prefixed, held back, shown with the failure."""

import os
import stat
import unittest
from unittest import mock

import folder_case
from eventually import eventually
from slimps_launch import job_node
from slimps_launch import job_output


class OutputTest(unittest.TestCase):
    def setUp(self):
        self.said = []
        self.output = job_output.Output(self.said.append, lambda node: node.name != "worker1")
        self.nodes = [job_node.Node("worker%d" % rank, "worker", ["w"]) for rank in range(2)]

    def add(self, *lines, rank=0):
        for line in lines:
            self.output.add(self.nodes[rank], line)

    def test_lines_are_shown_until_the_first_sign_and_after_the_release(self):
        self.add("step 1", "E20261122 07:08:09 x.cc:1] no route", "step 2")
        self.assertEqual(["worker0| step 1"], self.said)
        self.output.release()
        self.add("step 3")
        self.assertEqual(
            ["step 1", "E20261122 07:08:09 x.cc:1] no route", "step 2", "step 3"],
            [line[len("worker0| ") :] for line in self.said],
        )

    def test_held_lines_are_released_after_the_time_to_hold(self):
        with mock.patch.object(job_output, "HOLD_SECONDS", 0.01):
            self.add("slimps_worker: no route", "step 2")
        self.assertTrue(eventually(lambda: len(self.said) == 2))

    def test_a_failed_jobs_lines_stay_unseen(self):
        self.add("step 1")
        self.output.hold()
        self.add("step 2", "so it goes")
        self.add("elsewhere", rank=1)
        self.output.release()
        self.assertEqual(["worker0| step 1"], self.said)
        self.assertEqual(["step 2", "so it goes"], self.output.unseen(self.nodes[0]))
        self.assertEqual(
            ["elsewhere"], self.output.unseen(self.nodes[1]), "hidden lines are unseen, too"
        )

    def error(self, *lines):
        at = job_output.last_error(lines)
        return None if at is None else lines[at]

    def test_the_error_is_what_was_raised_or_said_at_the_end(self):
        trace = ["Traceback (most recent call last):", "  File x", "    f()"]
        self.assertEqual(
            "OSError: a",
            self.error(
                *trace,
                "KeyError: b",
                "",
                "During handling of the above exception, another " "exception occurred:",
                "",
                *trace,
                "OSError: a",
                "more of it",
                "step 9",
            ),
        )
        self.assertEqual(
            "OSError: a",
            self.error(*trace, "OSError: a", "Exception ignored in: <f>", *trace, "OSError: b"),
        )
        self.assertEqual("slimps_worker: gone", self.error("step 1", "slimps_worker: gone", "bye"))
        self.assertEqual("no port", self.error("hello", "no port"))
        self.assertEqual(trace[-1], self.error(*trace))
        self.assertIsNone(self.error())

    def test_an_error_is_known_again_in_others_words(self):
        self.assertEqual(
            "push of w: no",
            job_output.words_of("slimps.errors.InvalidArgumentError: push of w: no"),
        )
        self.assertEqual("AssertionError", job_output.words_of("AssertionError"))


class LogsTest(folder_case.FolderCase):
    def test_only_this_user_reads_logs_which_have_the_pages_token(self):
        os.chmod(self.put("scheduler.log", "an earlier job's"), 0o644)
        logs = job_output.Logs(self.folder)
        for name in ("scheduler", "worker0"):
            logs.open(name)
            self.addCleanup(logs.files[name].close)
            self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path(name + ".log")).st_mode))
        self.assertEqual("", self.get("scheduler.log"))


if __name__ == "__main__":
    unittest.main()
