# SPDX-License-Identifier: Apache-2.0
"""Matrix products of floats, and of weights of 4 to 8 bits with a scale for each block."""
