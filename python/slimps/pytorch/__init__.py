# SPDX-License-Identifier: Apache-2.0
"""What slimps.torch is made of. `conversion` alone does not import torch."""
