# SPDX-License-Identifier: Apache-2.0
"""The systems of slimps bench cluster, and their bound."""

import argparse
import unittest

from bench.cluster import cluster_bench as cluster
from bench.cluster import bound
from bench.cluster import systems


class SystemsTest(unittest.TestCase):
    def test_those_of_the_list_are_there(self):
        for name in (
            "fp32",
            "1bit",
            "2bit",
            "1bit_2way",
            "1bit_on_device",
            "2bit_on_device",
            "terngrad",
            "topk10",
            "dgc10",
            "slimgc_1bit",
            "slimgc_2bit",
            "slimgc_1bit_2way",
            "bf16",
            "powersgd4",
            "thc",
            "lgreco",
            "lgreco_time",
            "joint",
        ):
            self.assertEqual(name, systems.find(name).name)

    def test_bf16_has_all_of_slimgc_but_its_codec_and_measured_thresholds(self):
        bf16, slimgc = systems.find("bf16")._asdict(), systems.find("slimgc_1bit_2way")._asdict()
        self.assertEqual(
            {"name", "says", "compression", "pull", "threshold", "pull_threshold"},
            {field for field in bf16 if bf16[field] != slimgc[field]},
        )
        self.assertEqual(("bf16", "bf16"), (bf16["compression"], bf16["pull"]))
        self.assertFalse(systems.is_automatic(systems.find("bf16")))

    def test_each_step_of_the_ladder_changes_one_mechanism(self):
        steps = [
            "1bit_on_device",
            "ladder_threshold",
            "ladder_offload",
            "ladder_backup",
            "ladder_coalescing",
            "ladder_priorities",
            "slimgc_1bit_2way",
        ]
        changed = []
        for before, after in zip(steps, steps[1:]):
            one, other = systems.find(before)._asdict(), systems.find(after)._asdict()
            changed.append(
                {field for field in one if one[field] != other[field]} - {"name", "says"}
            )
        self.assertEqual(
            [
                {"threshold"},
                {"device_ns"},
                {"backup"},
                {"coalesce"},
                {"prioritise"},
                {"pull", "pull_threshold"},
            ],
            changed,
        )
        same = systems.find("slimgc_1bit")._asdict()
        same.update(name="ladder_priorities", says=systems.find("ladder_priorities").says)
        self.assertEqual(same, systems.find("ladder_priorities")._asdict())

    def test_a_threshold_after_the_name_holds_for_pulls_too(self):
        found = systems.find("slimgc_1bit_2way@65536")
        self.assertEqual(
            ("slimgc_1bit_2way@65536", "65536", "65536"),
            (found.name, found.threshold, found.pull_threshold),
        )
        self.assertFalse(systems.is_automatic(found))
        self.assertTrue(systems.is_automatic(systems.find("slimgc_1bit@auto")))
        self.assertEqual("none", systems.find("slimgc_1bit@none").threshold)

    def test_a_policy_decides_without_a_threshold(self):
        for name in ("lgreco", "lgreco_time", "joint"):
            found = systems.find(name)
            self.assertTrue(systems.decides(found))
            self.assertFalse(systems.is_automatic(found))  # no threshold is measured beforehand
            flags = systems.worker_flags(found)
            self.assertIn("--policy=" + found.policy, flags)
            self.assertIn("--compression=none", flags)
            self.assertIn("--threshold=auto", flags)
            self.assertIn("--pull_compression=policy", flags)
            with self.assertRaisesRegex(ValueError, "policy decides, so it has no threshold"):
                systems.find(name + "@65536")
        self.assertFalse(systems.decides(systems.find("thc")))

    def test_figures_begin_after_decisions_and_after_a_policy_has_settled(self):
        class Recorded(cluster.Bench):
            def __init__(self):
                self.options = argparse.Namespace(iterations=5, changes=(), overlap_forward=False)

            def job(self, flags, **_):
                return flags

            def figures(self, entry, reports, said):
                return [flag for flag in reports if flag.startswith("--warmup=")]

        expected = {"fp32": 4, "thc": 4, "slimgc_1bit": 24, "lgreco": 44, "joint": 44}
        for name, rounds in expected.items():
            found = Recorded().measure(systems.find(name), "resnet50", 1.0)
            self.assertEqual(["--warmup=%d" % rounds], found, name)

    def test_wrong_thresholds_are_refused(self):
        for text in ("slimgc_1bit@", "slimgc_1bit@-1", "slimgc_1bit@64Ki", "1bit@1.5"):
            with self.assertRaisesRegex(ValueError, "expected bytes, auto or none after @"):
                systems.find(text)
        with self.assertRaisesRegex(ValueError, "fp32 compresses nothing"):
            systems.find("fp32@0")

    def test_flags_say_all_that_a_system_is(self):
        flags = systems.worker_flags(systems.find("slimgc_1bit_2way"))
        self.assertEqual(
            [
                "--compression=1bit",
                "--threshold=auto",
                "--pull_compression=1bit",
                "--pull_threshold=auto",
                "--policy=threshold",
                "--coalesce=true",
                "--prioritise=true",
                "--backup_model=true",
                "--device_encode_ns=0.000000",
            ],
            flags,
        )
        self.assertIn(
            "--device_encode_ns=0.626051", systems.worker_flags(systems.find("1bit_on_device"))
        )


class BoundTest(unittest.TestCase):
    FP32 = bound.Round(
        workers=2,
        gradient=100,
        compressed=0,
        pull_compressed=0,
        payload_out=100,
        payload_in=100,
        backup=False,
        encodes_on_cpu=True,
    )

    def worker(self, job):
        return dict(bound.worker_stages(job))

    def server(self, job):
        return dict(bound.server_stages(job))

    def test_fp32_copies_sends_receives_and_updates(self):
        self.assertEqual([200, 0, 200, 200, 0, 0, 0], list(self.worker(self.FP32).values()))
        # The server receives from two workers, reads two payloads, reads and writes weights, and
        # sends to two.
        self.assertEqual([400, 400, 0, 400], list(self.server(self.FP32).values()))
        self.assertEqual(2 * 600 + 1200, bound.touched_bytes(self.FP32))

    def test_a_codec_reads_gradient_and_residual_and_writes_residual_and_payload(self):
        # 80 of 100 bytes become 5.
        job = self.FP32._replace(compressed=80, payload_out=25)
        self.assertEqual(3 * 80 + 5, self.worker(job)["encode"])
        self.assertEqual(0, self.worker(job._replace(encodes_on_cpu=False))["encode"])
        self.assertEqual(2 * 25, self.worker(job)["send: into the kernel"])
        self.assertEqual(
            2 * 25 + 2 * 100, self.server(job)["aggregate and update: payloads to weights"]
        )

    def test_what_is_shared_goes_through_no_kernel(self):
        job = self.FP32._replace(shared=0.5)
        # Raw weights are copied out of shared memory. The other bytes are halved.
        self.assertEqual([200, 0, 100, 100, 100, 0, 0], list(self.worker(job).values()))
        self.assertEqual([200, 400, 0, 200], list(self.server(job).values()))
        compressed = job._replace(pull_compressed=80, payload_in=25)
        self.assertEqual(
            2 * 0.5 * 20, self.worker(compressed)["receive: raw weights out of shared memory"]
        )
        self.assertEqual(2 * 0.5 * 25, self.worker(compressed)["receive: out of the kernel"])

    def test_one_of_the_nodes_servers_is_the_workers_own_or_none_is(self):
        self.assertEqual(0.25, bound.shared_of("shm", "together", 4))
        self.assertEqual(
            [0, 0, 0],
            [
                bound.shared_of("ipc", "together", 4),
                bound.shared_of("tcp", "together", 4),
                bound.shared_of("shm", "apart", 4),
            ],
        )

    def test_compressed_pulls_are_encoded_once_and_decoded_by_each(self):
        job = self.FP32._replace(pull_compressed=80, payload_in=25)
        self.assertEqual(2 * 80 + 5, self.worker(job)["decode"])
        self.assertEqual(3 * 80 + 5, self.server(job)["encode the change"])
        self.assertEqual(2 * 2 * 25, self.server(job)["send: into the kernel"])

    def test_the_backup_model_reads_two_and_writes_one(self):
        added = bound.touched_bytes(self.FP32._replace(backup=True)) - bound.touched_bytes(
            self.FP32
        )
        self.assertEqual(2 * 300, added)

    def test_times_follow_rates(self):
        self.assertEqual(1e3 * 2400 / 1200 / 2, bound.cpu_ms(self.FP32, 1200, 2))
        self.assertEqual(8.0, bound.wire_ms(1e6, 1e9))
        self.assertEqual(0.0, bound.wire_ms(1e6, None))
        self.assertEqual(7, bound.bound_ms(5, 7, 6))

    def test_a_models_compute_is_the_same_on_every_link(self):
        options = argparse.Namespace(compute_ms=None)
        for options.bits in (1e9, 1e8, None):
            self.assertAlmostEqual(161.26, cluster.compute_ms(options, 4 * 25557032, 5.07), 1)
        options.compute_ms = 5.0
        self.assertEqual(5.0, cluster.compute_ms(options, 1, 1))


if __name__ == "__main__":
    unittest.main()
