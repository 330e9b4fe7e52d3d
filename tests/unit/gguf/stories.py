# SPDX-License-Identifier: Apache-2.0
"""A Llama of the smallest shape that is trained on TinyStories (llama2.c's 260 K parameters), with drawn weights and a
SentencePiece vocabulary of 512 tokens."""

from __future__ import annotations

import string
from pathlib import Path

from .files import Shape, weights, write

#: Blocks have 32 weights, so the hidden layer has 192 units; the trained model has 172.
STORIES = Shape(layers=5, width=64, heads=8, groups=4, head=8, hidden=192, vocabulary=512, context=512)
WORDS = """once upon a time there was little girl named lily she loved to play outside in the park one day saw big red
ball her mom said you can have it but must be careful and happy so they went home dog tim his friend tree very with
not sun up cat boy""".split()


def vocabulary() -> tuple[list[str], list[float], list[int]]:
    """Returns tokens, scores and types of tokens: control tokens, bytes, letters, and beginnings of words."""
    pieces = ["\u2581", *string.ascii_lowercase, *string.ascii_uppercase, *".,!?'\"\n-"]
    for word in WORDS:
        for first in ("\u2581", ""):
            pieces += [piece for end in range(1, len(word) + 1) if (piece := first + word[:end]) not in pieces]
    pieces = pieces[:STORIES.vocabulary - 259]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    assert len(tokens) == STORIES.vocabulary
    scores = [0.0] * 259 + [-float(index) for index in range(len(pieces))]
    return tokens, scores, [2, 3, 3] + [6] * 256 + [1] * len(pieces)


def write_stories(path: Path, encoding: str = "Q8_0", shape: Shape = STORIES) -> Path:
    """Writes the model as a GGUF file with matrices of this encoding, and returns the path."""
    import gguf

    kinds = gguf.GGUFValueType
    tokens, scores, types = vocabulary()
    return write(path, shape.with_(encoding=encoding), weights(shape, seed=260), **{
        "tokenizer.ggml.model": ("llama", kinds.STRING),
        "tokenizer.ggml.tokens": (tokens, kinds.ARRAY), "tokenizer.ggml.scores": (scores, kinds.ARRAY),
        "tokenizer.ggml.token_type": (types, kinds.ARRAY),
        "tokenizer.ggml.bos_token_id": (1, kinds.UINT32), "tokenizer.ggml.eos_token_id": (2, kinds.UINT32)})
