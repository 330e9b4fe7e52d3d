# SPDX-License-Identifier: Apache-2.0
"""Kernels that read or write at indices which are values: gather and scatter."""
