# SPDX-License-Identifier: Apache-2.0
"""Searches over what a network says of each frame, and the text of their labels."""

from . import ctc, labels
