# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium, served as the scheduler serves it, with a state that tests set."""

import contextlib
import http.server
import json
import os
import secrets
import threading
import urllib.parse

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../watch/page/page.html")
POLICY = (
    "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TOKEN = "0123456789abcdef"


class Scheduler(http.server.ThreadingHTTPServer):
    """Answers as the scheduler does, with `state`; not at all while `state` is None."""

    def __init__(self, state):
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.state = state
        self.over = False
        self.address = "http://127.0.0.1:%d" % self.server_port

    def become(self, state):
        with self.changed:
            self.state = state
            self.changed.notify_all()

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        with self.changed:
            self.over = True
            self.changed.notify_all()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        """A browser that goes away is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if urllib.parse.parse_qs(url.query).get("token") != [TOKEN]:
            return self.answer(403, "text/plain", "wrong or no token\n")
        if url.path == "/":
            with open(PAGE, encoding="utf-8") as page:
                nonce = secrets.token_hex(16)
                policy = POLICY % (nonce, nonce)
                return self.answer(200, "text/html", page.read().replace("@NONCE@", nonce), policy)
        if url.path == "/job.json":
            return self.answer(200, "application/json", json.dumps(self.server.state))
        if url.path == "/events":
            return self.events()
        return self.answer(404, "text/plain", "no such page\n")

    def answer(self, status, kind, text, policy="default-src 'none'"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind + "; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        server = self.server
        with server.changed:
            while not server.over:
                if server.state is not None:
                    self.wfile.write(b"data: %s\n\n" % json.dumps(server.state).encode())
                server.changed.wait(1)

    def log_message(self, format, *arguments):
        pass


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
