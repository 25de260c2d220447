# SPDX-License-Identifier: Apache-2.0
"""The flags by which a job can be watched, and the file that says where."""

import argparse
import contextlib
import io
import os
import stat
import unittest

import folder_case
from slimps_launch import command
from slimps_launch import watched


def options_of(*flags):
    parser = argparse.ArgumentParser()
    watched.add_flags(parser)
    return parser.parse_args(flags)


class FlagsTest(unittest.TestCase):
    def test_the_scheduler_gets_what_the_user_gave(self):
        self.assertEqual([], watched.scheduler_flags(options_of()))
        self.assertEqual(
            [
                *("--page_port", "0", "--metrics_port", "9100"),
                *("--watch_bind", "0.0.0.0", "--stall_warning", "0"),
            ],
            watched.scheduler_flags(
                options_of(
                    *("--metrics_port=9100", "--page_port=0"),
                    *("--watch_bind=0.0.0.0", "--stall_warning=0"),
                )
            ),
        )

    def test_what_is_no_port_or_time_is_refused(self):
        for flag in ("--page_port=-1", "--metrics_port=70000", "--stall_warning=soon"):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                with self.subTest(flag), self.assertRaises(SystemExit):
                    options_of(flag)
            self.assertIn("expected 0 to ", said.getvalue())

    def test_kubernetes_has_other_means(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            command.launch(
                ["--on=k8s", "--workers=1", "--servers=1", "--page_port=0", "--", "true"], None
            )
        self.assertIn("do not go with --on k8s", said.getvalue())


class FileTest(folder_case.FolderCase):
    def file_of(self, *flags):
        return watched.file_of_job(options_of(*flags), {"XDG_RUNTIME_DIR": self.folder})

    def test_there_is_none_without_a_page(self):
        with self.file_of("--metrics_port=0") as flags:
            self.assertEqual([], flags)
        self.assertEqual([], os.listdir(self.folder))

    def test_it_is_in_a_folder_of_this_user_and_goes_with_the_job(self):
        with self.file_of("--page_port=0") as (flag, path):
            self.assertEqual("--watch_file", flag)
            self.assertEqual(os.path.join(self.folder, "slimps"), os.path.dirname(path))
            self.assertEqual(os.getpid(), watched.launcher_of(path))
            self.assertEqual(0o700, stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode))
            self.assertEqual(0o600, stat.S_IMODE(os.stat(path).st_mode))
        self.assertFalse(os.path.exists(path))

    def test_a_scheduler_that_has_removed_it_is_no_error(self):
        with self.file_of("--page_port=0") as (_, path):
            os.remove(path)

    def test_a_folder_that_cannot_be_made_costs_only_the_file(self):
        with open(os.path.join(self.folder, "slimps"), "wb"):
            pass
        with self.file_of("--page_port=0") as flags:
            self.assertEqual([], flags)


if __name__ == "__main__":
    unittest.main()
