# SPDX-License-Identifier: Apache-2.0
"""The demo from its command line to its table, with programs that only pretend to train."""

import contextlib
import io
import json
import os
import unittest
import xml.etree.ElementTree
from unittest import mock

import folder_case
from cli import curves_svg
from cli import demo_runs
from cli import setup

# One file is scheduler, server and worker, depending on its name. A scheduler ends when a worker of
# its job has ended. The port, which is the scheduler's process number, tells jobs apart.
PROGRAM = """#!/usr/bin/python3
import json, os, signal, sys
folder, name = os.path.split(os.path.abspath(sys.argv[0]))
done = lambda port: os.path.join(folder, "done." + port)


def after(flag):
    return sys.argv[sys.argv.index(flag) + 1]
if name == "slimps_scheduler":
    port = str(os.getpid() % 60000 + 1)
    os.mkfifo(done(port))
    end = os.open(done(port), os.O_RDWR)
    if "--page_port" in sys.argv:
        file = after("--watch_file")
        print("page at port %s, told in %s" % (after("--page_port"), os.path.dirname(file)),
              flush=True)
    with open(after("--port_file") + ".new", "w") as out:
        out.write(port)
    os.rename(after("--port_file") + ".new", after("--port_file"))
    os.read(end, 1)
elif name == "slimps_worker":
    with open(os.path.join(folder, "calls"), "a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\\n")
    if "--dry_run" in sys.argv:
        sys.exit(0)
    if os.environ["DMLC_WORKER_ID"] == "0":
        compression = after("--compression")
        if os.path.exists(os.path.join(folder, "interrupts." + compression)):
            os.kill(os.getppid(), 15)
            signal.pause()
        if os.path.exists(os.path.join(folder, "fails." + compression)):
            print("no such thing as " + compression)
            sys.exit(3)
        slimgc = "auto" in sys.argv
        pulls = after("--pull_compression") if "--pull_compression" in sys.argv else "none"
        compressed = 125000 if slimgc else 250000
        count = lambda name: {"none": 4000000, "bf16": 2000000}.get(name, compressed)
        pushed, pulled = count(compression), count(pulls)
        slow = os.path.exists(os.path.join(folder, "slow." + pulls))
        seconds = (pushed + pulled) / 1e6 + (100 if slow else 0)
        with open(after("--summary_json"), "w") as out:
            row = {"bytes": 40, "t_c_ms": 1.0, "t_cq_ms": 1.5, "t_pq_ms": 0.5, "t_q_ms": 2.0,
                   "gain": 0.5}
            json.dump({"test_accuracy": 0.9, "seconds": seconds,
                       "bytes_pulled": pulled, "bytes_pushed": pushed,
                       "after_epoch": [
                           {"steps": 10 * epoch, "seconds": seconds * epoch / 2,
                            "bytes_pushed": pushed * epoch // 2,
                            "bytes_pulled": pulled * epoch // 2,
                            "test_accuracy": 0.4 + 0.25 * epoch, "test_loss": 1.0}
                           for epoch in (1, 2)],
                       "threshold_bytes": 4096 if slimgc else None,
                       "threshold_table": [row] if slimgc else None,
                       "threshold_explanation": "small ones go raw" if slimgc else None}, out)
    print("epoch 1 of worker " + os.environ["DMLC_WORKER_ID"])
    os.write(os.open(done(os.environ["DMLC_PS_ROOT_PORT"]), os.O_RDWR), b"e")
"""


class DemoTest(folder_case.FolderCase):
    def setUp(self):
        super().setUp()
        for name in setup.PROGRAMS:
            with open(self.path(name), "w", encoding="utf-8") as out:
                out.write(PROGRAM)
            os.chmod(self.path(name), 0o755)
        self.built = []
        for name, value in (
            ("install_packages", lambda *lists: None),
            ("build", self.built.extend),
            ("program_path", self.path),
        ):
            patch = mock.patch.object(setup, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def demo(self, *arguments):
        """Runs the demo. Returns status, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        arguments = ("--svg", self.path("demo.svg")) + arguments
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = demo_runs.main(list(arguments))
        return status, out.getvalue(), err.getvalue()

    def calls(self, real=True):
        with open(self.path("calls"), encoding="utf-8") as lines:
            return [call for call in map(json.loads, lines) if ("--dry_run" not in call) == real]

    def test_five_runs_and_what_they_cost(self):
        status, out, err = self.demo("--json", self.path("figures.json"))
        self.assertEqual(0, status)
        self.assertEqual({target for target, _ in setup.PROGRAMS.values()}, set(self.built))
        self.assertEqual(
            ["fp32:", "bf16:", "1bit:", "slimgc:", "slimgc_2way:"],
            [line.split()[0] for line in out.splitlines()[:5]],
        )
        table = out[out.index("run  ") :].splitlines()
        for line, (name, ratio) in zip(
            table[1:],
            (
                ("fp32", "1.0"),
                ("bf16", "2.0"),
                ("1bit", "16.0"),
                ("slimgc", "32.0"),
                ("slimgc_2way", "32.0"),
            ),
        ):
            self.assertTrue(line.startswith(name + " ") and line.endswith(" %s x" % ratio), line)
        self.assertIn("small ones go raw", out)
        self.assertIn("held to 100mbit", out)
        self.assertIn("worker0| epoch 1 of worker 0", err)
        self.assertNotIn("worker1| epoch", err, "the others say so with --verbose")
        with open(self.path("figures.json"), encoding="utf-8") as text:
            figures = json.load(text)
        self.assertEqual("1bit", figures["compression"])
        self.assertEqual(
            ["fp32", "bf16", "1bit", "slimgc", "slimgc_2way"],
            [run["name"] for run in figures["runs"]],
        )
        self.assertEqual(
            [4000000, 2000000, 250000, 125000, 125000],
            [run["bytes_pushed"] for run in figures["runs"]],
        )
        self.assertEqual(
            [4000000, 2000000, 4000000, 4000000, 125000],
            [run["bytes_pulled"] for run in figures["runs"]],
        )
        self.assertEqual(
            [None, None, None, 4096, 4096], [run["threshold_bytes"] for run in figures["runs"]]
        )
        self.assertEqual(0.5, figures["runs"][3]["threshold_table"][0]["gain"])
        self.assertEqual(
            [0.65, 0.9], [row["test_accuracy"] for row in figures["runs"][1]["after_epoch"]]
        )

    def test_the_last_line_says_what_was_gained(self):
        _, out, _ = self.demo()
        self.assertEqual(
            "Gained: slimgc_2way is the fastest run: 0.2 s, 32.0 times as fast as fp32 and 16.0 "
            "times as fast as bf16, with 32.0 times fewer bytes than fp32, at 90.00 % accuracy "
            "(fp32 90.00 %)",
            out.splitlines()[-1],
        )

    def test_the_last_line_says_what_was_faster(self):
        with open(self.path("slow.1bit"), "w", encoding="utf-8"):
            pass
        _, out, _ = self.demo()
        self.assertIn(
            "Gained: slimgc_2way is slower than bf16 (4.0 s): 100.2 s, 0.1 times as fast as fp32",
            out.splitlines()[-1],
        )

    def test_the_picture_has_a_line_in_each_plot_and_a_dot_for_every_epoch(self):
        _, out, _ = self.demo()
        self.assertIn(
            "accuracy over time and over bytes: " + self.path("demo.svg"), out.splitlines()
        )
        names = xml.etree.ElementTree.parse(self.path("demo.svg"))
        svg = "{http://www.w3.org/2000/svg}"
        self.assertEqual(
            ["fp32", "bf16", "1bit", "slimgc", "slimgc_2way"],
            [text.text for text in names.iter(svg + "text") if text.get("class") == "name"],
        )
        self.assertEqual(5 * 2, len(list(names.iter(svg + "polyline"))))
        tips = [tip.text for tip in names.iter(svg + "title")]
        self.assertEqual(5 * 2 * 2, len(tips))
        self.assertIn("slimgc_2way, epoch 1: 65.00 % after 0.1 s and 125 kB", tips)

    def test_every_run_is_checked_before_the_first_and_has_the_seed(self):
        self.demo("--seed", "5", "--compression", "topk:ratio=0.05", "--lr", "0.3")
        with open(self.path("calls"), encoding="utf-8") as lines:
            kinds = ["--dry_run" in json.loads(line) for line in lines]
        self.assertEqual([True] * 5 + [False] * 5 * demo_runs.WORKERS, kinds)
        for call in self.calls(real=False) + self.calls():
            self.assertEqual("5", call[call.index("--seed") + 1])
            self.assertIn("--evaluate_epochs", call)
            compression = call[call.index("--compression") + 1]
            self.assertEqual(
                "0.2" if compression in ("none", "bf16") else "0.3", call[call.index("--lr") + 1]
            )
        self.assertEqual(
            ["none", "bf16"] + 3 * ["topk:ratio=0.05"],
            [call[call.index("--compression") + 1] for call in self.calls()[:: demo_runs.WORKERS]],
        )

    def test_verbose_shows_every_node(self):
        _, _, err = self.demo("--verbose")
        self.assertIn("worker1| epoch 1 of worker 1", err)

    def test_every_run_has_a_page_if_one_is_asked_for(self):
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": self.folder}):
            _, _, without = self.demo()
            _, _, err = self.demo("--page_port", "0")
        self.assertNotIn("page at port", without)
        said = "scheduler| page at port 0, told in " + self.path("slimps")
        self.assertEqual(5, err.splitlines().count(said), err)
        self.assertEqual([], os.listdir(self.path("slimps")))

    def test_a_run_that_fails_is_named_and_ends_the_demo(self):
        with open(self.path("fails.1bit"), "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(setup.SetupError, 'run "1bit" failed with status 3'):
            self.demo()
        self.assertNotIn("auto", sum(self.calls(), []))

    def test_a_signal_ends_the_demo_with_its_status(self):
        with open(self.path("interrupts.1bit"), "w", encoding="utf-8"):
            pass
        with self.assertRaises(SystemExit) as ended:
            self.demo()
        self.assertEqual(143, ended.exception.code)
        self.assertNotIn("auto", sum(self.calls(), []))

    def test_nothing_to_compare_is_refused_before_anything_is_built(self):
        with self.assertRaises(SystemExit) as ended:
            self.demo("--compression", "none")
        self.assertEqual(2, ended.exception.code)
        self.assertEqual([], self.built)


class CurvesTest(unittest.TestCase):
    def draw(self, *curves):
        """Returns the picture's texts and the places of its dots."""
        svg = "{http://www.w3.org/2000/svg}"
        picture = xml.etree.ElementTree.fromstring(
            curves_svg.render(
                "a < b",
                [
                    curves_svg.Curve(name, [curves_svg.Point(*point) for point in points])
                    for name, points in curves
                ],
            )
        )
        dots = [
            (float(dot.get("cx")), float(dot.get("cy"))) for dot in picture.iter(svg + "circle")
        ]
        return [text.text for text in picture.iter(svg + "text")], dots

    def test_ticks_are_round_and_hold_all_points(self):
        texts, dots = self.draw(("x", [(0.52, 3, 7e6), (0.97, 41, 9e8)]))
        self.assertEqual("a < b", texts[0])
        for tick in ("50 %", "100 %", "0", "50", "5 MB", "1 GB", "test accuracy over seconds"):
            self.assertIn(tick, texts)
        for x, y in dots:
            self.assertTrue(0 < x < curves_svg.WIDTH and curves_svg.TOP <= y < curves_svg.HEIGHT)

    def test_later_is_further_right_and_better_is_higher(self):
        _, dots = self.draw(("x", [(0.5, 1, 1e6), (0.9, 2, 2e6)]))
        for first, second in (dots[:2], dots[2:]):
            self.assertTrue(first[0] < second[0] and first[1] > second[1])

    def test_a_single_point_is_drawn(self):
        self.assertEqual(2, len(self.draw(("x", [(0.9, 1, 0)]))[1]))

    def test_points_without_accuracy_are_left_out(self):
        self.assertEqual(2, len(self.draw(("x", [(None, 1, 1e6), (0.9, 2, 2e6)]), ("y", []))[1]))
        with self.assertRaisesRegex(ValueError, "no run has an accuracy"):
            self.draw(("x", [(None, 1, 1e6)]))


if __name__ == "__main__":
    unittest.main()
