# SPDX-License-Identifier: Apache-2.0
"""`megcc quantize`."""
