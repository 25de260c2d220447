# SPDX-License-Identifier: Apache-2.0
"""slimps trace: it joins parts, names broken ones, and checks its flags."""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import folder_case
from traces import BASE, SVG, elements, event, metadata, name_event, part_text, spans
from slimps_launch import job_launch
from slimps_launch import job_trace

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")


class MergeTest(folder_case.FolderCase):
    def merge(self, *parts):
        complaints = job_trace.merge(
            [(name, "", self.path(name)) for name in parts], self.path("all.json")
        )
        return json.loads(self.get("all.json")), complaints

    def test_parts_are_put_on_one_clock(self):
        self.put(
            "a",
            part_text(
                "worker 0", [event("encode", 0, 5), event("send", 10.5, 2)], BASE + 2_000_500
            ),
        )
        self.put("b", part_text("server 0", [event("aggregate", 1, 1)], BASE))
        trace, complaints = self.merge("a", "b")
        self.assertEqual([], complaints)
        self.assertEqual(
            {"encode": 2000.5, "send": 2011.0, "aggregate": 1.0},
            {span["cat"]: span["ts"] for span in spans(trace)},
        )
        self.assertEqual(str(BASE), trace["otherData"]["base_unix_ns"])

    def test_processes_with_one_pid_are_told_apart_workers_first(self):
        for name, process in (("a", "server 0"), ("b", "worker 10"), ("c", "worker 2")):
            self.put(name, part_text(process, [event("encode", 0, 5, key="s:" + name)]))
        trace, _ = self.merge("a", "b", "c")
        self.assertEqual(
            {1: {"name": "worker 2"}, 2: {"name": "worker 10"}, 3: {"name": "server 0"}},
            metadata(trace, "process_name"),
        )
        self.assertEqual(
            {1: {"sort_index": 1}, 2: {"sort_index": 2}, 3: {"sort_index": 3}},
            metadata(trace, "process_sort_index"),
        )
        self.assertEqual(
            {1: "s:c", 2: "s:b", 3: "s:a"},
            {span["pid"]: span["args"]["key"] for span in spans(trace)},
        )
        self.assertEqual({1, 2, 3}, set(metadata(trace, "thread_name")))

    def test_a_key_with_odd_letters_stays_what_it_is(self):
        key = "s:\"\\ \n\t\u20ac</b>{[,"
        self.put("a", part_text("worker 0", [event("encode", 0, 5, key=key)]))
        self.assertEqual(key, spans(self.merge("a")[0])[0]["args"]["key"])

    def test_a_missing_and_each_kind_of_broken_part_is_named_the_rest_merged(self):
        good = part_text("worker 0", [event("encode", 0, 5), event("send", 5, 5)])
        self.put("good", good)
        broken = {
            "cut": (good[: good.rindex("]}")], "ends after line 5"),
            "half": (good[: len(good) - 40], "line 5: not an event"),
            "other": ('{"traceEvents": []}', "line 1: not a trace"),
            "empty": ("", "line 1: not a trace"),
            "no_base": (good.replace("base_unix_ns", "base"), "line 1: not a trace"),
            "no_time": (
                good.replace('"ts": 5', '"ts": "x"'),
                "line 5: not an event that slimps wrote: the event.ts: "
                "expected a number, got \"x\"",
            ),
            "garbage": (good.replace('{"ph": "X"', "{{", 1), "line 4: not an event"),
        }
        for name, (text, _) in broken.items():
            self.put(name, text)
        with open(self.path("bytes"), "wb") as out:
            out.write(b"\xff\xfe\x00")
        trace, complaints = self.merge("missing", "good", "bytes", *broken)
        self.assertEqual(2, len(spans(trace)))
        self.assertEqual(2 + len(broken), len(complaints))
        self.assertIn(
            "trace of missing left out: %s: No such file" % self.path("missing"), complaints[0]
        )
        for name, (_, what) in broken.items():
            said = [
                complaint for complaint in complaints if "trace of %s left out" % name in complaint
            ]
            self.assertEqual(1, len(said), name)
            self.assertIn(what, said[0])

    def test_an_event_that_lacks_a_field_or_has_an_odd_one_is_named_with_it(self):
        whole = event("encode", 0, 5)
        odd = [
            ({key: value for key, value in whole.items() if key != field}, field) for field in whole
        ]
        odd += [
            (dict(whole, args={}), "args.key"),
            (dict(whole, args={"key": "s:w", "partition": 0}), "args.round"),
            (dict(whole, args={**whole["args"], "elements": 0}), "args.elements"),
            (dict(whole, dur=-1), "dur"),
            (dict(whole, pid="7"), "pid"),
            (dict(whole, ts=float("nan")), "ts"),
            (dict(whole, ph="i"), "ph"),
            (dict(whole, args=[1]), "args"),
            (dict(name_event("process_name", "w"), args={}), "args.name"),
            ({"ph": "M", "name": "thread_name"}, "pid"),
            (dict(whole, ph=[]), "ph"),
        ]
        for broken, field in odd:
            if field == "tid":
                continue  # the viewer's own
            self.put("odd", part_text("worker 0", [broken]))
            with self.assertRaisesRegex(
                job_trace.TraceError,
                "/odd: line 4: not an event that slimps wrote: the "
                "event.%s: expected .*, got " % field,
            ):
                self.merge("odd")
            with self.assertRaisesRegex(
                job_trace.TraceError, "line 4.*the event.%s: expected" % field
            ):
                job_trace.boxes_of(job_trace.Trace(self.path("odd")), 0, 1, None)
        self.put("odd", part_text("worker 0", [whole]).replace("[\n", "[\n7,\n"))
        with self.assertRaisesRegex(
            job_trace.TraceError, "line 2.*the event: expected an object, got 7"
        ):
            self.merge("odd")

    def test_nothing_readable_is_an_error_and_writes_nothing(self):
        with self.assertRaisesRegex(job_trace.TraceError, "no trace to merge.*No such file"):
            self.merge("missing")
        self.assertEqual([], os.listdir(self.folder))

    def test_a_merged_file_merges_again(self):
        self.put("a", part_text("worker 0", [event("encode", 0, 5)], BASE, dropped=3))
        self.put("b", part_text("worker 1", [event("encode", 0, 5)], BASE + 1000, dropped=4))
        self.merge("a", "b")
        os.rename(self.path("all.json"), self.path("ab"))
        self.put("c", part_text("server 0", [event("reply", 0, 5)], BASE - 1000))
        trace, _ = self.merge("ab", "c")
        self.assertEqual(
            ["worker 0", "worker 1", "server 0"],
            [args["name"] for _, args in sorted(metadata(trace, "process_name").items())],
        )
        self.assertEqual([1.0, 2.0, 0.0], [span["ts"] for span in spans(trace)])
        self.assertEqual("7", trace["otherData"]["dropped"])

    def test_a_file_that_cannot_be_written_is_named(self):
        self.put("a", part_text("worker 0", []))
        with self.assertRaisesRegex(
            job_trace.TraceError, "cannot write trace /no/such/all.json: No such file"
        ):
            job_trace.merge([("a", "", self.path("a"))], "/no/such/all.json")

    def test_part_paths_are_those_that_the_processes_write(self):
        self.assertEqual(
            [
                ("scheduler0", "out/job.scheduler0.json"),
                ("worker0", "out/job.worker0.json"),
                ("worker1", "out/job.worker1.json"),
                ("server0", "out/job.server0.json"),
            ],
            job_trace.node_parts("out/job.json", 2, 1),
        )
        self.assertEqual("a.b/job.server0", job_trace.part_path("a.b/job", "server0"))


class GatheringTest(folder_case.FolderCase):
    def test_a_job_is_told_where_and_its_parts_are_merged_and_gone(self):
        said = []
        with job_trace.Gathering(self.path("all.json")) as trace:
            for run in ("fp32", "slimgc"):
                environment = trace.of_job(1, 1, run)
                base = environment["SLIMPS_TRACE"]
                self.put(job_trace.part_path(base, "scheduler0"), part_text("scheduler 0", []))
                self.put(
                    job_trace.part_path(base, "worker0"),
                    part_text("worker 0", [event("send", 0, 1)]),
                )
                if run == "fp32":
                    self.put(job_trace.part_path(base, "server0"), part_text("server 0", []))
            self.assertTrue(trace.merge(said.append))
        self.assertEqual(["all.json"], os.listdir(self.folder))
        self.assertEqual(
            [
                "fp32: scheduler 0",
                "fp32: worker 0",
                "fp32: server 0",
                "slimgc: scheduler 0",
                "slimgc: worker 0",
            ],
            [
                args["name"]
                for _, args in sorted(
                    metadata(json.loads(self.get("all.json")), "process_name").items()
                )
            ],
        )
        self.assertEqual(2, len(said))
        self.assertIn("trace of slimgc, server0 left out", said[0])
        self.assertIn("trace in " + self.path("all.json"), said[1])

    def test_every_process_of_a_launch_gets_it(self):
        fake = [sys.executable, os.path.join(HERE, "fake_node.py")]
        with tempfile.TemporaryDirectory() as other, job_trace.Gathering(
            self.path("all.json")
        ) as trace:
            ended = os.path.join(other, "ended")
            job = job_launch.Job(
                fake + ["until=" + ended],
                fake + ["env=SLIMPS_TRACE", "until=" + ended],
                fake + ["env=SLIMPS_TRACE", "touch=" + ended],
                1,
                1,
            )
            job.environment.update(trace.of_job(1, 1))
            out = io.StringIO()
            self.assertEqual(0, job_launch.Launcher(job, out=out).run(), out.getvalue())
            for node in ("worker0", "server0"):
                self.assertRegex(
                    out.getvalue(),
                    r"%s\| SLIMPS_TRACE=%s/.*0\.json" % (node, re.escape(self.folder)),
                )
            said = []
            self.assertFalse(trace.merge(said.append))
        self.assertIn("no trace to merge", said[0])
        self.assertEqual([], os.listdir(self.folder))


class CommandTest(folder_case.FolderCase):
    def setUp(self):
        super().setUp()
        self.trace = self.put(
            "t.json",
            part_text(
                "worker 0",
                [
                    event("encode", 0, 1000),
                    event("encode", 2000, 3000, partition=1),
                    event("send", 6000, 4000),
                ],
            ),
        )

    def slimps(self, *arguments):
        return subprocess.run(
            [os.path.join(TOOLS, "slimps"), "trace"] + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    def test_without_flags_it_tells_the_stages(self):
        result = self.slimps(self.trace)
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertRegex(result.stdout, r"worker 0 +encode +2 +4\.000 +2\.0000\n")
        self.assertRegex(result.stdout, r"worker 0 +send +1 +4\.000 +4\.0000\n")
        self.assertIn("10.000 ms in all\n", result.stdout)

    def test_svg_holds_the_window_alone(self):
        result = self.slimps(
            self.trace, "--svg", self.path("t.svg"), "--from", "1.5", "--to", "5.5"
        )
        self.assertEqual(0, result.returncode, result.stderr)
        with open(self.path("t.svg"), encoding="utf-8") as text:
            picture = text.read()
        tips = [one.find(SVG + "title").text for one in elements(picture, "rect", "box")]
        self.assertEqual(["encode s:w[1], round 1: 3.000 ms from 2.000 ms"], tips)

    def test_a_window_without_events_is_told_where_the_trace_ends(self):
        result = self.slimps(self.trace, "--svg", self.path("t.svg"), "--from", "20")
        self.assertEqual(1, result.returncode)
        self.assertIn(
            "nothing to show from 20 to inf ms; the trace ends at 10.000 ms", result.stderr
        )
        self.assertFalse(os.path.exists(self.path("t.svg")))
        self.assertIn("of worker 1", self.slimps(self.trace, "--process", "worker 1").stderr)

    def test_wrong_flags_are_refused(self):
        for arguments, what in (
            (("--from", "5", "--to", "5"), "expected 0 <= from < to"),
            (("--from", "-1"), "expected 0 <= from < to"),
            (("--svg", "/no/such/t.svg"), "cannot write /no/such/t.svg: No such file"),
            ((self.trace,), "2 FILEs: expected one, or --merge"),
        ):
            result = self.slimps(self.trace, *arguments)
            self.assertEqual(2, result.returncode, arguments)
            self.assertIn(what, result.stderr)

    def test_what_is_no_trace_is_named(self):
        for name, what in (
            (os.path.join(TOOLS, "slimps"), "line 1: not a trace"),
            ("/no/such", "No such file"),
        ):
            result = self.slimps(name)
            self.assertEqual(1, result.returncode)
            self.assertIn("slimps trace: %s: %s" % (name, what), result.stderr)

    def test_merge_puts_files_together_and_fails_where_one_is_left_out(self):
        other = self.put("u.json", part_text("server 0", [event("reply", 0, 1)]))
        result = self.slimps(
            self.trace, other, "--merge", self.path("all.json"), "--svg", self.path("all.svg")
        )
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual(4, len(spans(json.loads(self.get("all.json")))))
        self.assertTrue(os.path.exists(self.path("all.svg")))
        result = self.slimps(self.trace, "/no/such", "--merge", self.path("all.json"))
        self.assertEqual(1, result.returncode)
        self.assertIn("trace of /no/such left out", result.stderr)
        self.assertEqual(3, len(spans(json.loads(self.get("all.json")))))

    def test_a_picture_that_cannot_be_written_leaves_the_old_one(self):
        old = self.put("t.svg", "old")
        with mock.patch.object(
            job_trace.out_files.os, "replace", side_effect=OSError(28, "No space left")
        ):
            with self.assertRaisesRegex(
                job_trace.TraceError, "cannot write %s: No space left" % re.escape(old)
            ):
                job_trace.show(
                    argparse.Namespace(
                        files=[self.trace], merge=None, svg=old, first=0.0, last=1e9, process=None
                    )
                )
        with open(old, encoding="utf-8") as text:
            self.assertEqual("old", text.read())

    def test_devices_are_written_not_replaced(self):
        for flag in ("--merge", "--svg"):
            self.assertEqual(0, self.slimps(self.trace, flag, "/dev/null").returncode)
            self.assertFalse(os.path.isfile("/dev/null"))
        result = self.slimps(self.trace, "--merge", "/dev/null", "--svg", self.path("t.svg"))
        self.assertIn(
            "--merge /dev/null: expected a file, which --svg is drawn from", result.stderr
        )
        with job_trace.Gathering("/dev/null") as trace:
            self.assertNotEqual("/dev", os.path.dirname(trace.folder))

    def test_launch_and_demo_refuse_a_file_that_cannot_be_written_at_once(self):
        for command in (
            [
                "launch",
                "--workers",
                "1",
                "--servers",
                "1",
                "--trace",
                "/no/such/t.json",
                "--",
                "true",
            ],
            ["demo", "--trace", self.folder],
        ):
            result = subprocess.run(
                [os.path.join(TOOLS, "slimps")] + command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            self.assertEqual(2, result.returncode, result.stderr)
            self.assertIn(
                "--trace: cannot write " + command[command.index("--trace") + 1], result.stderr
            )


if __name__ == "__main__":
    unittest.main()
