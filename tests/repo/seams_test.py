# SPDX-License-Identifier: Apache-2.0
import unittest

import seams
import source_tree


class Seams(unittest.TestCase):
    def test_nothing_passes_them_by(self):
        files = source_tree.cpp_files()
        self.assertIn("proto/base/clock.cc", files)
        complaints = [
            line for path in files for line in seams.check_cpp(path, source_tree.read(path))
        ]
        self.assertEqual([], complaints)

    def test_nothing_in_python_passes_them_by(self):
        files = [path for path in source_tree.files() if path.endswith(".py")]
        self.assertIn("python/slimps/_whole_file.py", files)
        complaints = [
            line for path in files for line in seams.check_python(path, source_tree.read(path))
        ]
        self.assertEqual([], complaints)


class SeamRules(unittest.TestCase):
    def complaints(self, path, line):
        return seams.check_cpp(path, "// first line\n%s\n" % line)

    def test_a_direct_reading_of_the_time_is_found(self):
        for line in (
            "now = absl::Now();",
            "auto t = std::chrono::steady_clock::now();",
            "system_clock::now()",
            "clock_gettime(CLOCK_MONOTONIC, &now);",
            "gettimeofday(&now, nullptr);",
            "time(nullptr)",
            "std::time(&now)",
            "const RealClock clock;",
        ):
            self.assertEqual(1, len(self.complaints("server/a.cc", line)), line)
        self.assertEqual(
            ["server/a.cc:2: the time is read through a Clock (proto/base/clock.h)"],
            self.complaints("server/a.cc", "now = absl::Now();"),
        )

    def test_the_machines_clock_is_a_default_and_chosen_by_programs(self):
        for path, line in (
            ("worker/a.cc", "MachineClock()->Now()"),
            ("worker/a.h", "MachineClock()->Now()"),
            ("worker/a.cc", "const Clock* clock = MachineClock();"),
        ):
            self.assertEqual(1, len(self.complaints(path, line)), (path, line))
        for path, line in (
            ("worker/a.h", "const Clock* clock = MachineClock();"),
            ("worker/a.h", "A(int b, const Clock* clock = MachineClock())"),
            ("worker/worker_main.cc", "Run(MachineClock());"),
        ):
            self.assertEqual([], self.complaints(path, line), (path, line))

    def test_a_thread_started_elsewhere_is_found(self):
        for line in (
            "std::thread thread_;",
            "std::jthread t([] {});",
            "auto a = std::async(f);",
            "std::vector<std::thread> threads;",
            "pthread_create(&t, nullptr, f, nullptr);",
        ):
            self.assertEqual(1, len(self.complaints("worker/a.cc", line)), line)

    def test_a_write_elsewhere_is_found(self):
        for line in (
            "std::ofstream out(path);",
            "std::fstream both(path);",
            'fopen(path, "wb")',
            "fsync(file);",
            "std::rename(a, b);",
            "if (rename(a, b) != 0)",
            "std::filesystem::rename(a, b);",
        ):
            self.assertEqual(1, len(self.complaints("scheduler/a.cc", line)), line)
        self.assertEqual(
            ["tools/a.py:1: what must last is written by out_files or _whole_file"],
            seams.check_python("tools/a.py", "os.replace(draft, path)"),
        )

    def test_what_only_resembles_it_passes(self):
        for line in (
            "clock->Now();",
            "// absl::Now() steps",
            "std::thread::hardware_concurrency()",
            "deadline_time(0);",
            "std::ifstream in(path);",
            'fopen(path, "rb")',
            "clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);",
            "disk->Rename(a, b);",
            "RealClockwork x;",
        ):
            self.assertEqual([], self.complaints("worker/a.cc", line), line)

    def test_the_seams_tests_and_users_programs_may(self):
        for path, line in (
            ("proto/base/clock.cc", "clock_gettime(id, &now);"),
            ("proto/base/thread.h", "std::thread t;"),
            ("proto/base/file.cc", "fsync(file);"),
            ("tests/server/a.cc", "std::thread t;"),
            ("examples/kvstore_cpp.cc", "absl::Now();"),
        ):
            self.assertEqual([], self.complaints(path, line), (path, line))


if __name__ == "__main__":
    unittest.main()
