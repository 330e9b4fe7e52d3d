# SPDX-License-Identifier: Apache-2.0
"""Language models: compiled with their tokenizer, asked for text."""
