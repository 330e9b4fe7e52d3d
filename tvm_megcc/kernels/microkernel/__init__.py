# SPDX-License-Identifier: Apache-2.0
"""What microkernels are made of: register tiles, instructions, windows, and the printer of C."""
