# SPDX-License-Identifier: Apache-2.0
"""What schemas do not say: which shapes and values go together. A row of `RULES` for each operator."""

from . import math, move, sequences, signal, vision, windows

RULES = windows.RULES | move.RULES | math.RULES | signal.RULES | vision.RULES | sequences.RULES
