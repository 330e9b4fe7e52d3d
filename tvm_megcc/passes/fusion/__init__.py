# SPDX-License-Identifier: Apache-2.0
"""Passes that fuse several operators into one."""
