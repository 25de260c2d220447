# SPDX-License-Identifier: Apache-2.0
"""slimps bench cluster: small real runs where network namespaces can be made.

No figure is judged here.
"""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import unittest

from bench.cluster import net
from bench import report_tables
from eventually import eventually

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOLS = os.path.join(ROOT, "tools")
PROGRAMS = os.path.abspath(".")  # the runfiles, where tests start

FIELDS = [
    "system",
    "model",
    "link",
    "iteration_ms",
    "compute_ms",
    "encode_ms",
    "encode_exposed_ms",
    "overlap_ms",
    "wire_bytes_out",
    "wire_bytes_in",
    "wire_ms_at_link_rate",
    "bound_ms",
    "fraction_of_bound",
    "speedup_over_1bit",
    "speedup_over_fp32",
    "threshold_bytes",
]
WHY_NOT = net.why_not()


def command(*arguments):
    return [os.path.join(TOOLS, "slimps"), "bench", "cluster", "--programs=" + PROGRAMS, *arguments]


def bench(*arguments):
    return subprocess.run(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )


class NetworkTest(unittest.TestCase):
    def test_rates_are_in_bits(self):
        self.assertEqual(1e9, net.bits_per_second("1gbit"))
        self.assertEqual(2.5e9, net.bits_per_second("2.5gbit"))
        self.assertEqual(1e8, net.bits_per_second("100mbit"))

    def test_leftovers_are_those_of_runs_that_are_no_more(self):
        names = [
            "slimpsb12-hub",
            "slimpsb12-n0",
            "slimpsb13-hub",
            "other",
            "slimpsbx-hub",
            "slimpsb14",
        ]
        self.assertEqual(
            ["slimpsb12-hub", "slimpsb12-n0"], net.leftovers(names, alive=lambda pid: pid != 12)
        )

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_a_link_is_shaped_at_both_ends_and_gone_afterwards(self):
        with net.Network(2) as network:
            network.shape("100mbit")
            for name, device in [(network.name(1), net.INTERFACE), (network.name(net.HUB), "p1")]:
                self.assertIn("tbf", net.run(["tc", "-n", name, "qdisc", "show", "dev", device]))
                self.assertIn(
                    "rate 100Mbit burst 64Kb",
                    net.run(["tc", "-n", name, "qdisc", "show", "dev", device]),
                )
            for name, device in [(network.name(1), net.INTERFACE), (network.name(net.HUB), "br0")]:
                self.assertIn(
                    "gso_max_size 32768",
                    net.run(["ip", "-n", name, "-d", "link", "show", "dev", device]),
                )
            network.shape("unshaped")
            self.assertNotIn("tbf", net.run(["tc", "-n", network.name(0), "qdisc", "show"]))
            self.assertIn("congctl cubic", net.run(["ip", "-n", network.name(0), "route"]))
            self.assertIn(network.name(0), net.namespaces())
        self.assertFalse([name for name in net.namespaces() if name.startswith(network.prefix)])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class RunTest(unittest.TestCase):
    """Real unshaped jobs of the smallest model."""

    SMALL = ("--model=inception_bn", "--compute_ms=3", "--iterations=2")

    def left(self):
        return net.leftovers(net.namespaces())

    def test_systems_are_measured_side_by_side(self):
        with tempfile.TemporaryDirectory() as folder:
            path, profiles = os.path.join(folder, "out.json"), os.path.join(folder, "profiles.json")
            with open(profiles, "w", encoding="utf-8") as out:
                json.dump(
                    {
                        "inception_bn 200mbit together 2 shm 1bit none": {
                            "threshold": 65536,
                            "pull_threshold": None,
                        }
                    },
                    out,
                )
            result = bench(
                *self.SMALL,
                "--link=200mbit",
                "--systems=fp32,1bit,slimgc_1bit",
                "--json",
                path,
                "--profiles",
                profiles,
            )
            self.assertEqual(0, result.returncode, result.stderr)
            with open(path, encoding="utf-8") as text:
                report_of_run = json.load(text)
        rows = {entry["system"]: entry for entry in report_of_run["results"]}
        self.assertEqual({"fp32", "1bit", "slimgc_1bit"}, set(rows))
        for entry in rows.values():
            self.assertEqual(FIELDS, list(entry)[: len(FIELDS)])
            self.assertGreater(entry["iteration_ms"], entry["compute_ms"])
            self.assertTrue(entry["workers_are_identical"])
        # Half of what each worker pushes and pulls goes to its own node. Large payloads go by
        # shared memory.
        gradient = 4 * 11295240
        self.assertGreater(rows["fp32"]["shared_bytes"], 0.7 * gradient)
        self.assertLess(rows["fp32"]["shared_bytes"], 1.2 * gradient)
        # The node's server has half of the model's weights.
        self.assertGreater(rows["fp32"]["borrowed_rss_bytes"], 0.2 * gradient)
        self.assertLess(rows["fp32"]["borrowed_rss_bytes"], 0.9 * rows["fp32"]["max_rss_bytes"])
        self.assertGreater(rows["fp32"]["wire_bytes_out"], 0.8 * gradient)
        self.assertLess(rows["1bit"]["payload_bytes_out"], 0.05 * gradient)
        self.assertGreater(rows["1bit"]["payload_bytes_in"], 0.9 * gradient)
        self.assertEqual(
            [None, 0, 65536],
            [rows[name]["threshold_bytes"] for name in ("fp32", "1bit", "slimgc_1bit")],
        )
        self.assertIn("inception_bn", result.stdout)
        self.assertEqual([], self.left())

    def test_fixed_thresholds_run_beside_the_tables_choice(self):
        with tempfile.TemporaryDirectory() as folder:
            path, profiles = os.path.join(folder, "out.json"), os.path.join(folder, "profiles.json")
            with open(profiles, "w", encoding="utf-8") as out:
                json.dump(
                    {
                        "inception_bn unshaped together 2 shm 1bit 1bit": {
                            "threshold": 4096,
                            "pull_threshold": 512,
                        }
                    },
                    out,
                )
            result = bench(
                *self.SMALL,
                "--link=unshaped",
                "--systems=slimgc_1bit_2way",
                "--fixed_thresholds=none",
                "--repeats=3",
                "--json",
                path,
                "--profiles",
                profiles,
            )
            self.assertEqual(0, result.returncode, result.stderr)
            with open(path, encoding="utf-8") as text:
                told = json.load(text)
        report_tables.check(told)
        self.assertEqual("cluster unshaped thresholds", told["bench"])
        self.assertEqual(
            [("auto", 4096, 512), ("none", None, None)],
            [
                (
                    entry["threshold_setting"],
                    entry["threshold_bytes"],
                    entry["pull_threshold_bytes"],
                )
                for entry in told["results"]
            ],
        )
        for entry in told["results"]:
            self.assertEqual(
                statistics.median(entry["iteration_ms_of_repeats"]), entry["iteration_ms"]
            )
            self.assertEqual(3, len(entry["iteration_ms_of_repeats"]))
        self.assertIn("the table's choice beside fixed thresholds", result.stdout)
        # Raw pulls fill the way back.
        compressed, raw = told["results"]
        self.assertLess(10 * compressed["payload_bytes_in"], raw["payload_bytes_in"])
        self.assertLess(10 * compressed["payload_bytes_out"], raw["payload_bytes_out"])

    def test_policies_decide_in_the_run_and_say_why(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = bench(
                *self.SMALL, "--link=unshaped", "--systems=thc,lgreco,joint", "--json", path
            )
            self.assertEqual(0, result.returncode, result.stderr)
            with open(path, encoding="utf-8") as text:
                told = json.load(text)
        report_tables.check(told)
        thc, lgreco, joint = told["results"]
        gradient = 4 * 11295240
        self.assertLess(thc["payload_bytes_out"], 0.2 * gradient)
        # Pulls of the last of the two iterations may be under way when it ends.
        self.assertGreater(thc["payload_bytes_in"], 0.45 * gradient)
        self.assertLess(lgreco["payload_bytes_out"], 0.1 * gradient)
        self.assertLess(lgreco["payload_bytes_in"], 0.1 * gradient)
        for entry in told["results"]:
            self.assertTrue(entry["workers_are_identical"])
        for entry in (lgreco, joint):
            self.assertTrue(entry["policy"].startswith(entry["system"] + ":"))
            lines = [each["line"] for each in entry["decisions"]]
            self.assertTrue([line for line in lines if " reason=%s:" % entry["system"] in line])
            self.assertIn(entry["policy"], result.stdout)

    def test_a_link_changes_after_the_first_decision_and_decisions_are_told(self):
        result = bench(
            "--model=alexnet",
            "--compute_ms=1",
            "--iterations=3",
            "--link=unshaped",
            "--systems=slimgc_1bit",
            "--change_link=0:400mbit,0.01:unshaped",
        )
        self.assertEqual(0, result.returncode, result.stderr)
        said = [line.split() for line in result.stderr.splitlines() if " s  " in line]
        names = [words[2] for words in said]
        self.assertRegex(names[0], "worker[01]:")
        self.assertEqual(
            ["400mbit", "unshaped"], [words[3] for words in said if words[2] == "link:"]
        )
        decision = next(words for words in said if words[3] == "decision")
        self.assertEqual("version=1", decision[4])
        self.assertRegex(decision[6], "^from_round=[1-9]")

    def test_a_round_trip_is_told_and_lasts_through_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            flags = ("--link=1gbit", "--rtt_ms=40", "--systems=fp32")
            result = bench(*self.SMALL, *flags, "--json", path)
            self.assertEqual(0, result.returncode, result.stderr)
            with open(path, encoding="utf-8") as text:
                made = json.load(text)
        report_tables.check(made)
        self.assertEqual(("cluster 1gbit rtt 40ms", 40.0), (made["bench"], made["rtt_ms"]))
        self.assertGreaterEqual(made["measured_rtt_ms"], 40.0)
        self.assertGreaterEqual(made["results"][0]["iteration_ms"], 40.0)
        self.assertIn("1gbit with a round trip of 40 ms (measured 4", result.stdout)
        self.assertFalse(self.left())

    def start(self):
        """Returns (a run whose jobs would take hours, the name of its first node, the processes
        there)."""
        run = subprocess.Popen(
            command(*self.SMALL, "--link=20mbit", "--systems=fp32", "--iterations=1000"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Tests that run in the background inherit an ignored SIGINT, which the run would keep.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        name = "slimpsb%d-n0" % run.pid

        def two_pids():  # one alone may be a tool that sets the node up
            pids = [int(pid) for pid in net.run(["ip", "netns", "pids", name], check=False).split()]
            return pids if len(pids) == 2 else None

        pids = eventually(two_pids)
        self.assertIsNotNone(pids)
        return run, name, pids

    def test_a_killed_run_leaves_nothing_that_the_next_does_not_remove(self):
        run, name, pids = self.start()
        run.kill()
        run.wait()
        self.assertTrue(eventually(lambda: not any(net.is_alive(pid) for pid in pids)))
        self.assertIn(name, net.namespaces())
        with net.Network(1):
            pass
        self.assertNotIn(name, net.namespaces())

    def test_an_interrupted_run_removes_its_nodes_and_names_no_error(self):
        for number, status in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)):
            run, _, pids = self.start()
            run.send_signal(number)
            self.assertEqual(status, run.wait(timeout=60))
            self.assertFalse([left for left in self.left() if str(run.pid) in left])
            self.assertFalse([pid for pid in pids if net.is_alive(pid)])

    def test_a_node_that_dies_ends_the_run_and_is_named(self):
        run = subprocess.Popen(
            command(*self.SMALL, "--link=20mbit", "--systems=fp32", "--iterations=1000"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(run.kill)
        name = "slimpsb%d-n1" % run.pid

        def server():
            for pid in net.run(["ip", "netns", "pids", name], check=False).split():
                try:
                    with open("/proc/%s/comm" % pid, encoding="ascii") as comm:
                        if comm.read().startswith("slimps_server"):
                            return int(pid)
                except OSError:
                    pass
            return None

        os.kill(eventually(server), signal.SIGKILL)
        error = run.communicate(timeout=60)[1]
        self.assertEqual(1, run.returncode)
        self.assertIn("server1 was killed by SIGKILL", error)
        self.assertFalse([left for left in self.left() if str(run.pid) in left])


if __name__ == "__main__":
    unittest.main()
