# SPDX-License-Identifier: Apache-2.0
"""Where a job runs: what starts its processes on other machines, and how."""
