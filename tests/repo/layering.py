# SPDX-License-Identifier: Apache-2.0
"""Which folder may include which: dependencies run one way, and each foreign library has one home.

tools, tests, python -> worker -> backup_model; server; scheduler -> proto/net -> proto -> proto/base
worker, server, backup_model -> compress -> compress/format -> compress/kernels, proto/base
"""

import os
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
LINK_OPTION = re.compile(r'"-l[A-Za-z0-9_]')

NETWORK = ["proto/base", "proto", "proto/net"]
# Folder -> the folders that its files may include. Subfolders without a line here follow their
# parent's.
MAY_INCLUDE = {
    "proto/base": ["proto/base"],
    "proto": ["proto/base", "proto"],
    "proto/net": NETWORK,
    "compress/kernels": ["compress/kernels"],
    "compress/format": ["proto/base", "compress/kernels", "compress/format"],
    "compress": ["proto/base", "compress/kernels", "compress/format", "compress"],
    "scheduler": NETWORK + ["compress/policy", "scheduler"],
    "server": NETWORK + ["compress/kernels", "compress/format", "compress", "server"],
    "backup_model": ["proto/base", "proto", "compress/kernels", "compress/format", "compress",
                     "backup_model"],
    "worker": NETWORK + ["compress/kernels", "compress/format", "compress", "backup_model", "worker"],
    "python": ["proto/base", "proto", "proto/net", "worker", "python"],
    "tools": None,  # anything
    "tests": None,
}
# The folders of this tree that an include may name. compress/policy has no rule of its own: a permission for compress
# covers it, and the scheduler has one for it alone.
OWN_FOLDERS = [folder for folder in MAY_INCLUDE if folder not in ("tools", "tests")] + ["compress/policy"]

# Which files may include a library's headers: header pattern, file pattern, in words.
LIBRARIES = [
    (re.compile(r"zmq(_addon)?\.h(pp)?$"), re.compile(r"proto/net/|tools/bench/transport/raw_"),
     "only proto/net (and what the bench puts beside it) includes ZeroMQ"),
    (re.compile(r"(cuda|cublas|nv)[\w/]*\.h$"), re.compile(r"(.*/)?device_cuda[^/]*$"),
     "only device_cuda includes CUDA"),
    (re.compile(r"(pybind11/|Python\.h)"), re.compile(r"python/"), "only python includes pybind11"),
    (re.compile(r"(torch|c10|ATen)/"), re.compile(r"worker/trainer"), "only worker/trainer includes libtorch"),
]
WORKERS_PUBLIC = ["worker/kvstore.h", "worker/kvstore_options.h", "worker/collective_optimizer.h",
                  "worker/exchange/weight_exchange.h"]
COMPRESS_SEES_NOT = re.compile(r"google/protobuf/|glog/|gflags/|zmq|.*\.pb\.h$")


def folder_of(path, folders):
    """Returns the most specific of `folders` that holds `path`."""
    holding = [folder for folder in folders if path.startswith(folder + "/")]
    return max(holding, key=len, default=None)


def check_includes(path, text):
    """Returns complaints about one C++ file."""
    complaints = []
    home = folder_of(path, MAY_INCLUDE)
    allowed = MAY_INCLUDE.get(home)
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        header = match.group(2)
        where = "%s:%d: " % (path, line)
        target = folder_of(header, OWN_FOLDERS)
        if target is not None and allowed is not None and not permits(allowed, target):
            complaints.append(where + "%s may not include %s" % (home, header))
        if header.startswith("tests/") and home != "tests":
            complaints.append(where + "only tests include tests")
        for pattern, files, words in LIBRARIES:
            if pattern.match(header) and home != "tests" and not files.match(path):
                complaints.append(where + "%s, not %s" % (words, header))
        if home == "python" and target == "worker" and header not in WORKERS_PUBLIC:
            complaints.append(where + "python is built on the public %s, not %s" % (" and ".join(WORKERS_PUBLIC), header))
        if home in ("compress", "compress/format", "compress/kernels") and COMPRESS_SEES_NOT.match(header):
            complaints.append(where + "compress sees no protobuf, ZeroMQ, glog or gflags: " + header)
    return complaints


def permits(allowed, target):
    """A folder's permission covers its subfolders, except those with a rule of their own."""
    return target in allowed or (target not in MAY_INCLUDE and folder_of(target, allowed) is not None)


def check_links(path, text):
    """Returns complaints about one BUILD file. Only third_party may bind Debian's libraries."""
    if path.startswith("third_party" + os.sep):
        return []
    return ["%s:%d: a -l option outside third_party" % (path, text.count("\n", 0, match.start()) + 1)
            for match in LINK_OPTION.finditer(text)]
