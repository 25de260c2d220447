# SPDX-License-Identifier: Apache-2.0
"""Files that commands write: refused before the work, written whole or not at all. Devices stay
devices."""

import argparse
import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import unittest
from unittest import mock

import folder_case
from slimps_launch import errors
from slimps_launch import job_folders
from slimps_launch import out_files


class JobFolderTest(folder_case.FolderCase):
    MAKE = (
        "import sys; sys.path.insert(0, %r)\n"
        "from slimps_launch import job_folders\n"
        "with job_folders.folder('keys', %r) as made: print(made, flush=True); input()"
    )

    def test_the_next_removes_what_a_killed_process_left_and_nothing_else(self):
        parent = self.path("made")
        package = os.path.dirname(os.path.dirname(os.path.abspath(job_folders.__file__)))
        command = [sys.executable, "-B", "-c", self.MAKE % (package, parent)]
        makers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        made = [maker.stdout.readline().strip() for maker in makers]
        with open(os.path.join(made[0], "worker0.key"), "w", encoding="ascii"):
            pass
        makers[0].kill()
        makers[0].wait()
        others = ["slimps-job-7", "slimps-job-keys-another.machine-abcd_123"]
        for name in others:
            os.mkdir(os.path.join(parent, name))
        with job_folders.folder("keys", parent) as own:
            expected = {made[1], own, *(os.path.join(parent, name) for name in others)}
            self.assertEqual(expected, {os.path.join(parent, x) for x in os.listdir(parent)})
            self.assertEqual(0o700, stat.S_IMODE(os.stat(own).st_mode))
        makers[1].communicate("\n")
        makers[0].communicate()
        self.assertEqual(others, sorted(os.listdir(parent)))


class WritableTest(folder_case.FolderCase):
    def test_nothing_is_left_behind_and_nothing_lost(self):
        old = self.put("old.json", "old")
        self.assertIsNone(out_files.why_not_writable(old))
        self.assertIsNone(out_files.why_not_writable(self.path("new.json")))
        self.assertEqual(["old.json"], os.listdir(self.folder))
        self.assertEqual("old", self.get("old.json"))

    def test_folders_and_what_is_in_no_folder_are_refused(self):
        for wrong in ("", self.folder, self.folder + "/"):
            self.assertEqual("not a file", out_files.why_not_writable(wrong))
        self.assertEqual(
            "No such file or directory", out_files.why_not_writable(self.path("no/t.json"))
        )
        self.assertIn("null", out_files.why_not_writable("a\0b"))

    def test_a_file_that_may_not_be_written_is_refused(self):
        path = self.put("mine.json", "")
        with mock.patch.object(out_files.os, "access", return_value=False):
            self.assertEqual("Permission denied", out_files.why_not_writable(path))

    def test_wrong_usage_names_flag_file_and_reason(self):
        parser = argparse.ArgumentParser()
        out_files.refuse_unwritable(parser, "--json", None)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            out_files.refuse_unwritable(parser, "--json", self.folder)
        self.assertEqual(2, ended.exception.code)
        self.assertIn("--json: cannot write %s: not a file" % self.folder, said.getvalue())


class SaveTest(folder_case.FolderCase):
    def test_a_failure_in_the_middle_keeps_what_was_there(self):
        path = self.put("a.json", "old")

        def fail(out):
            out.write("new")
            raise OSError(28, "No space left on device")

        with self.assertRaises(OSError):
            out_files.save(path, fail)
        self.assertEqual("old", self.get("a.json"))
        self.assertEqual(["a.json"], os.listdir(self.folder))

    def test_it_is_on_the_disk_before_it_has_its_name_and_the_name_when_it_returns(self):
        path = self.put("a.json", "old")
        done = []
        sync, replace = os.fsync, os.replace

        def recorded_sync(file):
            done.append(
                "folder"
                if stat.S_ISDIR(os.fstat(file).st_mode)
                else "file of %d" % os.fstat(file).st_size
            )
            sync(file)

        def recorded_replace(*names):
            done.append("name")
            replace(*names)

        with mock.patch.object(os, "fsync", recorded_sync), mock.patch.object(
            os, "replace", recorded_replace
        ):
            out_files.save_text(path, "newer")
        self.assertEqual(["file of 5", "name", "folder"], done)

    def test_a_link_stays_one_and_modes_are_kept(self):
        path = self.put("a.json", "old")
        os.chmod(path, 0o640)
        os.symlink(path, self.path("link"))
        out_files.save_text(self.path("link"), "new")
        self.assertEqual("new", self.get("a.json"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(0o640, stat.S_IMODE(os.stat(path).st_mode))

    def test_devices_and_pipes_are_written_not_replaced(self):
        out_files.save_text("/dev/null", "x")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        os.mkfifo(self.path("pipe"))
        with subprocess.Popen(
            ["cat", self.path("pipe")], stdout=subprocess.PIPE, text=True
        ) as reader:
            self.assertIsNone(out_files.why_not_writable(self.path("pipe")))
            out_files.save_text(self.path("pipe"), "through it")
            self.assertEqual("through it", reader.communicate()[0])
        self.assertTrue(out_files.is_special(self.path("pipe")))

    def test_a_full_disk_is_one_clear_error(self):
        with self.assertRaisesRegex(
            errors.LaunchError, "^cannot write /dev/full: No space left on device$"
        ):
            out_files.save_json("/dev/full", {"a": 1})

    def test_json_is_laid_out_as_asked(self):
        out_files.save_json(self.path("a.json"), {"b": 1, "a": 2}, sort_keys=True)
        self.assertEqual('{"a": 2, "b": 1}\n', self.get("a.json"))
        out_files.save_json(self.path("a.json"), {"b": 1})
        self.assertEqual('{\n "b": 1\n}\n', self.get("a.json"))


class LoadTest(folder_case.FolderCase):
    def test_what_is_no_json_is_told_why(self):
        self.assertEqual({"a": 1}, out_files.load_json(self.put("good", json.dumps({"a": 1}))))
        for text, what in (
            ("", "not JSON: Expecting value"),
            ("{", "not JSON: "),
            ("[" * 100000, "nested too deep"),
        ):
            with self.assertRaisesRegex(ValueError, what):
                out_files.load_json(self.put("bad", text))
        with open(self.path("bytes"), "wb") as out:
            out.write(b'{"\xff"}')
        with self.assertRaisesRegex(ValueError, "not JSON: byte 2 is no UTF-8"):
            out_files.load_json(self.path("bytes"))
        with self.assertRaisesRegex(ValueError, "cannot read it: Is a directory"):
            out_files.load_json(self.folder)
        with self.assertRaisesRegex(ValueError, "cannot read it: No such file"):
            out_files.load_json(self.path("missing"))


if __name__ == "__main__":
    unittest.main()
