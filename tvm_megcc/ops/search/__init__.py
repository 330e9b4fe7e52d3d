# SPDX-License-Identifier: Apache-2.0
"""Decoding of the scores that a network gives for each frame of a sequence, and the text of the result."""

from . import ctc, labels
