# SPDX-License-Identifier: Apache-2.0
"""8-bit products and convolutions on the DSP instructions of Cortex-M, and on its plain ones."""
