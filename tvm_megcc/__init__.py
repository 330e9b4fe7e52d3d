# SPDX-License-Identifier: Apache-2.0
"""Neural networks compiled ahead of time to small C programs: a TVM plugin and a stand-alone compiler."""

from .version import VERSION as __version__

__all__ = ["__version__"]
