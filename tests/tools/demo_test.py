"""The demo from its command line to its table, with programs that only pretend to train."""

import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
sys.path[:0] = [TOOLS, HERE]

import folder_case  # noqa: E402
import slimps_demo  # noqa: E402
import slimps_setup  # noqa: E402

# One file is scheduler, server and worker, by its name. A scheduler ends when a worker of its job has: the port, which is
# its own process's number, tells jobs apart.
PROGRAM = """#!/usr/bin/python3
import json, os, sys, time
folder, name = os.path.split(os.path.abspath(sys.argv[0]))
done = lambda port: os.path.join(folder, "done." + port)
def after(flag):
    return sys.argv[sys.argv.index(flag) + 1]
if name == "slimps_scheduler":
    port = str(os.getpid() % 60000 + 1)
    with open(after("--port_file") + ".new", "w") as out:
        out.write(port)
    os.rename(after("--port_file") + ".new", after("--port_file"))
    while not os.path.exists(done(port)):
        time.sleep(0.005)
elif name == "slimps_worker":
    with open(os.path.join(folder, "calls"), "a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\\n")
    if "--dry_run" in sys.argv:
        sys.exit(0)
    if os.environ["DMLC_WORKER_ID"] == "0":
        compression = after("--compression")
        if os.path.exists(os.path.join(folder, "interrupts." + compression)):
            os.kill(os.getppid(), 15)
            time.sleep(1000)
        if os.path.exists(os.path.join(folder, "fails." + compression)):
            print("no such thing as " + compression)
            sys.exit(3)
        slimgc = "auto" in sys.argv
        with open(after("--summary_json"), "w") as out:
            json.dump({"test_accuracy": 0.9, "seconds": 2.5, "bytes_pulled": 4000000,
                       "bytes_pushed": 4000000 if compression == "none" else 125000 if slimgc else 250000,
                       "threshold_bytes": 4096 if slimgc else None,
                       "threshold_table": [{"bytes": 40, "t_c_ms": 1.0, "t_cq_ms": 1.5, "t_pq_ms": 0.5, "t_q_ms": 2.0,
                                            "gain": 0.5}] if slimgc else None,
                       "threshold_explanation": "small ones go raw" if slimgc else None}, out)
    print("epoch 1 of worker " + os.environ["DMLC_WORKER_ID"])
    open(done(os.environ["DMLC_PS_ROOT_PORT"]), "w").close()
"""


class DemoTest(folder_case.FolderCase):
    def setUp(self):
        super().setUp()
        for name in slimps_setup.PROGRAMS:
            with open(self.path(name), "w", encoding="utf-8") as out:
                out.write(PROGRAM)
            os.chmod(self.path(name), 0o755)
        self.built = []
        for name, value in (("install_packages", lambda: None), ("build", self.built.extend),
                            ("program_path", self.path)):
            patch = mock.patch.object(slimps_setup, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def demo(self, *arguments):
        """Status, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = slimps_demo.main(list(arguments))
        return status, out.getvalue(), err.getvalue()

    def calls(self, real=True):
        with open(self.path("calls"), encoding="utf-8") as lines:
            return [call for call in map(json.loads, lines) if ("--dry_run" not in call) == real]

    def test_three_runs_and_what_they_cost(self):
        status, out, err = self.demo("--json", self.path("figures.json"))
        self.assertEqual(0, status)
        self.assertEqual({target for target, _ in slimps_setup.PROGRAMS.values()}, set(self.built))
        self.assertEqual(["fp32:", "1bit:", "slimgc:"], [line.split()[0] for line in out.splitlines()[:3]])
        table = out[out.index("run  "):].splitlines()
        self.assertTrue(table[1].endswith(" 1.0 x") and table[1].startswith("fp32 "), table[1])
        self.assertTrue(table[2].endswith(" 16.0 x"), table[2])
        self.assertTrue(table[3].endswith(" 32.0 x"), table[3])
        self.assertIn("small ones go raw", out)
        self.assertIn("held to 100mbit", out)
        self.assertIn("worker0| epoch 1 of worker 0", err)
        self.assertNotIn("worker1| epoch", err, "the others say so with --verbose")
        with open(self.path("figures.json"), encoding="utf-8") as text:
            figures = json.load(text)
        self.assertEqual("1bit", figures["compression"])
        self.assertEqual([4000000, 250000, 125000], [run["bytes_pushed"] for run in figures["runs"]])
        self.assertEqual([None, None, 4096], [run["threshold_bytes"] for run in figures["runs"]])
        self.assertEqual(0.5, figures["runs"][2]["threshold_table"][0]["gain"])

    def test_every_run_is_checked_before_the_first_and_has_the_seed(self):
        self.demo("--seed", "5", "--compression", "topk:ratio=0.05", "--lr", "0.3")
        with open(self.path("calls"), encoding="utf-8") as lines:
            kinds = ["--dry_run" in json.loads(line) for line in lines]
        self.assertEqual([True] * 3 + [False] * 3 * slimps_demo.WORKERS, kinds)
        for call in self.calls(real=False) + self.calls():
            self.assertEqual("5", call[call.index("--seed") + 1])
            compression = call[call.index("--compression") + 1]
            self.assertEqual("0.2" if compression == "none" else "0.3", call[call.index("--lr") + 1])
        self.assertEqual(["none", "topk:ratio=0.05", "topk:ratio=0.05"],
                         [call[call.index("--compression") + 1] for call in self.calls()[::slimps_demo.WORKERS]])

    def test_verbose_shows_every_node(self):
        _, _, err = self.demo("--verbose")
        self.assertIn("worker1| epoch 1 of worker 1", err)

    def test_a_run_that_fails_is_named_and_ends_the_demo(self):
        with open(self.path("fails.1bit"), "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(slimps_setup.SetupError, 'run "1bit" failed with status 3'):
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


if __name__ == "__main__":
    unittest.main()
