# SPDX-License-Identifier: Apache-2.0
"""8-bit products and convolutions for Cortex-M, with and without DSP instructions, and for other cores without
vectors."""
