# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes on one machine. Shared memory, a local socket and tcp give the same
bits, with keys and without."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from process_cluster import HERE, ProcessCluster

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(HERE))), "python"))

from slimps_launch.identity import keys  # noqa: E402

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
# The mlp's larger tensors have 128 KiB and 1 MiB.
TRAIN = [
    "--model",
    "mlp",
    "--dataset",
    "digits",
    "--batch",
    "64",
    "--max_steps",
    "8",
    "--log_every",
    "1",
]
MOVED = re.compile(
    r"received (\d+) bytes, (\d+) of them in shared memory; sent (\d+), (\d+) of them in shared "
    r"memory"
)
NEW_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]


def has_namespaces():
    try:
        return (
            subprocess.run(
                NEW_NAMESPACE + ["true"], stderr=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class SameHostTest(unittest.TestCase):
    def run_job(
        self, worker_flags=(), server_flags=(), servers=1, worker_prefix=(), node_keys=None
    ):
        """Runs a job. Returns its saved weights, and the bytes that the servers moved: (received,
        of it shared, sent, of it shared)."""
        weights = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "weights-%d" % os.getpid())
        flags = TRAIN + list(worker_flags) + ["--save_weights", weights]
        with ProcessCluster(
            2,
            servers,
            flags,
            server_flags=server_flags,
            worker_prefix=worker_prefix,
            keys=node_keys,
        ) as cluster:
            statuses = cluster.wait_for_all()
            outputs = {name: cluster.output(name) for name in statuses}
        self.assertEqual(set(statuses.values()), {0}, (statuses, outputs))
        moved = [0, 0, 0, 0]
        for rank in range(servers):
            found = MOVED.search(outputs["server%d" % rank])
            self.assertIsNotNone(found, outputs)
            moved = [have + int(more) for have, more in zip(moved, found.groups())]
        with open(weights, "rb") as content:
            bits = content.read()
        os.remove(weights)
        return bits, moved

    def assert_nothing_shared(self, moved):
        self.assertEqual((moved[1], moved[3]), (0, 0))
        self.assertGreater(min(moved[0], moved[2]), 1 << 20)

    def test_shared_memory_is_picked_by_itself_and_changes_no_bit(self):
        shared, moved = self.run_job()
        self.assertGreater(moved[1], moved[0] // 2, moved)
        self.assertGreater(moved[3], moved[2] // 2, moved)
        over_tcp, moved = self.run_job(["--same_host", "tcp"])
        self.assert_nothing_shared(moved)
        over_ipc, moved = self.run_job(["--same_host", "ipc"])
        self.assert_nothing_shared(moved)
        self.assertEqual(shared, over_tcp)
        self.assertEqual(shared, over_ipc)

    def test_keys_change_no_bit_by_tcp_and_leave_shared_memory_in_use(self):
        plain, _ = self.run_job(["--same_host", "tcp"])
        with tempfile.TemporaryDirectory(prefix="slimps-test-") as folder:
            made = keys.make(folder, 2, 1)
            encrypted, moved = self.run_job(["--same_host", "tcp"], node_keys=made)
            self.assert_nothing_shared(moved)
            self.assertEqual(plain, encrypted)
            shared, moved = self.run_job(node_keys=made)
            self.assertGreater(moved[1], moved[0] // 2, moved)
            self.assertEqual(plain, shared)

    def test_compressed_with_the_backup_model_over_two_servers(self):
        flags = ["--compression", "2bit:threshold=0.05", "--threshold", "0", "--backup_model", "on"]
        shared, moved = self.run_job(flags, servers=2)
        self.assertGreater(min(moved[1], moved[3]), 1 << 16, moved)
        over_tcp, _ = self.run_job(flags, ["--same_host", "tcp"], servers=2)
        self.assertEqual(shared, over_tcp)

    def test_a_server_may_offer_less_than_its_workers_want(self):
        for choice in ("tcp", "ipc"):
            _, moved = self.run_job(server_flags=["--same_host", choice])
            self.assert_nothing_shared(moved)

    def test_an_emulated_link_is_not_bypassed(self):
        _, moved = self.run_job(["--emulate_link", "1gbit"])
        self.assert_nothing_shared(moved)

    @unittest.skipUnless(has_namespaces(), "needs the right to make process namespaces")
    def test_workers_whose_memory_cannot_be_opened_send_it(self):
        shared, moved = self.run_job(worker_prefix=NEW_NAMESPACE)
        self.assert_nothing_shared(moved)
        over_tcp, _ = self.run_job(["--same_host", "tcp"])
        self.assertEqual(shared, over_tcp)

    def test_unknown_choices_are_refused_by_name(self):
        for command in (
            ["worker/slimps_worker", "--scheduler", "h:1"],
            ["server/slimps_server", "--root_port", "1"],
        ):
            refused = subprocess.run(
                command + ["--same_host", "rdma"], capture_output=True, text=True, check=False
            )
            self.assertEqual(refused.returncode, 2, refused)
            self.assertRegex(refused.stderr, "--same_host.*: expected shm, ipc or tcp")
            self.assertIn("rdma", refused.stderr)


if __name__ == "__main__":
    unittest.main()
