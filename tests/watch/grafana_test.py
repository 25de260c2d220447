# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard and the docs name the metrics that there are, as their kinds want it."""

import itertools
import json
import os
import re
import unittest

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
METRIC = re.compile(
    r"\{\"(slimps_\w+)\",\s*(?:\"[^\"]*\",?\s*)+MetricKind::k(\w+),\s*\{([^}]*)\}", re.DOTALL
)
ROW = re.compile(r"^\| `(slimps_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
OF_NODES = {"role", "rank"}  # labels that whoever exports a metric adds


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as text:
        return text.read()


def catalogue():
    """Returns {name: (type, labels)} of all metrics."""
    return {
        name: (kind.lower(), set(re.findall(r"\w+", labels)))
        for name, kind, labels in METRIC.findall(read("watch/metrics.cc"))
    }


class DocsTest(unittest.TestCase):
    def setUp(self):
        self.docs = read("docs/watching.md")

    def test_the_docs_have_a_row_for_every_metric_and_no_other(self):
        rows = ROW.findall(self.docs)
        told = {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}
        self.assertEqual(catalogue(), told)
        self.assertEqual(len(told), len(rows))

    def test_questions_in_the_docs_are_asked_of_metrics_as_their_kinds_want_it(self):
        _, _, questions = self.docs.partition("| question | PromQL |")
        asked = re.findall(r"(\w*)\(?(slimps_\w+)", questions)
        self.assertGreaterEqual(len(asked), 5)
        for function, name in asked:
            self.assertEqual(catalogue()[name][0] == "counter", function == "rate", name)


class GrafanaTest(unittest.TestCase):
    def setUp(self):
        self.metrics = catalogue()
        self.board = json.loads(read("watch/grafana.json"))
        self.targets = [target for panel in self.board["panels"] for target in panel["targets"]]

    def test_every_metric_of_the_catalogue_has_a_panel_and_no_other(self):
        self.assertEqual(read("watch/metrics.cc").count("MetricKind::k"), len(self.metrics))
        asked = {
            name for target in self.targets for name in re.findall(r"slimps_\w+", target["expr"])
        }
        self.assertEqual(set(self.metrics), asked)

    def test_counters_are_shown_by_their_rate_and_gauges_as_they_are(self):
        for target in self.targets:
            for function, name in re.findall(r"(\w*)\(?(slimps_\w+)", target["expr"]):
                is_counter = self.metrics[name][0] == "counter"
                self.assertEqual(is_counter, name.endswith("_total"), name)
                self.assertEqual(is_counter, function in ("rate", "increase"), target["expr"])

    def test_labels_are_those_that_the_metrics_have(self):
        for target in self.targets:
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            known = OF_NODES.union(
                *(self.metrics[name][1] for name in re.findall(r"slimps_\w+", target["expr"]))
            )
            for label in re.findall(r"\w+", " ".join(kept)):
                self.assertIn(label, known, target["expr"])
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                self.assertIn(label, kept[0] if kept else known, target["expr"])

    def test_all_data_comes_from_the_source_and_the_job_that_are_chosen(self):
        variables = {one["name"]: one for one in self.board["templating"]["list"]}
        self.assertEqual("prometheus", variables["datasource"]["query"])
        self.assertEqual("query", variables["job"]["type"])
        for part in self.board["panels"] + self.targets:
            self.assertEqual("${datasource}", part["datasource"]["uid"])
        for target in self.targets:
            chosen = re.findall(r"slimps_\w+(\{job=\"\$job\"\})?", target["expr"])
            self.assertTrue(all(chosen), target["expr"])

    def test_panels_do_not_cover_each_other(self):
        places = [panel["gridPos"] for panel in self.board["panels"]]
        for place in places:
            self.assertLessEqual(place["x"] + place["w"], 24, place)
        for one, other in itertools.combinations(places, 2):
            beside = any(
                first[at] + first[length] <= second[at]
                for first, second in ((one, other), (other, one))
                for at, length in (("x", "w"), ("y", "h"))
            )
            self.assertTrue(beside, (one, other))


if __name__ == "__main__":
    unittest.main()
