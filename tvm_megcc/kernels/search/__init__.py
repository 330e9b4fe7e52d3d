# SPDX-License-Identifier: Apache-2.0
"""Kernels of searches over what a network says of each frame."""
