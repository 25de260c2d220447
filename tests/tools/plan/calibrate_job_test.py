# SPDX-License-Identifier: Apache-2.0
"""A calibration from its job to its file: real workers and servers, few codecs, short measurements.

No figure is judged here.
"""

import io
import os
import tempfile
import unittest

from plan import calibrate, calibration, exchanges
from plan.terms import RAW
from slimps_launch import job_launch, out_files

PROGRAM = os.path.abspath("tools/bench/codec/bench_codec")  # in the runfiles, where tests start
ENVIRONMENT = {
    "PYTHONPATH": os.path.join(os.getcwd(), "python", "package"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


class CalibrateJobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "ours.json")
        self.program = os.path.join(folder.name, "short")
        with open(self.program, "w", encoding="utf-8") as out:
            out.write('#!/bin/sh\nexec %s --quick "$@"\n' % PROGRAM)
        os.chmod(self.program, 0o755)

    def test_a_job_leaves_a_calibration_that_plans(self):
        command = calibrate.launch_command("local", 2, 2, self.program, quick=True)
        worker = list(command[command.index("--") + 1 :])
        self.assertEqual("python3", worker[0])
        out = io.StringIO()
        job = job_launch.Job(
            ["scheduler/slimps_scheduler"],
            ["server/slimps_server"],
            ["/usr/bin/python3"] + worker[1:],
            2,
            2,
            ENVIRONMENT,
        )
        self.assertEqual(0, job_launch.Launcher(job, out=out).run(), out.getvalue())
        reports = calibrate.reports_of(out.getvalue().splitlines())
        self.assertEqual([0, 1], [report["rank"] for report in reports])
        cluster = calibrate.job_cluster("local", 2, 2)
        out_files.save_json(self.path, calibrate.content_of(reports, cluster))
        found = calibration.load(self.path)
        calibration.check_machine(found, calibration.this_machine(), self.path)
        costs = calibration.costs_of(found)
        self.assertEqual({RAW, "bf16", "1bit", "thc"}, set(costs.codecs))
        self.assertIs(exchanges.Thc, exchanges.family_of(costs.codecs["thc"].spec))
        self.assertGreater(costs.codecs["thc"].phases(1 << 18), 0)
        self.assertLessEqual(
            costs.codecs["thc"].further(1 << 18), costs.codecs["thc"].decode(1 << 18)
        )


if __name__ == "__main__":
    unittest.main()
