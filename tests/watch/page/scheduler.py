# SPDX-License-Identifier: Apache-2.0
"""Serves the page as a scheduler does, with a state that tests set."""

import http.server
import json
import os
import secrets
import threading
import urllib.parse

PAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../watch/page/page.html")
POLICY = (
    "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TOKEN = "0123456789abcdef"


class Scheduler(http.server.ThreadingHTTPServer):
    """Answers as the scheduler does, with `state`; not at all while `state` is None."""

    def __init__(self, state, port=0, token=TOKEN):
        super().__init__(("127.0.0.1", port), Handler)
        self.token = token
        self.changed = threading.Condition()
        self.state = state
        self.over = False
        self.muted = 0  # streams that say nothing any more, and stay open
        self.streams = 0
        self.full = False
        self.address = "http://127.0.0.1:%d" % self.server_port

    def become(self, state):
        with self.changed:
            self.state = state
            self.changed.notify_all()

    def mute(self):
        """The streams that are open say nothing any more, as behind a tunnel whose end is gone."""
        with self.changed:
            self.muted = self.streams

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.over:
            return
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
        if urllib.parse.parse_qs(url.query).get("token") != [self.server.token]:
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
        if self.server.full:
            return self.answer(503, "text/plain", "16 pages are open\n")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        server = self.server
        with server.changed:
            server.streams += 1
            number = server.streams
            while not server.over:
                if server.state is not None and number > server.muted:
                    self.wfile.write(b"data: %s\n\n" % json.dumps(server.state).encode())
                server.changed.wait(1)

    def log_message(self, format, *arguments):
        pass
