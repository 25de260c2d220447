# SPDX-License-Identifier: Apache-2.0
"""Which folder may include which: dependencies run one way, and each foreign library has one home.

tools, tests -> worker -> backup_model
worker, server, scheduler -> proto/net -> proto -> proto/base
worker, server, backup_model -> compress -> compress/format -> compress/kernels, proto/base

These parts have rooms. Inside a part, a room includes the rooms that it stands on.
"""

import os
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
LINK_OPTION = re.compile(r'"-l[A-Za-z0-9_]')

NETWORK = ["proto/base", "proto", "proto/net"]
# Part -> the other parts that its files may include; "compress/policy" alone is a room.
MAY_INCLUDE = {
    "proto/base": [],
    "proto": ["proto/base"],
    "proto/net": ["proto/base", "proto"],
    "watch": ["proto/base", "proto"],
    "watch/http": ["proto/base", "watch"],
    "watch/page": [],
    "compress/kernels": [],
    "compress/format": ["proto/base", "compress/kernels"],
    "compress": ["proto/base", "compress/kernels", "compress/format"],
    "scheduler": NETWORK
    + ["watch", "watch/http", "watch/page", "compress/policy", "compress/policy/controllers"],
    "server": NETWORK + ["watch", "watch/http", "compress/kernels", "compress/format", "compress"],
    "backup_model": ["proto/base", "proto", "compress/kernels", "compress/format", "compress"],
    "worker": NETWORK
    + ["watch", "watch/http", "compress/kernels", "compress/format", "compress", "backup_model"],
    "tools": None,  # anything
    "tests": None,
}
# Room -> the rooms of the same part that it stands on. A folder without a line here belongs to the
# room that holds it.
STANDS_ON = {
    "proto/base/simulation": [],
    "proto/base": ["proto/base/simulation"],
    "proto/base/trace": ["proto/base"],
    "proto": [],
    "proto/net": [],
    "proto/net/identity": [],
    "proto/net/queue": ["proto/net"],
    "proto/net/shared": ["proto/net", "proto/net/queue"],
    "proto/net/zmq": ["proto/net", "proto/net/identity", "proto/net/queue", "proto/net/shared"],
    "proto/net/testing": ["proto/net", "proto/net/queue"],
    "proto/net/membership": ["proto/net", "proto/net/identity"],
    "watch": [],
    "watch/http": ["watch"],
    "watch/page": [],
    "compress/kernels/lanes": [],
    "compress/kernels/loops": ["compress/kernels", "compress/kernels/lanes"],
    "compress/kernels": ["compress/kernels/lanes", "compress/kernels/loops"],
    "compress/format": [],
    "compress/spec": [],
    "compress/policy": [],
    "compress/policy/allocation": [],
    "compress/policy/controllers": [
        "compress/policy",
        "compress/policy/allocation",
        "compress/spec",
    ],
    "compress/codec": ["compress/spec"],
    "compress/codec/quantise": ["compress/codec"],
    "compress/codec/lowrank": ["compress/codec"],
    "compress/codec/sparse/select": ["compress/codec"],
    "compress/codec/sparse": ["compress/codec", "compress/codec/sparse/select"],
    "compress/codec/state": ["compress/codec"],
    "compress/codec/catalogue": [
        "compress/spec",
        "compress/codec",
        "compress/codec/lowrank",
        "compress/codec/quantise",
        "compress/codec/sparse",
    ],
    "scheduler/watch": [],
    "scheduler": ["scheduler/watch"],
    "server/saved": [],
    "server/clipping": ["server/saved"],
    "server/round": ["server/clipping", "server/saved"],
    "server/shard": ["server/round", "server/saved"],
    "server/service": ["server/round", "server/saved", "server/shard"],
    "server": ["server/service"],
    "backup_model": [],
    "worker/tensor": ["worker/device"],
    "worker/courier": [],
    "worker/device": [],
    "worker/plan": ["worker/tensor"],
    "worker/saved": ["worker/tensor"],
    "worker/push": ["worker/courier", "worker/device", "worker/plan", "worker/tensor"],
    "worker/phases": ["worker/courier", "worker/push", "worker/tensor"],
    "worker/pull": ["worker/courier", "worker/tensor"],
    "worker": ["worker/device", "worker/tensor", "worker/local", "worker/store", "worker/trainer"],
    "worker/local": ["worker", "worker/device", "worker/push", "worker/saved", "worker/tensor"],
    "worker/store": [
        "worker",
        "worker/courier",
        "worker/device",
        "worker/phases",
        "worker/plan",
        "worker/pull",
        "worker/push",
        "worker/saved",
        "worker/tensor",
    ],
    "worker/exchange": ["worker", "worker/device", "worker/local"],
    "worker/trainer": ["worker", "worker/exchange", "worker/tensor"],
    "worker/capi": ["worker", "worker/device", "worker/exchange"],
}

# Which files may include a library's headers: header pattern, file pattern, in words.
LIBRARIES = [
    (
        re.compile(r"zmq(_addon)?\.h(pp)?$"),
        re.compile(r"proto/net/|tools/bench/transport/raw_"),
        "only proto/net (and what the bench puts beside it) includes ZeroMQ",
    ),
    (
        re.compile(r"(cuda|cublas|nv)[\w/]*\.h$"),
        re.compile(r"tests/worker/device/cuda/libcuda_api_test.cc$"),
        "no toolkit is needed: only a test compares libcuda_api.h with CUDA's header",
    ),
    (
        re.compile(r"(pybind11/|Python\.h|numpy/)"),
        re.compile(r"(?!)"),
        "nothing depends on Python's or numpy's ABI; python is built on the C API",
    ),
    (
        re.compile(r"httplib\.h$"),
        re.compile(r"watch/http/http_server\.cc$"),
        "only watch/http/http_server.cc includes cpp-httplib",
    ),
    (
        re.compile(r"prometheus/"),
        re.compile(r"watch/metrics_text\.cc$"),
        "only watch/metrics_text.cc includes prometheus-cpp",
    ),
    (
        re.compile(r"(eigen3/|Eigen/)"),
        re.compile(r"compress/codec/lowrank/[^/]*\.cc$"),
        "only sources of compress/codec/lowrank include Eigen",
    ),
    (
        re.compile(r"(torch|c10|ATen)/"),
        re.compile(r"worker/trainer"),
        "only worker/trainer includes libtorch",
    ),
]
COMPRESS_SEES_NOT = re.compile(r"google/protobuf/|glog/|gflags/|zmq|.*\.pb\.h$")


def folder_of(path, folders):
    """Returns the most specific of `folders` that holds `path`."""
    holding = [folder for folder in folders if path.startswith(folder + "/")]
    return max(holding, key=len, default=None)


def check_includes(path, text):
    """Returns complaints about one C++ file."""
    complaints = []
    home = folder_of(path, MAY_INCLUDE)
    room = folder_of(path, STANDS_ON)
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        header = match.group(2)
        where = "%s:%d: " % (path, line)
        target = folder_of(header, STANDS_ON)
        if target is not None and room is not None and not permits(room, target):
            complaints.append(where + "%s may not include %s" % (room, header))
        if header.startswith("tests/") and home != "tests":
            complaints.append(where + "only tests include tests")
        for pattern, files, words in LIBRARIES:
            if pattern.match(header) and home != "tests" and not files.match(path):
                complaints.append(where + "%s, not %s" % (words, header))
        if home in ("compress", "compress/format", "compress/kernels") and COMPRESS_SEES_NOT.match(
            header
        ):
            complaints.append(
                where + "compress sees no protobuf, ZeroMQ, glog or gflags: " + header
            )
    return complaints


def permits(room, target):
    """True if files of `room` may include headers of the room `target`."""
    part, other = folder_of(room + "/", MAY_INCLUDE), folder_of(target + "/", MAY_INCLUDE)
    if part == other:
        return target == room or target in STANDS_ON[room]
    return other in MAY_INCLUDE[part] or target in MAY_INCLUDE[part]


def check_links(path, text):
    """Returns complaints about one BUILD file. Only third_party may bind Debian's libraries."""
    if path.startswith("third_party" + os.sep):
        return []
    return [
        "%s:%d: a -l option outside third_party" % (path, text.count("\n", 0, match.start()) + 1)
        for match in LINK_OPTION.finditer(text)
    ]
