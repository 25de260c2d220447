# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium."""

import contextlib

from selenium import webdriver
from selenium.webdriver.chrome.service import Service


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
