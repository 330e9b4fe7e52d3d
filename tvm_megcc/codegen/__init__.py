# SPDX-License-Identifier: Apache-2.0
"""Prints C, plans memory and writes the container: everything between a lowered graph and a folder of files."""
