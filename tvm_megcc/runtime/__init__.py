# SPDX-License-Identifier: Apache-2.0
"""Builds generated folders and runs them: here, in emulators, on devices, in TVM; times and tunes kernels."""
