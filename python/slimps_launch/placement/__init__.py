# SPDX-License-Identifier: Apache-2.0
"""Which cores a process of a job gets, and which number a worker has, here and on its machine."""
