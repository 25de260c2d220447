# SPDX-License-Identifier: Apache-2.0
"""The benches' processes: which one is named where several fail, and what becomes of silence."""

import unittest

from bench import bench_processes as processes
from cli import setup
from eventually import eventually


class AnswersTest(unittest.TestCase):
    def test_the_one_that_a_signal_ended_is_named_before_those_that_complain_of_it(self):
        with processes.Processes() as party:
            complains = party.start("complains", ["/bin/sh", "-c", "echo lost my peer; exit 3"])
            self.assertTrue(eventually(lambda: complains.status is not None))
            victim = party.start("victim", ["/bin/sh", "-c", "kill -KILL $$"])
            self.assertTrue(eventually(lambda: victim.status is not None))
            with self.assertRaisesRegex(setup.SetupError, "^victim was killed by SIGKILL$"):
                party.answers([complains], "word")
            with self.assertRaisesRegex(
                setup.SetupError, "(?s)^alone exited with status 3.*alone. bye"
            ):
                party.answers([party.start("alone", ["/bin/sh", "-c", "echo bye; exit 3"])], "word")

    def test_silence_has_a_deadline(self):
        with processes.Processes() as party:
            silent = party.start("silent", ["/bin/sh", "-c", "echo starting; sleep 1000"])
            self.assertTrue(eventually(lambda: silent.last_lines))
            with self.assertRaisesRegex(
                setup.SetupError, "(?s)silent: no word after 0 s.*silent\\| starting"
            ):
                party.answers([silent], "word", 0.1)

    def test_a_fact_is_waited_for_until_its_process_ends(self):
        with processes.Processes() as party:
            says = party.start("says", ["/bin/sh", "-c", "echo here; sleep 1000"])
            self.assertEqual(["here"], party.wait_for(lambda: list(says.last_lines), says, "line"))
            with self.assertRaisesRegex(setup.SetupError, "(?s)^says: no fact after 0 s.*here"):
                party.wait_for(lambda: None, says, "fact", 0.1)
            ends = party.start("ends", ["/bin/sh", "-c", "exit 3"])
            with self.assertRaisesRegex(setup.SetupError, "^ends exited with status 3"):
                party.wait_for(lambda: None, ends, "fact")

    def test_snapshots_are_asked_of_servers_and_a_journal_of_the_scheduler(self):
        self.assertEqual(([], []), processes.snapshot_flags("/f", 0))
        scheduler, server = processes.snapshot_flags("/f", 30)
        self.assertIn("--journal=/f/journal", scheduler)
        self.assertEqual(["--snapshot_dir=/f/snapshots", "--snapshot_every=30"], server)


if __name__ == "__main__":
    unittest.main()
