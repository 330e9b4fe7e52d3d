# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command that are more than a call: bench, compare, export, quantize, report, language models."""
