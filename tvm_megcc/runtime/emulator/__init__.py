# SPDX-License-Identifier: Apache-2.0
"""Runs firmware in qemu and counts its instructions."""
