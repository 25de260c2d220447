# SPDX-License-Identifier: Apache-2.0
"""slimps bench transport: real jobs end to end, its JSON, its errors.

No figure is judged here.
"""

import json
import os
import signal
import subprocess
import tempfile
import unittest

from bench import common
from bench import bench_processes as processes
from bench import report_tables
from bench.transport import transport_bench as bench
from bench.transport import transport_runs as runs
from cli import setup
from eventually import eventually
from proc_files import alive, children_of, command_of, tcp_ports

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
PROGRAMS = os.path.abspath(".")  # the runfiles, where tests start

PROMISED = {
    "transport",
    "workers",
    "servers",
    "op",
    "goodput_gbps",
    "raw_zmq_gbps",
    "fraction_of_raw",
    "p50_us",
    "p99_us",
}
COMMAND = [os.path.join(TOOLS, "slimps"), "bench", "transport", "--programs", PROGRAMS]


def run_bench(*arguments):
    return subprocess.run(
        COMMAND + list(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def bench_json(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        result = run_bench("--json", path, *arguments)
        if result.returncode != 0:
            raise AssertionError("status %d\n%s" % (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as text:
            return json.load(text), result


def wait_for(condition, what, seconds=60.0):
    value = eventually(condition, seconds)
    if not value:
        raise AssertionError("waited %.0f s for %s" % (seconds, what))
    return value


def programs():
    return common.find_programs(bench.PROGRAMS, PROGRAMS)


class QuickTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report, cls.result = bench_json("--quick", "--transports", "tcp", "--sizes", "4Ki,8Mi")
        cls.rows = cls.report["results"]

    def test_every_row_has_the_promised_fields_and_sound_figures(self):
        for entry in self.rows:
            self.assertLessEqual(PROMISED | {"bytes"}, set(entry))
            for field, value in entry.items():
                if field.endswith(("_gbps", "_us")) or field.startswith("fraction"):
                    self.assertGreater(value, 0, field)
            self.assertAlmostEqual(
                entry["goodput_gbps"] / entry["raw_zmq_gbps"], entry["fraction_of_raw"]
            )
            self.assertLessEqual(entry["p50_us"], entry["p99_us"])
            self.assertEqual("tcp", entry["raw_transport"])

    def test_each_shape_has_its_sizes_and_its_latency(self):
        self.assertEqual(
            [
                (shape, shape, size, op)
                for shape in (1, 2)
                for size, op in (
                    (4 << 10, "push_pull"),
                    (8 << 20, "push_pull"),
                    (1 << 10, "latency"),
                )
            ],
            [
                (entry["workers"], entry["servers"], entry["bytes"], entry["op"])
                for entry in self.rows
            ],
        )

    def test_what_is_in_flight_is_said(self):
        sizes = {
            entry["bytes"]: (entry["in_flight_bytes"], entry["message_bytes"])
            for entry in self.rows
            if entry["op"] == "push_pull"
        }
        self.assertEqual({4 << 10: (1 << 20, 4 << 10), 8 << 20: (32 << 20, 4 << 20)}, sizes)

    def test_congestion_control_is_the_machines(self):
        with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as text:
            name = text.read().strip()
        self.assertEqual({name}, {entry["congestion_control"] for entry in self.rows})
        self.assertEqual(name, self.report["machine"]["congestion_control"])

    def test_the_terminal_shows_tables_and_progress(self):
        self.assertIn("4 KiB", self.result.stdout)
        self.assertIn("0.80 ", self.result.stdout)
        self.assertIn("[6] latency", self.result.stderr)

    def test_the_report_renders_between_its_markers(self):
        page = report_tables.put_into(
            "a\n<!-- bench transport -->\nold\n<!-- end transport -->\nb\n", self.report
        )
        self.assertTrue(page.startswith("a\n<!-- bench transport -->\n"))
        self.assertTrue(page.endswith("\n<!-- end transport -->\nb\n"))
        self.assertNotIn("old", page)
        self.assertEqual(len(self.rows), page.count("\n| tcp |"))
        self.assertIn("### Push-pull, GB/s", page)


class SameHostTest(unittest.TestCase):
    def test_local_transports_stand_beside_their_own_raw_figures(self):
        report, _ = bench_json(
            "--quick", "--transports", "shm,ipc", "--shapes", "1x2", "--sizes", "1Mi"
        )
        self.assertEqual(
            [
                ("shm", "push_pull", "tcp"),
                ("shm", "latency", "ipc"),
                ("ipc", "push_pull", "ipc"),
                ("ipc", "latency", "ipc"),
            ],
            [
                (entry["transport"], entry["op"], entry["raw_transport"])
                for entry in report["results"]
            ],
        )
        self.assertEqual(
            {(1, 2)}, {(entry["workers"], entry["servers"]) for entry in report["results"]}
        )

    def test_jobs_speak_the_transport_that_they_are_measured_on(self):
        for transport, connected in (("tcp", True), ("ipc", False)):
            with processes.Processes() as party, runs.Stage(
                party, programs(), transport, (1, 1)
            ) as stage:
                stage.plain.ask("latency bytes=1024 pause_us=0 count=1")
                self.assertIn("--checksums=false", command_of(stage.plain.workers[0].process.pid))
                self.assertIn("--checksums=true", command_of(stage.checked.workers[0].process.pid))
                server, worker = (
                    stage.plain.daemons[1].process.pid,
                    stage.plain.workers[0].process.pid,
                )
                self.assertEqual(
                    connected, bool(tcp_ports(server, local=True) & tcp_ports(worker, local=False))
                )


class ModelTest(unittest.TestCase):
    def test_a_models_round_stands_beside_the_same_bytes_in_equal_parts(self):
        report, _ = bench_json(
            "--quick",
            "--transports",
            "tcp",
            "--shapes",
            "1x1",
            "--sizes",
            "4Ki",
            "--model",
            "resnet50",
        )
        entry = report["results"][-1]
        self.assertLessEqual(PROMISED | {"model"}, set(entry))
        self.assertEqual(
            ("model_round", "resnet50", 4 * 25557032),
            (entry["op"], entry["model"], entry["model_bytes"]),
        )
        self.assertAlmostEqual(entry["round_ms"] / entry["round_4mib_ms"], entry["ratio_to_4mib"])
        self.assertAlmostEqual(
            1e-6 * entry["model_bytes"] / entry["round_ms"], entry["goodput_gbps"]
        )


class LendingTest(unittest.TestCase):
    def test_lent_gradients_stand_beside_copied_ones(self):
        report, result = bench_json(
            "--lend", "--quick", "--transports", "tcp", "--sizes", "4Ki", "--model", "resnet50"
        )
        self.assertEqual(
            [("4 KiB", "none"), ("resnet50", "none"), ("resnet50", "1bit")],
            [(row["tensors"], row["codec"]) for row in report["results"]],
        )
        for row in report["results"]:
            self.assertEqual("lending", row["op"])
            self.assertAlmostEqual(row["lent_gbps"] / row["copied_gbps"], row["lent_to_copied"])
        self.assertIn("gradients that are lent", result.stdout)
        report_tables.check(report)


class CurveTest(unittest.TestCase):
    def test_a_job_with_keys_stands_beside_one_without(self):
        report, result = bench_json("--curve", "--quick", "--sizes", "4Ki", "--model", "resnet50")
        self.assertEqual(
            [("4 KiB", "none", ""), ("resnet50", "1bit", "1gbit")],
            [(row["tensors"], row["codec"], row["link"]) for row in report["results"]],
        )
        for row in report["results"]:
            self.assertEqual("curve", row["op"])
            self.assertAlmostEqual(row["curve_gbps"] / row["plain_gbps"], row["curve_to_plain"])
            self.assertGreaterEqual(row["plain_cpu_ns_per_byte"], 0.0)
        self.assertIn("CURVE CPU ns/B", result.stdout)
        report_tables.check(report)


class FlagsTest(unittest.TestCase):
    def refused(self, *arguments):
        result = run_bench(*arguments)
        self.assertEqual(2, result.returncode, result.stderr)
        return result.stderr

    def test_curve_is_tcps_alone(self):
        self.assertIn("only tcp is encrypted", self.refused("--curve", "--transports", "ipc"))

    def test_wrong_lists_are_refused_with_what_was_expected(self):
        for value in ("", "4", "4Gi", "1Mi,", "many", "-4Ki", "2048Mi", "514"):
            self.assertIn("got \"", self.refused("--sizes=" + value))
        for value in ("1", "0x1", "1x17", "2x2,", "x"):
            self.assertIn("expected workers x servers", self.refused("--shapes=" + value))
        self.assertIn(
            "expected some of tcp,ipc,shm, got \"udp\"", self.refused("--transports", "tcp,udp")
        )
        for value in ("0", "-1", "soon", "61", "nan"):
            self.assertIn(
                "expected 0.001 to 60.0, got \"%s\"" % value, self.refused("--seconds=" + value)
            )
        self.assertIn("expected 1 to 99, got \"0\"", self.refused("--repeats=0"))
        self.assertIn("did you mean --sizes?", self.refused("--size", "4Ki"))
        self.assertIn(
            "--model: expected names with commas between them, got \"\"", self.refused("--model=")
        )
        self.assertIn("--model: \"vgg16\" is there twice", self.refused("--model=vgg16,vgg16"))
        self.assertIn(
            "--transports: \"tcp\" is there twice", self.refused("--transports=tcp,ipc,tcp")
        )

    def test_sizes_are_bytes_with_or_without_units(self):
        self.assertEqual([4096, 4096, 4096, 1 << 20, 512], bench.size_list("4Ki,4KiB,4096,1Mi,512"))

    def test_unknown_models_are_refused_before_anything_is_measured(self):
        error = self.refused("--quick", "--model", "resnet50,resnet51")
        self.assertIn("--model: expected none or some of ", error)
        self.assertIn("got \"resnet51\"", error)
        self.assertIn("vgg16", error)
        self.assertNotIn("push_pull", error)

    def test_a_missing_program_and_a_file_that_cannot_be_written_are_named(self):
        result = run_bench("--quick", "--programs", "/no/such/folder")
        self.assertEqual(1, result.returncode)
        self.assertIn("cannot run /no/such/folder/", result.stderr)
        error = self.refused("--quick", "--json", "/no/such/folder/x.json")
        self.assertIn("--json: cannot write /no/such/folder/x.json: No such file", error)
        self.assertNotIn("push_pull", error)
        self.assertIn("--json: cannot write /tmp: not a file", self.refused("--json", "/tmp"))


class EndTest(unittest.TestCase):
    """No process stays, whatever happens."""

    def long_bench(self, shape, processes_of_it):
        process = subprocess.Popen(
            COMMAND
            + [
                "--transports",
                "tcp",
                "--shapes",
                shape,
                "--sizes",
                "4Ki",
                "--seconds",
                "60",
                "--model",
                "none",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        children = wait_for(
            lambda: len(children_of(process.pid)) == processes_of_it and children_of(process.pid),
            "the processes",
        )
        return process, children

    def test_a_daemon_that_dies_is_named_and_everything_ends(self):
        process, children = self.long_bench("2x2", 2 * 5 + 4)
        server = next(pid for pid in children if command_of(pid)[0].endswith("slimps_server"))
        os.kill(server, signal.SIGKILL)
        _, error = process.communicate(timeout=60)
        self.assertEqual(1, process.returncode)
        self.assertRegex(
            error, r"slimps: server\d of the job tcp 2x2 with(out)? checksums was killed by SIGKILL"
        )
        wait_for(lambda: not any(alive(pid) for pid in children), "their end")

    def test_signals_end_everything(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            process, children = self.long_bench("1x1", 2 * 3 + 2)
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(status, process.returncode)
            wait_for(lambda: not any(alive(pid) for pid in children), "their end")

    def test_a_refused_command_is_told_in_the_programs_words(self):
        with processes.Processes() as party:
            with self.assertRaisesRegex(
                setup.SetupError, "(?s)raw client.*exited with status 1.*pong"
            ):
                with runs.RawPeers(party, programs()["bench_raw_zmq"], "ipc", 1, 1) as raw:
                    self.assertEqual(
                        3, len(raw.ask("ping bytes=300 pause_us=0 count=3")[0]["samples_us"])
                    )
                    raw.ask("pong bytes=300 count=3")

    def test_raw_peers_stream_both_ways_over_several_servers(self):
        with processes.Processes() as party, runs.RawPeers(
            party, programs()["bench_raw_zmq"], "ipc", 2, 3
        ) as raw:
            for kind in ("one_way", "two_way", "two_way"):
                answers = raw.ask("%s bytes=5000 window=7 count=1000" % kind)
                self.assertEqual(2, len(answers))
                self.assertTrue(all(answer["seconds"] > 0 for answer in answers))


if __name__ == "__main__":
    unittest.main()
