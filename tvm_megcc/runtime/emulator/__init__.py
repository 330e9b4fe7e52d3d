# SPDX-License-Identifier: Apache-2.0
"""Firmware in qemu, and what it costs there."""
