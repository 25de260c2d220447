# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes that are saved, killed and resumed: the weights are the same bits."""

import json
import os
import shutil
import tempfile
import unittest
import zlib

from process_cluster import ProcessCluster
from slimps_launch import checkpoint
from slimps_launch import errors

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = (
    "--model logistic --dataset digits --batch 64 --lr 0.2 --lr_schedule cosine --epochs 3 "
    "--log_every 1 --partition_bytes 1000 --optimizer momentum"
).split()
STEPS = 36  # of the whole run
BOTH_WAYS = (
    "--compression 1bit --threshold 0 --pull_compression 1bit --pull_threshold 0 --backup_model on"
).split()


def read(path):
    with open(path, "rb") as content:
        return content.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class CheckpointTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, flags, servers, workers=2):
        """Returns each worker's weights and the outputs."""
        flags = TRAIN + flags + ["--save_weights", self.path("weights-{rank}")]
        with ProcessCluster(workers, servers, flags) as cluster:
            statuses = cluster.wait_for_all()
            outputs = {name: cluster.output(name) for name in statuses}
        self.assertEqual(set(statuses.values()), {0}, (statuses, outputs))
        return [read(self.path("weights-%d" % rank)) for rank in range(workers)], outputs

    def killed(self, flags, servers):
        """Trains until some checkpoints are there, then kills every process."""
        with ProcessCluster(2, servers, TRAIN + flags) as cluster:
            cluster.wait_for(
                lambda: os.path.exists(self.path("saved/step-000000020/manifest.json")),
                "the second checkpoint",
            )
            for name in cluster.processes:
                cluster.kill(name)

    def check_resumes(self, flags):
        calm, _ = self.train(flags, servers=2)
        saving = flags + ["--checkpoint", self.path("saved"), "--checkpoint_every", "10"]
        # Slow enough that it is killed before its end.
        self.killed(saving + ["--simulate_compute_ms", "100"], servers=2)
        resumed, outputs = self.train(saving + ["--resume", self.path("saved")], servers=3)
        self.assertEqual(calm, resumed)
        self.assertNotIn("step 1/%d " % STEPS, outputs["worker0"])
        self.assertNotIn("step 10/%d " % STEPS, outputs["worker0"])
        self.assertIn("step %d/%d" % (STEPS, STEPS), outputs["worker0"])
        # The newest two are kept; the folder of a run that has ended holds its last ones.
        kept = sorted(os.listdir(self.path("saved")))
        self.assertIn("step-000000030", kept)
        self.assertLessEqual(len(kept), 3)

    def test_raw_resumes_on_three_servers(self):
        self.check_resumes([])

    def test_compressed_both_ways_with_backup_model_resumes_on_three_servers(self):
        self.check_resumes(BOTH_WAYS)

    def test_what_is_wrong_is_said(self):
        saving = ["--checkpoint", self.path("saved"), "--checkpoint_every", "10"]
        self.train(BOTH_WAYS + saving + ["--max_steps", "10"], servers=1)
        for flags, words in [
            (["--resume", self.path("none")], "expected a checkpoint"),
            (["--resume", self.path("saved")], "compression: expected none, got 1bit"),
            (
                BOTH_WAYS + ["--resume", self.path("saved"), "--optimizer", "adam"],
                "optimizer: expected ADAM, got SGD",
            ),
        ]:
            with ProcessCluster(2, 1, TRAIN + flags) as cluster:
                cluster.wait_for_end(["worker0", "worker1"])
                self.assertEqual(1, cluster.processes["worker0"].returncode)
                self.assertIn(words, cluster.output("worker0"))

    def test_verify_finds_every_flipped_byte(self):
        saving = ["--checkpoint", self.path("saved"), "--checkpoint_every", "5"]
        # Each byte of each file is flipped in turn.
        small = ["--batch", "512", "--max_steps", "5"]
        self.train(saving + small, servers=2)
        folder = checkpoint.find(self.path("saved"))
        names = sorted(os.listdir(folder))
        self.assertEqual(
            [
                "manifest.json",
                "server-0.images",
                "server-1.images",
                "weights.safetensors",
                "worker-0.state",
                "worker-1.state",
            ],
            names,
        )
        manifest = checkpoint.read_manifest(folder)
        self.assertEqual([], list(checkpoint.damage(folder, manifest)))
        for name in names:
            path = os.path.join(folder, name)
            whole = read(path)
            with open(path, "r+b", buffering=0) as file:
                for at, byte in enumerate(whole):
                    os.pwrite(file.fileno(), bytes([byte ^ 1 << (at % 8)]), at)
                    said = self.said(folder, manifest, name)
                    self.assertIn(name + ": expected ", said, at)
                    self.assertIn(", got ", said, at)
                    os.pwrite(file.fileno(), bytes([byte]), at)
            write(path, whole[:-1])
            self.assertIn(name, self.said(folder, manifest, name))
            os.remove(path)
            if name != checkpoint.MANIFEST:
                self.assertIn("No such file", self.said(folder, manifest, name))
            write(path, whole)
        self.assertEqual([], list(checkpoint.damage(folder, checkpoint.read_manifest(folder))))

    def test_a_manifest_that_cannot_be_read_is_said(self):
        path = self.path(checkpoint.MANIFEST)
        os.mkdir(path)
        with self.assertRaisesRegex(errors.LaunchError, "manifest.json: Is a directory"):
            checkpoint.read_manifest(self.folder)
        os.rmdir(path)
        for begin in (b"[", b'{"format": "other"', b"{\xff", b"{}"):
            write(path, begin + checkpoint.SEAL + b'%08x"\n}\n' % zlib.crc32(begin))
            with self.assertRaisesRegex(errors.LaunchError, "expected .*format"):
                checkpoint.read_manifest(self.folder)

    def test_a_folder_with_later_checkpoints_is_refused(self):
        saving = ["--checkpoint", self.path("saved"), "--checkpoint_every", "10"]
        self.train(saving + ["--max_steps", "10"], servers=1)
        with ProcessCluster(2, 1, TRAIN + saving) as cluster:
            cluster.wait_for_end(["worker0", "worker1"])
            self.assertEqual(1, cluster.processes["worker0"].returncode)
            self.assertIn("saved/step-000000010; resume from it", cluster.output("worker0"))

    def said(self, folder, manifest, name):
        """Returns what is said of a damaged file."""
        if name == checkpoint.MANIFEST:
            with self.assertRaises(errors.LaunchError) as raised:
                checkpoint.read_manifest(folder)
            return str(raised.exception)
        one = dict(manifest, files=[file for file in manifest["files"] if file["name"] == name])
        (line,) = checkpoint.damage(folder, one)
        return line

    def test_what_show_prints(self):
        saving = ["--checkpoint", self.path("saved"), "--checkpoint_every", "5"]
        self.train(saving + ["--max_steps", "5"], servers=2)
        manifest = checkpoint.read_manifest(checkpoint.find(self.path("saved")))
        self.assertEqual(5, manifest["rounds"])
        self.assertEqual((2, 2), (manifest["workers"], manifest["servers"]))
        self.assertIn("SGD", manifest["optimizer"])
        shapes = {tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}
        with open(
            os.path.join(checkpoint.find(self.path("saved")), "weights.safetensors"), "rb"
        ) as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual({"format": "pt", "rounds": "5"}, header.pop("__metadata__"))
        self.assertEqual(shapes, {name: one["shape"] for name, one in header.items()})


if __name__ == "__main__":
    unittest.main()
