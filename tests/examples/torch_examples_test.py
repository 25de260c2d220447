# SPDX-License-Identifier: Apache-2.0
"""The torch examples, a few steps of each, as `slimps launch` runs them."""

import io
import os
import re
import subprocess
import tempfile
import unittest

from slimps_launch import job_launch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PYTHON = os.environ["SLIMPS_TORCH2_PYTHON"]
ENVIRONMENT = {
    "PYTHONPATH": os.path.join(os.getcwd(), "python", "package"),
    "PYTHONDONTWRITEBYTECODE": "1",
}
HAS_TORCHVISION = not subprocess.run(
    [PYTHON, "-c", "import torchvision"], stderr=subprocess.DEVNULL
).returncode
IMAGES = ("resnet_cifar10_torch",)
EQUAL = """
import sys, torch
one, other = map(torch.load, sys.argv[1:])
assert list(one) == list(other)
assert all(torch.equal(values, other[name]) for name, values in one.items())
"""
LAST = re.compile(
    r"([\d.]+)(?: %)?, (\d+) samples/s"
    r"(?:, pushed ([\d.]+) MB, pulled ([\d.]+) MB a worker, ratio ([\d.]+))?"
)


def example(name, *flags):
    return [PYTHON, "-u", os.path.join(ROOT, "examples", name + ".py")] + list(flags)


ONE_BIT = ["--compression=1bit", "--threshold=4096"]
REPORT_WORKER = os.path.join(ROOT, "tests", "examples", "report_worker.py")


class TorchExamples(unittest.TestCase):
    def launched(self, name, *flags, workers=2, **environment):
        return self.run_by(example(name, *flags), workers, **environment)

    def run_by(self, command, workers=2, **environment):
        """Returns (measure, samples/s, pushed, pulled, ratio) of the last line."""
        out = io.StringIO()
        job = job_launch.Job(
            ["scheduler/slimps_scheduler"],
            ["server/slimps_server"],
            command,
            workers,
            2,
            {**ENVIRONMENT, **environment},
        )
        status = job_launch.Launcher(job, out=out).run()
        self.assertEqual(0, status, out.getvalue())
        return self.figures(out.getvalue())

    def figures(self, said):
        found = LAST.findall(said)
        self.assertEqual(1, len(found), said)
        return [float(number) for number in found[0] if number]

    def test_a_machine_without_a_gpu_says_so_in_one_line(self):
        for name in ("train_mnist_torch", "char_lstm_torch") + IMAGES * HAS_TORCHVISION:
            said = subprocess.run(
                example(name, "--mode=plain", "--device=cuda", "--max_steps=1"),
                env={**os.environ, **ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""},
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
            self.assertEqual(1, said.returncode, said.stderr)
            self.assertRegex(said.stderr, "^--device=cuda: torch .* finds no GPU here\n$")

    def test_digits_three_ways(self):
        plain = subprocess.run(
            example("train_mnist_torch", "--mode=plain", "--max_steps=60", "--batch=64"),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        ).stdout
        accuracy, speed = self.figures(plain)
        self.assertGreater(accuracy, 80)
        self.assertGreater(speed, 0)
        optimizer = self.launched("train_mnist_torch", "--max_steps=60")
        hook = self.launched("train_mnist_torch", "--max_steps=60", "--mode=ddp")
        # The same samples in another order: 32 for each of two workers.
        self.assertGreater(optimizer[0], 80)
        self.assertAlmostEqual(optimizer[0], hook[0], delta=1)
        self.assertEqual(1.0, optimizer[4])
        self.assertEqual(optimizer[2], hook[2])

    def test_nobody_waits_while_rank_0_evaluates(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = self.run_by(
                [PYTHON, "-u", REPORT_WORKER, os.path.join(folder, "worker 1 has ended")]
            )
        self.assertEqual(42, figures[0])

    def test_a_run_that_is_resumed_ends_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:

            def trained(steps, name, **environment):
                path = os.path.join(folder, name)
                flags = ["--max_steps=%d" % steps, "--checkpoint_every=5", "--save=" + path]
                self.launched("train_mnist_torch", *flags, *ONE_BIT, **environment)
                return path

            calm = trained(12, "calm")
            saved = os.path.join(folder, "saved")
            trained(7, "half", SLIMPS_CHECKPOINT=saved)
            self.assertEqual(["step-000000005"], os.listdir(saved))
            resumed = trained(12, "whole", SLIMPS_RESUME=os.path.join(saved, "step-000000005"))
            subprocess.run([PYTHON, "-c", EQUAL, calm, resumed], check=True)

    def test_digits_compressed_with_the_backup_model(self):
        accuracy, _, pushed, _, ratio = self.launched(
            "train_mnist_torch",
            "--max_steps=60",
            "--compression=1bit",
            "--threshold=4096",
            "--backup_model=on",
        )
        self.assertGreater(accuracy, 70)
        self.assertGreater(ratio, 25)
        self.assertLess(pushed, 60 * 1.73 / 25)

    def test_text(self):
        loss, _, _, _, ratio = self.launched(
            "char_lstm_torch",
            "--max_steps=6",
            "--batch=4",
            "--compression=topk",
            "--threshold=4096",
        )
        self.assertLess(loss, 4.5)
        self.assertGreater(ratio, 10)

    def test_images(self):
        if not HAS_TORCHVISION:
            self.skipTest("the environment of tests has no torchvision")
        figures = self.launched(
            "resnet_cifar10_torch",
            "--max_steps=2",
            "--batch=2",
            "--compression=1bit",
            "--pull_compression=1bit",
            "--threshold=4096",
            "--pull_threshold=4096",
        )
        self.assertGreater(figures[4], 25)
        self.assertLess(figures[3], 1.2 * 44.7, "the first weights whole, then their change")


if __name__ == "__main__":
    unittest.main()
