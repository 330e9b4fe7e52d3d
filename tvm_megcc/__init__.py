# SPDX-License-Identifier: Apache-2.0
"""Neural networks compiled ahead of time to small C programs: a TVM plugin and a stand-alone compiler."""

__version__ = "0.1.0"
