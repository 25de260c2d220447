# SPDX-License-Identifier: Apache-2.0
"""What tools/slimps calls. The package slimps_launch is found beside the package slimps."""

import os
import sys

sys.path.append(
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "python"
    )
)
