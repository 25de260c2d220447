# SPDX-License-Identifier: Apache-2.0
"""The `slimps` command where slimps is installed: starts jobs, and shows what they recorded.

Uses only the standard library, from Python 3.9 on. Imports neither slimps nor numpy.
"""
