# SPDX-License-Identifier: Apache-2.0
"""The file VERSION as a Starlark constant: load("@slimps_version//:version.bzl", "VERSION")."""

def _version_repository(ctx):
    ctx.file("BUILD")
    ctx.file("version.bzl", "VERSION = \"%s\"\n" % ctx.read(Label("//:VERSION")).strip())

version_repository = repository_rule(implementation = _version_repository)
