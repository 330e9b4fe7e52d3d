# SPDX-License-Identifier: Apache-2.0
"""Names of the inputs, symbols and outputs of a compiled language model, as in ONNX exports of optimum. Running a
model needs them, but no front end; so they have a module of their own."""

#: The file that the generated folder of a language model has, and no other.
SETTINGS = "language_model/settings.json"
TOKENS, LENGTH, PAST, LOGITS = "input_ids", "sequence_length", "past_sequence_length", "logits"
#: The input with the number of new tokens of each sequence, of a model for several.
NEW = "new_tokens"
