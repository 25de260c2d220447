# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import unittest
import xml.dom.minidom

import folder_case
from cli import decisions
from cli import decisions_svg

DECISIONS = [
    {
        "from_round": 1,
        "reason": "nothing is measured yet",
        "codecs": {"w": "topk:ratio=0.01", "v": "topk:ratio=0.01"},
        "reasons": {"w": "uniform"},
    },
    {
        "from_round": 54,
        "reason": "2 times fewer bytes",
        "codecs": {"w": "topk:ratio=0.002", "v": "topk:ratio=0.01"},
        "reasons": {"w": "few & large <elements>"},
    },
]
SUMMARY = {
    "policy": "lgreco:codec=topk",
    "steps": 100,
    "tensors": [{"key": "w", "elements": 4000}, {"key": "v", "elements": 900}],
    "policy_decisions": DECISIONS,
}


def decided(**fields):
    return dict(SUMMARY, policy_decisions=[dict(DECISIONS[0], **fields)])


class DecisionsTest(folder_case.FolderCase):
    def run_on(self, content, *arguments):
        text = content if isinstance(content, str) else json.dumps(content)
        path = self.put("summary.json", text)
        said, complained = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            status = decisions.main([path, *arguments])
        return status, said.getvalue(), complained.getvalue()

    def test_prints_each_decision_and_what_it_changed(self):
        status, said, _ = self.run_on(SUMMARY)
        self.assertEqual(0, status)
        first, second = said.split("from round 54")
        self.assertIn("from round 1: nothing is measured yet", first)
        self.assertRegex(first, r"w +topk 0.01 +uniform")
        self.assertIn("2 times fewer bytes", second)
        self.assertRegex(second, r"w +topk 0.002 +few & large")
        self.assertNotRegex(second, r"\n  v ")

    def test_draws_a_row_per_tensor(self):
        path = self.path("decisions.svg")
        self.assertEqual(0, self.run_on(SUMMARY, "--svg", path)[0])
        boxes = [
            box
            for box in xml.dom.minidom.parse(path).getElementsByTagName("rect")
            if box.getAttribute("class") == "box"
        ]
        self.assertEqual(3, len(boxes))
        wide, narrow, other = (float(box.getAttribute("width")) for box in boxes)
        self.assertAlmostEqual(53 / 47, wide / narrow, delta=0.01)
        self.assertAlmostEqual(other, wide + narrow, delta=0.2)
        self.assertNotEqual(boxes[0].getAttribute("fill"), boxes[1].getAttribute("fill"))
        tip = boxes[1].getElementsByTagName("title")[0].firstChild.data
        self.assertEqual("w, rounds 54 to 100: topk 0.002: few & large <elements>", tip)

    def test_tensors_that_are_not_drawn_are_counted(self):
        tensors = [{"key": "t%d" % i, "elements": i + 1} for i in range(decisions.MAX_TENSORS + 2)]
        _, said, _ = self.run_on(dict(SUMMARY, tensors=tensors), "--svg", self.path("a.svg"))
        self.assertIn("2 smaller tensors are not drawn", said)

    def test_a_picture_that_cannot_be_written_is_a_usage_error(self):
        with self.assertRaises(SystemExit) as ended:
            self.run_on(SUMMARY, "--svg", self.path("missing/a.svg"))
        self.assertEqual(2, ended.exception.code)

    def test_a_ladder_shows_all_its_steps(self):
        ladder = dict(DECISIONS[0], codecs={"w": ["topk:ratio=0.01", "none"]})
        boxes = decisions_svg.boxes_of([ladder], "w", 100)
        self.assertEqual([(1, 100, ["topk:ratio=0.01", "none"], "uniform")], boxes)
        self.assertRegex(
            self.run_on(dict(SUMMARY, policy_decisions=[ladder]))[1], "topk 0.01 or raw"
        )

    def test_codecs_are_shaded_from_raw_on(self):
        order = sorted(
            ["topk:ratio=0.001", "none", "qsgd:bits=4", "1bit", "fp16", "topk:ratio=0.1"],
            key=lambda codec: -decisions_svg.bits_of(codec),
        )
        self.assertEqual(
            ["none", "fp16", "qsgd:bits=4", "topk:ratio=0.1", "1bit", "topk:ratio=0.001"], order
        )

    def test_a_file_without_decisions_is_refused_by_name(self):
        for content, why in (
            ("{", "Expecting"),
            ({"steps": 3}, "policy: expected text, got nothing"),
            (dict(SUMMARY, tensors=[{"key": "w"}]), "tensors[0].elements: expected a whole number"),
            (dict(SUMMARY, policy="threshold", policy_decisions=[]), "got --policy=threshold"),
            (dict(SUMMARY, tensors=[]), "tensors: expected at least one"),
            (decided(codecs={"w": []}), "codecs: expected an object of codecs"),
            (decided(codecs={"w": [5]}), "codecs: expected an object of codecs"),
            (decided(reasons={"w": 1}), "reasons: expected an object of texts"),
        ):
            status, _, complained = self.run_on(content)
            self.assertEqual(1, status)
            self.assertIn("summary.json", complained)
            self.assertIn(why, complained)


if __name__ == "__main__":
    unittest.main()
