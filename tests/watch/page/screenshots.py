# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/watching.md and docs/operations.md anew:

cd tests/watch/page && /usr/bin/python3 screenshots.py ../../../docs
"""

import base64
import io
import os
import sys

from PIL import Image
from selenium.webdriver.support.ui import WebDriverWait

import browser
import samples
import scheduler

COLOURS = 64  # make a third of the bytes
# Name, job, width, height (None: all of the page), scheme.
PICTURES = (
    ("watching-light", samples.stopped_worker(), 1600, None, "light"),
    ("watching-dark", samples.stopped_worker(), 320, 1500, "dark"),
    ("watching-stall", samples.stopped_worker(), 800, 780, "light"),
    ("watching-advice", samples.raw_pulls(), 800, 333, "light"),
)


def main(folder):
    with browser.chromium() as driver, scheduler.Scheduler(None) as served:
        for name, job, width, height, scheme in PICTURES:
            served.become(job)
            browser.look(driver, width, height or 900, scheme)
            driver.get("%s/?token=%s" % (served.address, scheduler.TOKEN))
            live = "return document.getElementById('link').textContent === 'live'"
            WebDriverWait(driver, 30).until(lambda shown: shown.execute_script(live))
            whole = driver.execute_script("return document.documentElement.scrollHeight")
            browser.look(driver, width, height or whole, scheme)
            # The curves fill the new width with the next frame.
            driver.execute_async_script(
                "const done = arguments[0];"
                "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))"
            )
            png = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
            picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
            picture = picture.quantize(COLOURS, dither=Image.Dither.NONE)
            picture.save(os.path.join(folder, name + ".png"), optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
