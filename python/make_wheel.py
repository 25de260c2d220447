# SPDX-License-Identifier: Apache-2.0
"""Packs the package slimps as a wheel.

    make_wheel.py slimps-VERSION-cp311-cp311-linux_x86_64.whl FILE ...

Equal files give equal bytes. Uses only the standard library.
"""

import base64
import hashlib
import os
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: slimps
Version: %s
Summary: A parameter server for data-parallel training that compresses gradients where that pays
Requires-Python: ==3.11.*
Requires-Dist: numpy
"""

WHEEL = """Wheel-Version: 1.0
Generator: slimps
Root-Is-Purelib: false
Tag: %s
"""


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
    return "%s,sha256=%s,%d\n" % (name, digest, len(content))


def contents(wheel, paths):
    """Returns the files of the wheel, name -> bytes, with the record last."""
    distribution, version, tag = os.path.basename(wheel)[: -len(".whl")].split("-", 2)
    files = {}
    for name, path in sorted((path[path.rindex("/slimps/") + 1 :], path) for path in paths):
        with open(path, "rb") as source:
            files[name] = source.read()
    info = "%s-%s.dist-info/" % (distribution, version)
    files[info + "METADATA"] = (METADATA % version).encode("utf-8")
    files[info + "WHEEL"] = (WHEEL % tag).encode("utf-8")
    record = info + "RECORD"
    lines = [record_line(name, content) for name, content in files.items()]
    files[record] = ("".join(lines) + record + ",,\n").encode("utf-8")
    return files


def write(wheel, paths):
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents(wheel, paths).items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:])
