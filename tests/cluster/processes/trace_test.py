# SPDX-License-Identifier: Apache-2.0
"""A real job under the launcher, traced. One file has what every process did with every partition
of every round."""

import collections
import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

from slimps_launch import job_launch
from slimps_launch import job_trace

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
TOOLS = os.path.join(ROOT, "tools")

DIGITS = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
PROGRAMS = {
    name: os.path.abspath(os.path.join(name, "slimps_" + name))
    for name in ("scheduler", "server", "worker")
}
WORKERS, SERVERS, STEPS = 2, 2, 6
TRAIN = [
    "--model",
    "mlp",
    "--dataset",
    "digits",
    "--batch",
    "16",
    "--max_steps",
    str(STEPS),
    "--partition_bytes",
    "8192",
    "--compression",
    "1bit",
    "--threshold",
    "2000",
    "--backup_model",
    "on",
    "--non_finite",
    "skip",  # so that gradients are copied, and not lent
]
# The stages that a worker has for each partition and round, and those for each tensor (its first
# partition) and round.
OF_PARTITION = ("encode", "send", "pull", "decode")
OF_TENSOR = ("copy", "local_update")


def launch(out, flags, workers=WORKERS, servers=SERVERS):
    """Runs a job with --trace. Returns its status, what the gathering said, and the log."""
    said = []
    job = job_launch.Job(
        [PROGRAMS["scheduler"]],
        [PROGRAMS["server"]],
        [PROGRAMS["worker"]] + flags,
        workers,
        servers,
    )
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log, job_trace.Gathering(out) as trace:
        job.environment.update(trace.of_job(workers, servers))
        status = job_launch.Launcher(job, out=log).run()
        trace.merge(said.append)
        log.seek(0)
        return status, said, log.read()


@unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
class TracedJobTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "job.json")
        cls.status, cls.said, cls.log = launch(cls.path, TRAIN)
        if cls.status != 0:
            raise AssertionError("status %d\n%s" % (cls.status, cls.log))
        with open(cls.path, encoding="utf-8") as text:
            trace = json.load(text)
        names = {
            entry["pid"]: entry["args"]["name"]
            for entry in trace["traceEvents"]
            if entry["name"] == "process_name"
        }
        cls.rows = {
            (names[entry["pid"]], entry["tid"]): entry["args"]["name"]
            for entry in trace["traceEvents"]
            if entry["name"] == "thread_name"
        }
        cls.spans = [
            dict(entry, process=names[entry["pid"]])
            for entry in trace["traceEvents"]
            if entry["ph"] == "X"
        ]
        # Counts (stage, key, partition, round) of each process.
        cls.what = collections.defaultdict(collections.Counter)
        for span in cls.spans:
            args = span["args"]
            cls.what[span["process"]][
                span["cat"], args["key"], args["partition"], args["round"]
            ] += 1

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def partitions(self):
        """Returns each (key, partition) of the job, as the servers have them."""
        found = {
            (key, partition)
            for rank in range(SERVERS)
            for stage, key, partition, _ in self.what["server %d" % rank]
            if stage == "aggregate"
        }
        self.assertGreater(len({key for key, _ in found}), 3)
        self.assertGreater(len(found), len({key for key, _ in found}))  # some tensor has several
        return sorted(found)

    def test_all_processes_are_there_and_nothing_was_left_out(self):
        nodes = {"scheduler 0", "worker 0", "worker 1", "server 0", "server 1"}
        self.assertEqual(nodes, set(self.what))
        self.assertEqual(1, len(self.said), self.said)

    def test_every_worker_has_every_stage_of_every_partition_and_round_once(self):
        for worker in ("worker 0", "worker 1"):
            for key, partition in self.partitions():
                for round_number in range(1, STEPS + 1):
                    for stage in OF_PARTITION + (OF_TENSOR if partition == 0 else ()):
                        self.assertEqual(
                            1,
                            self.what[worker][stage, key, partition, round_number],
                            (worker, stage, key, partition, round_number),
                        )

    def test_a_copy_has_the_elements_of_all_partitions(self):
        copied, encoded = {}, collections.defaultdict(dict)
        for span in self.spans:
            args = span["args"]
            if span["process"] == "worker 0" and span["cat"] == "copy":
                copied[args["key"]] = args["elements"]
            if span["process"] == "worker 0" and span["cat"] == "encode":
                encoded[args["key"]][args["partition"]] = args["elements"]
        self.assertEqual({key: sum(parts.values()) for key, parts in encoded.items()}, copied)

    def test_every_worker_computes_each_step_and_waits(self):
        for worker in ("worker 0", "worker 1"):
            for step in range(1, STEPS + 1):
                self.assertEqual(1, self.what[worker]["compute", "", 0, step], (worker, step))
            self.assertIn("wait", {stage for stage, _, _, _ in self.what[worker]})

    def test_one_server_aggregates_each_round_once_and_answers_each_worker(self):
        for key, partition in self.partitions():
            for round_number in range(1, STEPS + 1):
                of_servers = sum(
                    (self.what["server %d" % rank] for rank in range(SERVERS)),
                    collections.Counter(),
                )
                self.assertEqual(1, of_servers["aggregate", key, partition, round_number])
                self.assertEqual(
                    WORKERS,
                    of_servers["reply", key, partition, round_number],
                    (key, partition, round_number),
                )

    def test_a_tensor_travels_in_the_journeys_order_over_processes(self):
        at = {}
        for span in self.spans:
            args = span["args"]
            at[span["process"], span["cat"], args["key"], args["partition"], args["round"]] = (
                span["ts"],
                span["ts"] + span["dur"],
            )
        owner = {
            (key, partition): process
            for process, _, key, partition, _ in at
            if process.startswith("server")
        }
        for key, partition in self.partitions():
            server = owner[key, partition]
            for number in range(1, STEPS + 1):
                aggregated = at[server, "aggregate", key, partition, number]
                for worker in ("worker 0", "worker 1"):
                    encoded = at[worker, "encode", key, partition, number]
                    decoded = at[worker, "decode", key, partition, number]
                    # The clocks agree: one process ends its work before another uses the result.
                    self.assertLessEqual(encoded[1], aggregated[0] + 0.01)
                    self.assertLessEqual(aggregated[0], decoded[0] + 0.01)

    def test_rows_are_by_stage_and_thread_and_their_spans_do_not_cross(self):
        named = set(self.rows.values())
        self.assertTrue({"encode (push)", "decode (pull)", "send", "pull"} <= named, named)
        self.assertTrue(any(name.startswith("aggregate (shard") for name in named), named)
        rows = collections.defaultdict(list)
        for span in self.spans:
            self.assertTrue(self.rows[span["process"], span["tid"]].startswith(span["cat"]))
            rows[span["process"], span["tid"]].append(
                (round(span["ts"] * 1000), round((span["ts"] + span["dur"]) * 1000))
            )
        for row, times in rows.items():
            open_ends = []
            for began, ended in sorted(times, key=lambda pair: (pair[0], -pair[1])):
                while open_ends and open_ends[-1] <= began + 2:  # parts round to a nanosecond each
                    open_ends.pop()
                self.assertTrue(not open_ends or ended <= open_ends[-1] + 2, self.rows[row])
                open_ends.append(ended)

    def test_it_is_rendered(self):
        picture = os.path.join(self.folder.name, "job.svg")
        result = subprocess.run(
            [os.path.join(TOOLS, "slimps"), "trace", self.path, "--svg", picture],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.assertEqual(0, result.returncode, result.stderr)
        boxes = [
            element
            for element in xml.etree.ElementTree.parse(picture).iter(
                "{http://www.w3.org/2000/svg}rect"
            )
            if element.get("class") == "box"
        ]
        self.assertEqual(len(self.spans), len(boxes))


class ProgramsTest(unittest.TestCase):
    def test_a_file_that_cannot_be_written_is_refused_before_anything_else(self):
        for name, flags in (
            ("worker", ["--scheduler", "none:1"]),
            ("server", ["--root_port", "1"]),
        ):
            result = subprocess.run(
                [PROGRAMS[name], "--trace", "/no/such/t.json"] + flags,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
            self.assertEqual(2, result.returncode, result.stderr)
            self.assertEqual(
                "slimps_%s: --trace: cannot write trace /no/such/t.json: No such file or "
                "directory\n" % name,
                result.stderr,
            )

    @unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
    def test_a_job_that_fails_leaves_the_parts_of_those_that_could_write(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "job.json")
            status, said, log = launch(
                out, TRAIN + ["--lr", "1e6", "--non_finite", "stop", "--max_steps", "50"], 1, 1
            )
            self.assertEqual(1, status, log)
            with open(out, encoding="utf-8") as text:
                processes = {
                    entry["args"]["name"]
                    for entry in json.load(text)["traceEvents"]
                    if entry["name"] == "process_name"
                }
            self.assertIn("worker 0", processes, said)

    @unittest.skipUnless(os.path.exists(DIGITS), "needs Debian's python3-sklearn for its digits")
    def test_without_the_flag_nothing_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            job = job_launch.Job(
                [PROGRAMS["scheduler"]], [PROGRAMS["server"]], [PROGRAMS["worker"]] + TRAIN, 1, 1
            )
            here = os.getcwd()
            os.chdir(folder)
            try:
                with open(os.devnull, "w", encoding="utf-8") as log:
                    self.assertEqual(0, job_launch.Launcher(job, out=log).run())
            finally:
                os.chdir(here)
            self.assertEqual([], os.listdir(folder))


if __name__ == "__main__":
    unittest.main()
