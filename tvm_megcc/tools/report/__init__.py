# SPDX-License-Identifier: Apache-2.0
"""`megcc report`, `explain`, `list` and `inspect`."""
