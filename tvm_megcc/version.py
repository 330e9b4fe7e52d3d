# SPDX-License-Identifier: Apache-2.0
"""The version of the compiler; printed into generated files, so it names no commit, date or machine."""

VERSION = "0.1.0"
