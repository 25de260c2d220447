# SPDX-License-Identifier: Apache-2.0
"""Predictions for the rows of docs/measurements/cluster.md.

They were measured on a machine like reference.json's. Nothing was fitted to them.
"""

import os
import statistics
import unittest

from bench.cluster import net
from bench.cluster import systems as bench_systems
from plan import calibration, check, models, plan_command
from plan.simulator import simulate
from plan.terms import Cluster, System

# In the runfiles, where tests start.
PAGE = os.path.abspath("docs/measurements/cluster.md")
PROGRAM = os.path.abspath(models.PROGRAM["describe_model"][1])
BEGIN, END = "<!-- bench cluster 1gbit -->", "<!-- end cluster 1gbit -->"
MODELS = ("inception_bn", "resnet50", "lstm_ptb")
# Two-way systems wait for the machine's two cores, not for the link.
SYSTEMS = ("fp32", "1bit", "2bit", "terngrad", "slimgc_1bit", "slimgc_2bit")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def threshold(cell):
    number, _, unit = cell.partition(" ")
    return int(float(number) * UNITS[unit]) if unit else 0


def rows():
    """Yields (model, system, measured ms, compute ms, threshold) of the page at 1 Gbit/s."""
    with open(PAGE, encoding="utf-8") as page:
        text = page.read().partition(BEGIN)[2].partition(END)[0]
    model = None
    for line in text.splitlines():
        if line.startswith("### "):
            model = line[4:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if model in MODELS and cells[0] in SYSTEMS:
            entry = bench_systems.BY_NAME[cells[0]]
            yield model, entry, float(cells[1]), float(cells[6]), threshold(cells[-1])


def predicted(model, entry, compute_ms, least, costs):
    system = System(
        entry.name,
        entry.compression,
        entry.pull,
        entry.backup,
        least,
        0,
        entry.coalesce,
        entry.prioritise,
    )
    cluster = check.bench_cluster_of(
        Cluster(workers=2, bits_per_second=net.bits_per_second("1gbit")), cores=2
    )
    return simulate(model.scaled(compute_ms), system, cluster, costs).iteration_ms


class PublishedTest(unittest.TestCase):
    def test_the_link_bound_rows_of_1_gbit_are_predicted(self):
        costs = calibration.costs_of(calibration.load(plan_command.REFERENCE))
        shapes = {name: models.find(name, PROGRAM) for name in MODELS}
        errors = {}
        for name, entry, took, compute_ms, least in rows():
            said = predicted(shapes[name], entry, compute_ms, least, costs)
            errors[name, entry.name] = said / took - 1
        self.assertGreaterEqual(len(errors), 15)
        self.assertLess(statistics.median(map(abs, errors.values())), 0.05, errors)
        self.assertLess(max(map(abs, errors.values())), 0.12, errors)


if __name__ == "__main__":
    unittest.main()
