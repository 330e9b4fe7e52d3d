# SPDX-License-Identifier: Apache-2.0
"""Kernels of CTC: searches over the scores of a network for each frame, and the text of the tokens found."""
