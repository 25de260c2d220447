# SPDX-License-Identifier: Apache-2.0
"""Addresses and ports of this machine. IPv4, as most clusters inside are."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct

from slimps_launch import errors

SIOCGIFADDR = 0x8915
ANY_PORT = 9  # for a datagram socket, which is connected and sends nothing


def hold_port():
    """Returns a socket that holds a free port of this machine until it is closed.

    The system gives the port to nobody else, but a process that sets SO_REUSEADDR, as servers do,
    can listen there: the socket itself never listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("0.0.0.0", 0))
    return held


def port_of(held):
    return held.getsockname()[1]


def is_loopback(address):
    return ipaddress.ip_address(address).is_loopback


def interface_address(name):
    """Returns the address of a network interface. LaunchError: it has none, or is not there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            socket.if_nametoindex(name)  # which refuses a name that ioctl would cut off
            answer = fcntl.ioctl(
                probe.fileno(), SIOCGIFADDR, struct.pack("256s", os.fsencode(name))
            )
        except OSError:
            raise errors.LaunchError(
                "--interface %s: no interface of that name with an IPv4 address; there are %s"
                % (name, ", ".join(interface for _, interface in socket.if_nameindex()))
            ) from None
    return socket.inet_ntoa(answer[20:24])


def interface_of(address):
    """Returns the name of the interface that has this address, or None."""
    if is_loopback(address):  # of which the interface has one, and answers at all
        address = "127.0.0.1"
    for _, name in socket.if_nameindex():
        try:
            if interface_address(name) == address:
                return name
        except errors.LaunchError:
            pass
    return None


def resolve(host):
    """Returns the address of a host; one of the loopback only if it has no other, since Debian
    gives 127.0.1.1 to a machine's own name. LaunchError: no such host is known here."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        return sorted((address[0] for *_, address in found), key=is_loopback)[0]
    except (OSError, UnicodeError) as error:  # UnicodeError: it is no name of a host
        why = getattr(error, "strerror", None) or error
        with contextlib.suppress(OSError, UnicodeError):
            why = "it has IPv6 addresses alone, as %s; expected an IPv4 address" % (
                socket.getaddrinfo(host, None, socket.AF_INET6)[0][4][0]
            )
        raise errors.LaunchError(
            "host %s is not known here (%s): give its address, or put it into /etc/hosts"
            % (host, why)
        ) from None


def route_address(host):
    """Returns this machine's address on the way to `host`. LaunchError: there is no way."""
    address = resolve(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, ANY_PORT))
        except OSError as error:
            raise errors.LaunchError(
                "no route from here to %s (%s): %s" % (host, address, error.strerror)
            ) from None
        return probe.getsockname()[0]


def interface_towards(host):
    """Returns the name of the interface on the way to `host`; None where that is not known."""
    try:
        return interface_of(route_address(host))
    except errors.LaunchError:
        return None
