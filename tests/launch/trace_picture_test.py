# SPDX-License-Identifier: Apache-2.0
"""The picture of slimps trace: boxes are where the events are."""

import unittest

from traces import SVG, box, elements
from slimps_launch import trace_svg as svg


class PictureTest(unittest.TestCase):
    def boxes_in(self, picture):
        """Returns (left, width, top, colour, tip) of each box. Left and width are in units of the
        plot, top in pixels."""
        return [
            (
                (float(one.get("x")) - svg.MARGIN - svg.LABELS_WIDTH) / svg.PLOT_WIDTH,
                float(one.get("width")) / svg.PLOT_WIDTH,
                float(one.get("y")),
                one.get("fill"),
                one.find(SVG + "title").text,
            )
            for one in elements(picture, "rect", "box")
        ]

    def test_boxes_are_where_the_events_are(self):
        picture, remark = svg.render([box("encode", 10, 15), box("send", 12.5, 20)], 10, 20)
        self.assertEqual("", remark)
        encode, send = self.boxes_in(picture)
        self.assertAlmostEqual(0.0, encode[0], 3)
        self.assertAlmostEqual(0.5, encode[1], 3)
        self.assertAlmostEqual(0.25, send[0], 3)
        self.assertAlmostEqual(0.75, send[1], 3)
        self.assertLess(encode[2], send[2])  # each has its own row, in the journey's order
        self.assertEqual((svg.STAGES["encode"], svg.STAGES["send"]), (encode[3], send[3]))
        self.assertEqual("encode s:w[0], round 1: 5.000 ms from 10.000 ms", encode[4])

    def test_a_box_is_cut_at_the_window(self):
        cut = self.boxes_in(svg.render([box(began=0, ended=30)], 10, 20)[0])[0]
        self.assertAlmostEqual(0.0, cut[0], 3)
        self.assertAlmostEqual(1.0, cut[1], 3)

    def test_what_is_under_way_at_once_does_not_overlap(self):
        picture, _ = svg.render([box("send", 0, 4), box("send", 1, 3), box("send", 3, 5)], 0, 5)
        first, second, third = [one[2] for one in self.boxes_in(picture)][:3]
        self.assertEqual(1, len(elements(picture, "rect", "row")))
        self.assertEqual(2, len({first, second, third}))
        tops = {one[4].split("from ")[1]: one[2] for one in self.boxes_in(picture)}
        self.assertLess(tops["0.000 ms"], tops["1.000 ms"])
        self.assertEqual(tops["1.000 ms"], tops["3.000 ms"])

    def test_processes_have_headings_and_stages_labels_and_one_legend(self):
        picture, _ = svg.render(
            [box("encode"), box("send"), box("aggregate", process="server 0")], 0, 1
        )
        self.assertEqual(
            ["worker 0", "server 0"], [one.text for one in elements(picture, "text", "heading")]
        )
        self.assertEqual(
            ["encode", "send", "aggregate", "ms"],
            [one.text for one in elements(picture, "text", "end")],
        )
        self.assertEqual(
            [svg.STAGES[name] for name in ("encode", "send", "aggregate")],
            [one.get("fill") for one in elements(picture, "rect", "legend")],
        )

    def test_the_axis_has_round_times_of_the_window(self):
        def ticks(first, last):
            return [
                one.text
                for one in elements(
                    svg.render([box(began=first, ended=last)], first, last)[0], "text", "mid"
                )
            ]

        self.assertEqual(["%d" % ms for ms in range(0, 101, 10)], ticks(0, 100))
        self.assertEqual(["12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6"], ticks(12, 12.6))
        self.assertEqual(["1000", "1200", "1400", "1600", "1800", "2000", "2200"], ticks(950, 2300))
        self.assertEqual([0.2, 1, 1, 200], [svg.tick_step(span) for span in (1.5, 6, 10, 2400)])

    def test_odd_names_leave_it_well_formed(self):
        picture, _ = svg.render([box(name="s:<a & \"b\">\u20ac[0]", process="worker <0>")], 0, 1)
        self.assertIn("s:<a & \"b\">\u20ac[0]", self.boxes_in(picture)[0][4])
        self.assertEqual("<a & \"b\">\u20ac[0]", elements(picture, "text", "in")[0].text)

    def test_an_unknown_stage_has_a_row_behind_the_others(self):
        picture, _ = svg.render([box("zip"), box("reply")], 0, 1)
        self.assertEqual(
            ["reply", "zip", "ms"], [one.text for one in elements(picture, "text", "end")]
        )

    def test_too_many_rows_are_cut_and_said(self):
        boxes = [
            box(stage, process="worker %02d" % rank)
            for rank in range(10)
            for stage in list(svg.STAGES)[:5]
        ]
        picture, remark = svg.render(boxes, 0, 1)
        self.assertEqual(svg.MAX_ROWS, len(elements(picture, "rect", "row")))
        self.assertIn("50 rows: the picture has the first 40", remark)
        self.assertIn("lacks stages of worker 08, worker 09", remark)

    def test_too_many_boxes_are_refused(self):
        with self.assertRaisesRegex(
            ValueError, "20001 events from 0 to 1 ms.*at most 20000.*shorter window"
        ):
            svg.render([box()] * (svg.MAX_BOXES + 1), 0, 1)


if __name__ == "__main__":
    unittest.main()
