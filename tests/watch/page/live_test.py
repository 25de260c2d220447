# SPDX-License-Identifier: Apache-2.0
"""The page, `slimps status` and the log of a job of real processes, one of which is stopped."""

import json
import os
import re
import signal
import sys
import time
import unittest

import browser
import terminal
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "cluster", "processes"))

from process_cluster import ProcessCluster  # noqa: E402

# The link leaves the cores to the browser.
TRAIN = ["--model", "logistic", "--emulate_link", "2mbit"]
RAW_PULLS = ["--model", "mlp", "--emulate_link", "100mbit", "--compression", "1bit"]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\w+")
DIGITS = ["--dataset", "digits", "--epochs", "1000000"]
UNHEARD = "worker 1 has not been heard for "
IN_TIME_S = 3.0
GIVEN_UP_S = 8.0  # the job fails 10 s after it has heard a node last

CLASS_OF_WORKER_1 = """
return [...document.querySelectorAll("#nodes .node")]
  .find((card) => card.textContent.startsWith("worker 1"))?.className;
"""


def address_of(job):
    """Returns the address of a job's page, as the scheduler's log says it."""
    return job.wait_for(lambda: ADDRESS.search(job.output("scheduler")), "the address").group()


class NobodyLookedTest(unittest.TestCase):
    def test_the_first_status_has_the_tensors(self):
        # With heartbeats so short, details come early within the time that status gives them.
        scheduler = ["--page_port=0", "--heartbeat_interval_ms=100"]
        with ProcessCluster(2, 1, TRAIN + DIGITS + ["--log_every", "1"], scheduler) as job:
            job.wait_for_line("worker0", "step 2/")
            state = {"job": {"phase": "forming"}}  # until the scheduler has looked again
            while state["job"]["phase"] == "forming":
                _, said, complained = terminal.run("status", "--json", "--address", address_of(job))
                self.assertEqual("", complained)
                state = json.loads(said)
        self.assertEqual(
            {640, 10}, {tensor["elements"] for tensor in state["tensors"]}, state["job"]
        )


class LiveTest(browser.BrowserCase):
    def open(self, flags):
        """Starts a job with all times as they are by default, and opens its page."""
        self.job = ProcessCluster(2, 1, flags + DIGITS, scheduler_flags=["--page_port=0"])
        self.addCleanup(self.job.__exit__)
        self.addCleanup(self.driver.get, "about:blank")
        self.job.__enter__()
        self.address = address_of(self.job)
        browser.look(self.driver, 1600)
        self.driver.get(self.address)
        self.job.wait_for(lambda: self.round() > 0, "a round on the page")

    def round(self):
        found = re.search(r"round ([\d,]+)", self.by_id("figures").text)
        return int(found.group(1).replace(",", "")) if found else 0

    def status(self):
        code, said, complained = terminal.run("status", "--address", self.address)
        self.assertEqual((0, ""), (code, complained))
        return said

    def page_says(self, state, notes):
        """True if the page shows worker 1 in this state, and says UNHEARD or not."""
        shown = self.driver.execute_script(CLASS_OF_WORKER_1)
        return shown == "node " + state and (UNHEARD in self.by_id("notes").text) == notes

    def status_says(self, state):
        return re.search("^worker 1 +%s " % state, self.status(), re.MULTILINE) is not None

    def stop(self):
        """Stops worker 1. Returns the seconds until page, status and log have all named it."""
        lines = self.job.output("scheduler").count(UNHEARD)
        self.job.kill("worker1", signal.SIGSTOP)
        stopped = time.monotonic()
        self.job.wait_for(
            lambda: self.page_says("slow", notes=True)
            and self.status_says("slow")
            and UNHEARD in self.status()
            and self.job.output("scheduler").count(UNHEARD) > lines,
            "worker 1 on the page, in the status and in the log",
            GIVEN_UP_S,
        )
        return time.monotonic() - stopped

    def go_on(self):
        self.job.kill("worker1", signal.SIGCONT)
        self.job.wait_for(lambda: self.page_says("ok", notes=False), "worker 1 to be ok again")
        self.job.wait_for(lambda: self.status_says("ok"), "worker 1 to be ok in the status")

    def test_a_stopped_worker_is_named_within_three_seconds(self):
        self.open(TRAIN)
        took = []
        while len(took) < 3 and min(took, default=IN_TIME_S) >= IN_TIME_S:
            took.append(self.stop())
            self.go_on()
        # The promise to users is this time. The best try leaves out what else the machine did.
        self.assertLess(min(took), IN_TIME_S, took)

    def test_the_stopped_worker_is_seen_at_every_width_dark_and_light(self):
        self.open(TRAIN)
        self.stop()
        for look in self.looks():
            self.assert_fits(look)
            [slow] = self.driver.find_elements(By.CSS_SELECTOR, ".node.slow")
            self.assertTrue(slow.is_displayed(), look)
            self.assertIn("worker 1", slow.text, look)
            self.assertIn(UNHEARD, self.by_id("notes").text, look)
        self.go_on()

    def tab_to(self, label):
        for focused in self.tab_round():
            if focused.text.rstrip(" ▲▼") == label:
                return
        self.fail("Tab does not come to " + label)

    def test_the_keyboard_alone_sorts_the_tables(self):
        self.open(TRAIN)
        self.wait(lambda: self.column("tensors", 2))
        self.tab_to("All nodes as a table")
        self.press(Keys.ENTER)
        self.tab_to("Node")
        self.press(Keys.ENTER)
        self.assertEqual(["worker 1", "worker 0", "server 0"], self.column("nodes-table", 1))
        self.tab_to("Elements")
        for expected in (["640", "10"], ["10", "640"]):
            self.press(Keys.ENTER)
            self.assertEqual(expected, self.column("tensors", 2))
        shown = self.round()
        self.wait(lambda: self.round() > shown)
        self.assertEqual("Elements ▲", self.driver.switch_to.active_element.text)
        self.assertEqual(["10", "640"], self.column("tensors", 2))

    def test_raw_pulls_on_a_slow_link_are_named_by_the_advice(self):
        self.open(RAW_PULLS)
        # Where the machine is busy, the figures may say so only after a while.
        advice = r"dvice: pulls take [\d.]+ MB/s raw, \d+ times the pushes: compress them too"
        for place, says in (("page", lambda: self.by_id("notes").text), ("status", self.status)):
            self.job.wait_for(lambda: re.search(advice, says()), "advice: " + place)


if __name__ == "__main__":
    unittest.main()
