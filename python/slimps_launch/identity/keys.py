# SPDX-License-Identifier: Apache-2.0
"""Keys of a job's nodes: a folder that only its owner can enter, made by `slimps keygen` or by
`slimps launch` for one job.

    allow                        the public key of each node, lines "ROLE RANK KEY"
    scheduler.key  server0.key   secret keys, mode 0600
    worker0.key    ...

Keys are of Curve25519 (RFC 7748), as CURVE of ZeroMQ takes them, written in hexadecimal.
"""

import os
import re
import stat

from slimps_launch import errors
from slimps_launch.identity import x25519

ALLOW = "allow"
# By these a process finds its keys. An empty one is as none.
VARIABLES = ("SLIMPS_KEY_FILE", "SLIMPS_SCHEDULER_KEY", "SLIMPS_ALLOW_FILE")


def node_names(workers, servers):
    """Returns the names of a job's nodes: "scheduler", "server0", "worker0"."""
    return (
        ["scheduler"]
        + ["server%d" % rank for rank in range(servers)]
        + ["worker%d" % rank for rank in range(workers)]
    )


def make(path, workers, servers):
    """Makes a folder with a key for each node. Returns it.

    LaunchError: the folder is there and not empty, or cannot be made.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.listdir(path):
            raise errors.LaunchError(
                "%s is not empty: keys are made in a new folder, and none is replaced" % path
            )
        os.chmod(path, 0o700)
        lines = ["# Which key is whose: ROLE RANK KEY. No secrets."]
        for name in node_names(workers, servers):
            role, rank = re.fullmatch(r"([a-z]+)(\d*)", name).groups()
            secret = os.urandom(x25519.BYTES)
            lines.append("%s %s %s" % (role, rank or 0, x25519.public_key(secret).hex()))
            text = "# Who has this file can be %s. Keep it secret.\nsecret %s\n"
            put(path, name, text % (name, secret.hex()))
        _write(os.path.join(path, ALLOW), "\n".join(lines) + "\n")
    except OSError as error:
        raise errors.LaunchError("%s: %s" % (error.filename or path, error.strerror)) from error
    return Folder(path)


def put(folder, name, text):
    """Writes the key file of a node, for its owner alone. Returns its path."""
    path = os.path.join(folder, name + ".key")
    _write(path, text)
    return path


def copy(source, path):
    """Copies the list and the secret keys that lie in `source` to `path`, which is private.

    LaunchError: there is none, or it cannot be read.
    """
    try:
        for name in os.listdir(source):
            if name == ALLOW or name.endswith(".key"):
                with open(os.path.join(source, name), encoding="ascii") as file:
                    _write(os.path.join(path, name), file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise errors.LaunchError("%s: no keys can be read there: %s" % (source, error)) from error
    return Folder(path)


def _write(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


class Folder:
    """A folder of keys.

    LaunchError: it is none, or others can enter it.
    """

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.allow = os.path.join(self.path, ALLOW)
        try:
            mode = os.stat(self.path).st_mode
            with open(self.allow, encoding="utf-8") as file:
                lines = [line.split() for line in file if not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as error:
            raise errors.LaunchError(
                "%s is no folder of keys, which slimps keygen makes: %s" % (path, error)
            ) from error
        if stat.S_IMODE(mode) & 0o077:
            raise errors.LaunchError("others can enter %s: chmod 700 %s" % (path, path))
        self.public = {
            words[0] + ("" if words[0] == "scheduler" else words[1]): words[2]
            for words in lines
            if len(words) == 3
        }
        if "scheduler" not in self.public:
            raise errors.LaunchError("%s: no key of the scheduler" % self.allow)

    def check(self, workers, servers):
        """LaunchError: a node of such a job has no key here."""
        for name in node_names(workers, servers):
            if name not in self.public:
                raise errors.LaunchError("%s: no key of %s, which the job has" % (self.allow, name))

    def file_of(self, name):
        """Returns the path of the secret key of a node, as "worker1"."""
        return os.path.join(self.path, name + ".key")

    def secret_file(self, name):
        """Returns the text of a node's key file. LaunchError: it cannot be read."""
        try:
            with open(self.file_of(name), encoding="ascii") as file:
                return file.read()
        except OSError as error:
            raise errors.LaunchError("%s: %s" % (error.filename, error.strerror)) from error

    def variables(self, name):
        """Returns the variables by which a node's process finds its keys."""
        found = {"SLIMPS_KEY_FILE": self.file_of(name)}
        if name == "scheduler":
            found["SLIMPS_ALLOW_FILE"] = self.allow
        else:
            found["SLIMPS_SCHEDULER_KEY"] = self.public["scheduler"]
        return found
