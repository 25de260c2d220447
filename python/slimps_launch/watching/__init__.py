# SPDX-License-Identifier: Apache-2.0
"""What a running job does, for terminals: slimps status and slimps top."""
