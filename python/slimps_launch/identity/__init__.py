# SPDX-License-Identifier: Apache-2.0
"""Keys of a job's nodes."""
