# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, and what tests ask of a page in it."""

import contextlib
import itertools
import unittest

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

WIDTHS = (320, 800, 1600)
SCHEMES = ("light", "dark")

# What reaches beyond the right edge, for a reader of the failure.
TOO_WIDE = """
const seen = [...document.querySelectorAll("main *")].filter(
  (each) => each.getBoundingClientRect().right > innerWidth && !each.closest(".box, svg"));
return [document.documentElement.scrollWidth > innerWidth, ...seen.map((each) => each.outerHTML)];
"""


@contextlib.contextmanager
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # As root there is no sandbox. Where tests run, /dev/shm may be small.
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument("--" + flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    try:
        yield driver
    finally:
        driver.quit()


def look(driver, width, height=900, scheme="light", reduced_motion=True):
    """Sets the window's width and what the user prefers."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    motion = "reduce" if reduced_motion else "no-preference"
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": name, "value": value} for name, value in features.items()]},
    )


class BrowserCase(unittest.TestCase):
    """All tests of a class share one browser."""

    @classmethod
    def setUpClass(cls):
        started = chromium()
        cls.driver = started.__enter__()
        cls.addClassCleanup(started.__exit__, None, None, None)

    def wait(self, fact):
        return WebDriverWait(self.driver, 30, 0.02).until(lambda _: fact())

    def by_id(self, name):
        return self.driver.find_element(By.ID, name)

    def column(self, table, number):
        cells = (
            "return [...document.querySelectorAll(arguments[0])].map((cell) => cell.textContent)"
        )
        return self.driver.execute_script(cells, "#%s tbody td:nth-child(%d)" % (table, number))

    def looks(self):
        """Yields "320 light" and so on, with the window as it says."""
        for width, scheme in itertools.product(WIDTHS, SCHEMES):
            look(self.driver, width, scheme=scheme)
            yield "%d %s" % (width, scheme)

    def assert_fits(self, what):
        """Fails unless nothing is wider than the window, once the page is drawn for its width."""
        with contextlib.suppress(TimeoutException):
            self.wait(lambda: self.driver.execute_script(TOO_WIDE) == [False])
        self.assertEqual([False], self.driver.execute_script(TOO_WIDE), what)

    def press(self, key):
        self.driver.switch_to.active_element.send_keys(key)

    def tab_round(self):
        """Yields what Tab focuses, from the page's begin to its end."""
        self.driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
        body = self.driver.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        first = None
        while (focused := self.driver.switch_to.active_element) not in (first, body):
            first = first or focused
            yield focused
            self.press(Keys.TAB)
