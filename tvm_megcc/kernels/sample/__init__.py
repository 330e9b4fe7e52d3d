# SPDX-License-Identifier: Apache-2.0
"""Sampling at computed positions: grids, deformable convolution, regions of interest."""
