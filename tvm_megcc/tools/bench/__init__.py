# SPDX-License-Identifier: Apache-2.0
"""`megcc bench` and `megcc tune`."""
