# SPDX-License-Identifier: Apache-2.0
"""`megcc export`, `megcc cv` and signed containers."""
