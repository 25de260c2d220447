# SPDX-License-Identifier: Apache-2.0
"""C++ code from .proto files, made by Debian's protoc."""

def cc_proto(name, src, visibility = None):
    stem = src[:-len(".proto")]
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "protoc --proto_path=$$(dirname $(location %s)) --cpp_out=$(RULEDIR) $(location %s)" %
              (src, src),
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = ["-w"],
        deps = ["//third_party:protobuf"],
        visibility = visibility,
    )
