# SPDX-License-Identifier: Apache-2.0
"""Measures a link by a TCP connection: how long a round trip takes, and a long transfer's rate.

    link_probe.py listen ADDRESS        # on one node: prints "listening", serves one connection
    link_probe.py connect ADDRESS S     # on another: prints JSON; the windows may grow for S s
"""

import json
import socket
import statistics
import sys
import time

PORT = 7002  # always free: nothing else runs in these namespaces
ROUND_TRIPS = 20
BULK_S = 1.0  # the rate is that of this time
TIMEOUT_S = 30.0


def listen(address):
    """Echoes the round trips' bytes, then sends until the other side closes."""
    with socket.create_server((address, PORT)) as server:
        server.settimeout(TIMEOUT_S)
        print("listening", flush=True)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            connection.sendall(connection.recv(1))
        try:
            while True:
                connection.sendall(bytes(1 << 20))
        except OSError:
            pass


def connect(address, growth_s):
    """Returns the median round trip and the rate of what arrives after `growth_s`."""
    with socket.create_connection((address, PORT), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(ROUND_TRIPS):
            began = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            trips.append(time.monotonic() - began)
        bytes_until(connection, time.monotonic() + growth_s)
        began = time.monotonic()
        arrivals = bytes_until(connection, began + BULK_S)
        took = time.monotonic() - began
    return {
        "measured_rtt_ms": 1e3 * statistics.median(trips),
        "measured_mbit_per_s": 8e-6 * arrivals / took,
    }


def bytes_until(connection, end):
    """Receives until the moment `end` and returns how many bytes came."""
    count = 0
    while time.monotonic() < end:
        arrived = len(connection.recv(1 << 20))
        if arrived == 0:
            raise ConnectionError("the other side has ended")
        count += arrived
    return count


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2])
    else:
        print(json.dumps(connect(sys.argv[2], float(sys.argv[3]))))
