# SPDX-License-Identifier: Apache-2.0
"""Language models: compilation with their tokenizer, and text generation."""
