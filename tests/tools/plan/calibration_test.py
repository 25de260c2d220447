# SPDX-License-Identifier: Apache-2.0
"""Calibrations: how one is made of reports, which files are refused, and with what advice."""

import copy
import dataclasses
import json
import os
import tempfile
import unittest
from unittest import mock

import small_jobs
import small_reports
from plan import answer, calibrate, calibration
from slimps_launch import errors, out_files


class FileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "ours.json")
        self.content = small_reports.content()

    def refused(self, content):
        out_files.save_json(self.path, content)
        with self.assertRaises(calibration.Refused) as refused:
            calibration.load(self.path)
        said = str(refused.exception)
        self.assertTrue(said.startswith(self.path + ": "), said)
        self.assertTrue(
            said.endswith("measure again: slimps plan --calibrate --calibration " + self.path), said
        )
        return said

    def test_what_was_saved_is_loaded(self):
        out_files.save_json(self.path, self.content)
        self.assertEqual(self.content, calibration.load(self.path))

    def test_a_changed_number_is_damage(self):
        content = copy.deepcopy(self.content)
        content["codecs"][0]["encode_us"] += 1
        self.assertIn("damaged: its checksum disagrees", self.refused(content))

    def test_a_missing_field_is_named(self):
        content = copy.deepcopy(self.content)
        del content["memory"]["copy_ns_per_byte"]
        self.assertIn(
            "damaged: memory.copy_ns_per_byte: expected a number above 0, got nothing",
            self.refused(content),
        )

    def test_other_files_are_no_calibrations(self):
        for content, said in (
            ({}, "not a calibration"),
            ([1], "not a calibration"),
            ({"slimps_calibration": 1}, "version 1 of the file, expected 4"),
        ):
            self.assertIn(said, self.refused(content))
        with open(self.path, "w", encoding="utf-8") as out:
            out.write(json.dumps(self.content)[:-20])
        with self.assertRaisesRegex(calibration.Refused, "not JSON"):
            calibration.load(self.path)
        with self.assertRaisesRegex(calibration.Refused, "cannot read it: No such file"):
            calibration.load(self.path + ".gone")

    def test_the_baseline_must_have_been_measured(self):
        content = {name: self.content[name] for name in self.content if name != "sha256"}
        content["codecs"] = [row for row in content["codecs"] if row["codec"] != "bf16"]
        self.assertIn("codec bf16 was not measured", self.refused(calibration.sealed(content)))

    def test_a_calibration_of_no_machine_is_damage(self):
        content = {name: self.content[name] for name in self.content if name != "sha256"}
        content["machines"] = []
        self.assertIn(
            "damaged: machines: expected at least one", self.refused(calibration.sealed(content))
        )

    def test_another_machine_is_refused_by_both_names(self):
        calibration.check_machine(self.content, dict(small_reports.MACHINE), self.path)
        other = dict(small_reports.MACHINE, cores=9)
        with self.assertRaises(calibration.Refused) as refused:
            calibration.check_machine(self.content, other, self.path)
        said = str(refused.exception)
        self.assertIn("a calibration of A CPU, 4 cores, 16 GiB, and this is A CPU, 9 cores", said)
        self.assertIn("--calibrate", said)
        self.assertIn("--other_machine", said)

    def test_this_machine_is_told_by_what_it_has(self):
        machine = calibration.this_machine()
        self.assertEqual({"cpu", "cores", "memory_gib"}, set(machine))
        self.assertEqual(os.cpu_count(), machine["cores"])


class MadeTest(unittest.TestCase):
    def test_times_are_by_codec_and_size(self):
        costs = calibration.costs_of(small_reports.content())
        # 4000 bytes at 2 GB/s; half way between two sizes the mean of both.
        encode = costs.codecs["1bit"].encode
        self.assertAlmostEqual(0.002, encode(1000))
        self.assertAlmostEqual(0.011, encode(5500))
        self.assertAlmostEqual(0.2, encode(100000), places=6)
        self.assertEqual(125.0, costs.codecs["1bit"].payload(1000))
        self.assertIsNone(costs.codecs["1bit"].phases)

    def test_a_codec_with_phases_is_known_where_its_phases_were_measured(self):
        content = small_reports.content()
        self.assertEqual(
            {"none", "bf16", "1bit", "powersgd4"}, {row["codec"] for row in content["codecs"]}
        )
        found = calibration.costs_of(content).codecs["powersgd4"]
        self.assertEqual("powersgd:rank=4", found.spec)
        self.assertAlmostEqual(0.065536, found.phases(16384))
        # Two payloads take 0.04096 ms, one takes 0.032768.
        self.assertAlmostEqual(0.008192, found.further(16384))

    def test_the_last_report_that_has_a_codec_counts(self):
        first, second = small_reports.codec_reports()
        first["codecs"]["powersgd4"] = {"spec": "other", "has_phases": True}
        first["results"].append(small_reports.row("powersgd4", "decode_add", 5, 1.0, 7))
        merged = calibrate.merged([first, second])
        self.assertEqual("powersgd:rank=4", merged["codecs"]["powersgd4"]["spec"])
        sizes = {row["elements"] for row in merged["results"] if row["codec"] == "powersgd4"}
        self.assertEqual({1024, 16384}, sizes)

    def test_network_costs_are_the_slowest_workers(self):
        content = small_reports.content()
        # 100 more small keys take 1 ms more of the CPU; each comes and goes.
        self.assertAlmostEqual(5.0, content["messages"]["item_us"])
        # 100 more large ones take 4 ms more, and have two messages each.
        self.assertAlmostEqual(15.0, content["messages"]["message_us"])
        # 20 ms for 16 MB each way, less 20 messages and the copies.
        self.assertAlmostEqual(19.6 / 16 / 2 - 0.1, content["messages"]["wire_ns_per_byte"])

    def test_reports_are_found_among_other_lines(self):
        lines = ["worker0| hello\n"] + [
            "worker%d| %s%s\n" % (rank, calibrate.MARK, json.dumps({"rank": rank}))
            for rank in (1, 0)
        ]
        self.assertEqual([{"rank": 0}, {"rank": 1}], calibrate.reports_of(lines))


class LinkTest(unittest.TestCase):
    """The link is the one with which a simulated job takes as long as the real one."""

    ONE = {"bytes": 64.0, "keys": 1}
    FEW = {"bytes": 4.0 * (16 << 18), "keys": 16}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.hostfile = os.path.join(folder.name, "hosts")

    def cluster(self, slots, workers, servers):
        with open(self.hostfile, "w", encoding="utf-8") as out:
            for index, count in enumerate(slots):
                out.write("host%d slots=%d\n" % (index, count))
        return calibrate.job_cluster("ssh:" + self.hostfile, workers, servers)

    def link(self, one_ms, few_ms, cluster, costs=small_jobs.FREE):
        return calibrate.link(
            {"one": {**self.ONE, "ms": one_ms}, "few": {**self.FEW, "ms": few_ms}}, cluster, costs
        )

    def test_it_is_found_wherever_the_processes_are(self):
        costs = dataclasses.replace(small_jobs.FREE, message_ms=0.02, wire_ns=0.1)
        for slots, workers, servers in (
            ([1, 1], 1, 1),
            ([2] * 2, 2, 2),
            ([2] * 4, 4, 4),
            ([1] * 5, 4, 1),
            ([4, 4], 4, 4),
        ):
            cluster = self.cluster(slots, workers, servers)
            true = dataclasses.replace(cluster, bits_per_second=2e9, round_trip_ms=0.5)
            one, few = (
                calibrate.exchange_ms(sample, true, costs) for sample in (self.ONE, self.FEW)
            )
            found = self.link(one, few, cluster, costs)
            message = "%d+%d on %s" % (workers, servers, slots)
            self.assertAlmostEqual(2.0, found["bits_per_second"] / 1e9, delta=0.05, msg=message)
            self.assertAlmostEqual(0.5, found["round_trip_ms"], delta=0.05, msg=message)

    def test_workers_of_one_server_share_its_link(self):
        # Four times 16 MiB come in 100 ms; answers leave at the same time, but for the last.
        found = self.link(0.1, 100.0, self.cluster([1] * 5, 4, 1))
        bits = 8 * 4 * self.FEW["bytes"] / 0.1
        self.assertAlmostEqual(1.0, found["bits_per_second"] / bits, delta=0.15)

    def test_the_hostfile_says_who_shares_a_node(self):
        self.assertEqual((0, 1, 2, 3, 4), self.cluster([1] * 5, 4, 1).places())
        self.assertEqual((0, 1, 0, 1), self.cluster([2, 2], 2, 2).places())
        self.assertEqual((0, 1, 0, 1), calibrate.job_cluster("slurm", 2, 2).places())
        with self.assertRaisesRegex(errors.LaunchError, "has room for 2 processes"):
            self.cluster([2], 2, 2)

    def test_on_one_machine_the_loopback_is_everybodys_link(self):
        for cluster in (calibrate.job_cluster("local", 2, 1), self.cluster([9], 2, 1)):
            self.assertEqual((0, 1, 2), cluster.places())
            self.assertTrue(cluster.one_machine)

    def test_where_the_cores_take_all_the_time_the_link_does_not_limit(self):
        costs = dataclasses.replace(small_jobs.FREE, wire_ns=10.0)
        found = self.link(0.1, 100.0, self.cluster([2, 2], 2, 2), costs)
        self.assertEqual(answer.HIGH_GBIT, found["bits_per_second"] / 1e9)


class RunTest(unittest.TestCase):
    def test_a_calibration_that_is_ended_ends_its_job(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = os.path.join(folder, "ended")
            job = "trap 'touch %s; exit 0' TERM; echo begun; sleep 60 & wait" % ended
            with mock.patch("cli.progress.note", side_effect=SystemExit(143)):
                with self.assertRaises(SystemExit):
                    calibrate.run(["sh", "-c", job], 1)
            self.assertTrue(os.path.exists(ended))


if __name__ == "__main__":
    unittest.main()
