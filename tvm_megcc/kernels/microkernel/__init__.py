# SPDX-License-Identifier: Apache-2.0
"""Parts of microkernels: register tiles, instructions, windows, and the printer of C."""
