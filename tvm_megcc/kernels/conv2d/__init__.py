# SPDX-License-Identifier: Apache-2.0
"""Convolutions of floats: direct, depthwise, Winograd, pixels in lanes, and plain loops."""
