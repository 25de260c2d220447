# SPDX-License-Identifier: Apache-2.0
"""--rtt_ms of slimps bench cluster and bench torch: its errors, what reports say, and real links
where network namespaces can be made."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import types
import unittest
from unittest import mock

from bench import report_tables
from bench.cluster import cluster_bench
from bench.cluster import cluster_options
from bench.cluster import net
from bench.link import round_trip
from bench.torch import torch_bench
from cli import setup
from eventually import eventually

PROGRAM = os.path.abspath(round_trip.PROGRAM["bench_switch"][1])
WHY_NOT = net.why_not()
# A run that says the process of its switch, and then waits to be killed.
WAITS = """
from bench.cluster import net
from bench.link import round_trip
with net.Network(2, switch=round_trip.Switch("%s", 20.0)) as network:
    print(network.switch.process.pid, network.name(net.HUB), flush=True)
    input()
"""


def torch_report(**fields):
    return {
        "bench": "torch 1gbit",
        "link": "1gbit",
        "nodes": 2,
        "steps": 12,
        "repeats": 3,
        "threshold": "4096",
        "cores": 2,
        "results": [],
        **fields,
    }


class FlagTest(unittest.TestCase):
    def test_what_is_no_round_trip_is_refused_by_both_benches(self):
        for bench in (cluster_bench, torch_bench):
            for value in ("-1", "300.5", "1e9", "nan", "inf", "20ms", ""):
                said = io.StringIO()
                with contextlib.redirect_stderr(said), mock.patch.object(
                    net, "run", side_effect=AssertionError
                ), self.assertRaises(SystemExit) as ended:
                    bench.main(["--rtt_ms=" + value])
                self.assertEqual(2, ended.exception.code)
                self.assertIn(
                    'argument --rtt_ms: expected 0 to 300.0, got "%s"' % value, said.getvalue()
                )

    def test_by_default_nothing_is_held_and_no_program_is_needed(self):
        for module in (cluster_options, torch_bench):
            options = module.make_parser().parse_args([])
            self.assertEqual({}, round_trip.program(options))
            self.assertIsNone(round_trip.switch_of(options, {}))
            self.assertEqual("", round_trip.name_of(options))
            options = module.make_parser().parse_args(["--rtt_ms=2.5"])
            self.assertEqual(" rtt 2.5ms", round_trip.name_of(options))
            self.assertEqual(2.5, round_trip.switch_of(options, {"bench_switch": PROGRAM}).rtt_ms)

    def test_a_report_says_what_was_wanted_and_measured(self):
        link = {
            "rtt_ms": 20.0,
            "measured_rtt_ms": 20.31,
            "measured_mbit_per_s": 955.7,
            "lost_packets": 3,
        }
        says = (
            "1gbit with a round trip of 20 ms (measured 20.3 ms and 956 Mbit/s, 3 packets lost), "
        )
        for name in (
            "torch 1gbit rtt 20ms",
            "cluster 1gbit rtt 20ms",
            "cluster 1gbit rtt 20ms budgets",
        ):
            made = torch_report(
                **{**link, "bench": name}, placement="together", congestion="cubic", iterations=10
            )
            report_tables.check(made)
            self.assertIn(says, report_tables.text(made))
            self.assertIn("nodes, 1gbit, ", report_tables.text({**made, "rtt_ms": 0.0}))
            with self.assertRaisesRegex(ValueError, "rtt_ms: expected a number"):
                report_tables.check({**made, "rtt_ms": "20ms"})
        with self.assertRaisesRegex(ValueError, "bench: expected cluster LINK"):
            report_tables.check({**made, "bench": "cluster 1gbit rtt 20ms soon"})


@unittest.skipIf(WHY_NOT, WHY_NOT)
class LinkTest(unittest.TestCase):
    OPTIONS = types.SimpleNamespace(rtt_ms=20.0, link="100mbit")

    def network(self, nodes=2):
        return net.Network(nodes, switch=round_trip.Switch(PROGRAM, self.OPTIONS.rtt_ms))

    def test_a_round_trip_takes_its_time_and_a_transfer_gets_the_rate(self):
        with self.network() as network:
            found = round_trip.measure(network, self.OPTIONS)
            self.assertEqual(20.0, found["rtt_ms"])
            self.assertGreaterEqual(found["measured_rtt_ms"], 20.0)
            self.assertLess(found["measured_rtt_ms"], 200.0)
            self.assertGreater(found["measured_mbit_per_s"], 50.0)
            self.assertLess(found["measured_mbit_per_s"], 200.0)
            self.assertEqual({"lost_packets": 0}, round_trip.losses(network, self.OPTIONS))

    def test_a_cable_can_be_pulled_and_put_back(self):
        with self.network(3) as network:
            for state in ("down", "up"):
                network.set_link(2, state)
                network.switch.lost()  # it is still there
            found = round_trip.measure(network, self.OPTIONS)  # of the two others
            self.assertGreater(found["measured_mbit_per_s"], 50.0)

    def test_the_hub_is_as_far_as_a_node(self):
        with self.network(1) as network:
            address = network.address(net.HUB)
            probe = round_trip.PROBE
            with subprocess.Popen(
                network.command(net.HUB, probe + ["listen", address]), stdout=subprocess.PIPE
            ) as listener:
                listener.stdout.readline()
                found = net.run(network.command(0, probe + ["connect", address, "0"]))
                listener.kill()
            self.assertGreaterEqual(json.loads(found)["measured_rtt_ms"], 20.0)

    def test_nothing_is_left_of_a_run_that_is_killed(self):
        with subprocess.Popen(
            [sys.executable, "-c", WAITS % PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as run:
            pid, hub = run.stdout.readline().split()
            self.assertTrue(net.is_alive(int(pid)))
            run.send_signal(signal.SIGKILL)
            run.wait()
            self.assertTrue(eventually(lambda: not net.is_alive(int(pid))))
        self.assertIn(hub, net.namespaces())
        with net.Network(1):
            pass
        self.assertNotIn(hub, net.namespaces())

    def test_a_switch_that_cannot_work_is_named(self):
        for program in ("/no/such/switch", "false"):
            with self.assertRaisesRegex(setup.SetupError, "bench_switch has ended"):
                with net.Network(1, switch=round_trip.Switch(program, 20.0)):
                    self.fail("it began")
        with self.network(1) as network:
            network.switch.process.kill()
            with self.assertRaisesRegex(setup.SetupError, "bench_switch has ended"):
                network.switch.lost()


if __name__ == "__main__":
    unittest.main()
