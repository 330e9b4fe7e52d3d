# SPDX-License-Identifier: Apache-2.0
"""`megcc evidence`: what a safety engineer needs about a generated folder (docs/safety.md)."""
