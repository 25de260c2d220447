# SPDX-License-Identifier: Apache-2.0
"""The usual library: one header and its source, both named after it."""

def component(name, **rest):
    native.cc_library(name = name, srcs = [name + ".cc"], hdrs = [name + ".h"], **rest)
