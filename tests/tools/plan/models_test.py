# SPDX-License-Identifier: Apache-2.0
"""Models from describe_model's JSON and from traces of a job."""

import json
import os
import tempfile
import unittest

from cli import setup
from plan import models

BASE = 1700000000000000000


class DescriptionTest(unittest.TestCase):
    def test_layers_take_their_tensors_in_order(self):
        model = models.of_description(
            {
                "name": "m",
                "ratio": 4.0,
                "tensors": [["a.weight", [3, 5]], ["a.bias", [3]], ["b.weight", [7]]],
                "layers": [[2, 0.25], [1, 0.75]],
            }
        )
        self.assertEqual([15, 3, 7], [tensor.elements for tensor in model.tensors])
        self.assertEqual((3, 5), model.tensors[0].shape)
        self.assertEqual([(0, 2), (2, 1)], [(each.first, each.tensors) for each in model.layers])
        scaled = model.scaled(30.0)
        self.assertAlmostEqual(30.0, scaled.compute_ms())
        self.assertAlmostEqual(2.5, scaled.layers[0].forward)  # a quarter of a third
        self.assertAlmostEqual(15.0, scaled.layers[1].backward)

    def test_a_model_without_times_cannot_be_scaled(self):
        model = models.of_description(
            {"name": "m", "ratio": 4.0, "tensors": [["a", [1]]], "layers": [[1, 0.0]]}
        )
        with self.assertRaisesRegex(ValueError, "model m has no compute time to scale"):
            model.scaled(1.0)


def event(stage, began_ms, ended_ms, key, round_, pid=1, partition=0, **args):
    return {
        "ph": "X",
        "name": "%s[%d]" % (key, partition),
        "cat": stage,
        "ts": began_ms * 1e3,
        "dur": (ended_ms - began_ms) * 1e3,
        "pid": pid,
        "tid": 1,
        "args": {"key": key, "partition": partition, "round": round_, **args},
    }


def process(name, pid):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def step(round_, began):
    """Returns a step's events: 6 ms forward, "last" ready, 4 ms later "first"."""
    return [
        event("copy", began + 6, began + 6.5, "last", round_, elements=120),
        event("encode", began + 7, began + 7.5, "last", round_, elements=100),
        event("encode", began + 7.5, began + 8, "last", round_, partition=1, elements=20),
        event("copy", began + 10, began + 10.5, "first", round_, elements=30),
        event("encode", began + 11, began + 11.5, "first", round_, elements=30),
        event("decode", began + 18, began + 19, "first", round_),
        # The next step begins when the last weights are there.
        event("decode", began + 19, began + 20, "last", round_),
    ]


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "job.json")

    def write(self, events):
        about = {"process": "2 processes", "base_unix_ns": str(BASE), "dropped": "0"}
        with open(self.path, "w", encoding="utf-8") as out:
            out.write('{"displayTimeUnit":"ms","otherData":%s,"traceEvents":[' % json.dumps(about))
            out.write("\n" + ",\n".join(json.dumps(each) for each in events) + "\n]}\n")

    def refused(self):
        with self.assertRaises(setup.SetupError) as refused:
            models.of_trace(self.path)
        said = str(refused.exception)
        self.assertTrue(said.startswith("--model: " + self.path), said)
        return said

    def test_gradients_are_ready_where_their_copies_begin(self):
        events = [process("worker 0", 1), process("worker 1", 2)]
        for round_ in (1, 2, 3, 4):
            events += step(round_, 20 * (round_ - 1))
        events.append(event("copy", 21, 22, "other worker's", 2, pid=2, elements=5))
        self.write(events)
        model = models.of_trace(self.path)
        self.assertEqual("job.json", model.name)
        self.assertEqual(
            [("first", 30, ()), ("last", 120, ())],
            [(tensor.name, tensor.elements, tensor.shape) for tensor in model.tensors],
        )
        self.assertAlmostEqual(10.0, model.compute_ms())
        self.assertAlmostEqual(6.0, sum(layer.forward for layer in model.layers))
        self.assertEqual([4.0, 0.0], [round(layer.backward, 6) for layer in model.layers])

    def test_codecs_with_phases_encode_other_keys(self):
        events = [process("worker 0", 1)]
        for round_ in (1, 2, 3, 4):
            for each in step(round_, 20 * (round_ - 1)):
                if each["cat"] == "encode":
                    each["args"]["key"] = "#p:" + each["args"]["key"]
                    del each["args"]["elements"]
                events.append(each)
        self.write(events)
        self.assertEqual(
            [("first", 30), ("last", 120)],
            [(tensor.name, tensor.elements) for tensor in models.of_trace(self.path).tensors],
        )

    def test_a_trace_without_compute_is_refused(self):
        events = [process("worker 0", 1)]
        for round_ in (1, 2, 3, 4):
            ended = 20.0 * round_
            events.append(event("copy", ended, ended + 1, "w", round_, elements=30))
            events.append(event("decode", ended + 19, ended + 20, "w", round_))
        self.write(events)
        self.assertIn("every gradient was ready as its step began", self.refused())

    def test_events_with_other_fields_are_refused(self):
        for damage, said in (
            ({"elements": "x"}, 'args.elements: expected a whole number from 1 on, got "x"'),
            ({"elements": 0}, "args.elements: expected a whole number from 1 on, got 0"),
            ({"elements": -5}, "args.elements: expected a whole number from 1 on, got -5"),
            ({"key": 7}, "args.key: expected text, got 7"),
            ({"partition": None}, "args.partition: expected a whole number from 0 on, got null"),
        ):
            events = [process("worker 0", 1)] + step(1, 0)
            events[1]["args"].update(damage)
            self.write(events)
            self.assertIn(said, self.refused())

    def test_a_trace_without_gradients_says_what_is_expected(self):
        self.write([process("worker 0", 1)])
        self.assertIn("pushed no gradients", self.refused())
        self.write([process("server 0", 1)] + step(1, 0))
        self.assertIn("pushed no gradients", self.refused())

    def test_a_trace_of_one_step_is_too_short(self):
        self.write([process("worker 0", 1)] + step(1, 0))
        self.assertIn("no whole step after the first 1; expected at least 3 steps", self.refused())

    def test_other_files_are_no_traces(self):
        with open(self.path, "w", encoding="utf-8") as out:
            out.write("{}\n")
        self.assertIn("not a trace that slimps wrote", self.refused())
        os.unlink(self.path)
        self.assertIn("No such file", self.refused())

    def test_a_name_is_told_from_a_path(self):
        self.assertFalse(models.is_trace("resnet50"))
        self.assertTrue(models.is_trace("job.json"))
        self.assertTrue(models.is_trace("./job"))


if __name__ == "__main__":
    unittest.main()
