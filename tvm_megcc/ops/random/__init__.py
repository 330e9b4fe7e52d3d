# SPDX-License-Identifier: Apache-2.0
"""Random numbers by Philox."""

from . import philox, random
