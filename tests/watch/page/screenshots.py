# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/watching.md and docs/operations.md anew:

cd tests/watch/page && /usr/bin/python3 screenshots.py ../../../docs
pngquant 64 --nofs --force --ext .png ../../../docs/watching-*.png      # a third of the bytes
"""

import base64
import os
import sys

from selenium.webdriver.support.ui import WebDriverWait

import browser
import samples
import scheduler

# Name, width, height (None: all of the page), scheme.
PICTURES = (
    ("watching-light", 1600, None, "light"),
    ("watching-dark", 320, 1500, "dark"),
    ("watching-stall", 800, 780, "light"),
)


def main(folder):
    with browser.chromium() as driver, scheduler.Scheduler(samples.stopped_worker()) as served:
        for name, width, height, scheme in PICTURES:
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
            with open(os.path.join(folder, name + ".png"), "wb") as out:
                out.write(base64.b64decode(png))


if __name__ == "__main__":
    main(*sys.argv[1:])
