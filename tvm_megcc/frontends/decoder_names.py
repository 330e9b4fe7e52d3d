# SPDX-License-Identifier: Apache-2.0
"""Names of the inputs, symbols and outputs of a language model of a GGUF file, as in ONNX exports of optimum. Running a
model needs them, but no front end; so they have a module of their own."""

TOKENS, LENGTH, PAST, LOGITS = "input_ids", "sequence_length", "past_sequence_length", "logits"
