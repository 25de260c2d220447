# SPDX-License-Identifier: Apache-2.0
"""C++ code from .proto files, made by Debian's protoc."""

def cc_proto(name, src, imports = [], deps = [], visibility = None):
    """Makes a library of `src`.

    Args:
      name: of the library
      src: the .proto file
      imports: the .proto files that it imports, by their paths from the root
      deps: their libraries
      visibility: as usual
    """
    stem = src[:-len(".proto")]
    native.genrule(
        name = name + "_gen",
        srcs = [src] + imports,
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "protoc --proto_path=. --cpp_out=$(GENDIR) $(location %s)" % src,
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = ["-w"],
        deps = ["//third_party:protobuf"] + deps,
        visibility = visibility,
    )
