# SPDX-License-Identifier: Apache-2.0
"""The text of tokens that arrive one by one is that of all of them together."""

from __future__ import annotations

import random

import pytest

from tvm_megcc.tools.lm.text_stream import TextStream
from tvm_megcc.tools.lm.tokenizers.tables import byte_letters
from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary, tokenizer_of

pytest.importorskip("tokenizers")


def of_bytes() -> Vocabulary:
    """All bytes, and tokens that end within a character."""
    letters = [letter for letter, _ in sorted(byte_letters().items(), key=lambda item: item[1])]
    words = ["".join(letters[byte] for byte in text) for text in (b"ab", b"a\xe6", b"\x97\xa5", "日本".encode(), b" a")]
    return Vocabulary(pieces=False, split="gpt-2", tokens=(*letters, *words), pairs=(), special=())


def of_pieces() -> Vocabulary:
    """SentencePiece's, which removes a space before the text."""
    words = ["▁", "▁a", "a", "b", "ab", "日", "▁日b", *(f"<0x{byte:02X}>" for byte in (0x41, 0xc3, 0xa9, 0xe6))]
    return Vocabulary(pieces=True, split="", tokens=("<unk>", *words), pairs=(), special=(), prefix=True)


@pytest.mark.parametrize("vocabulary", [of_bytes(), of_pieces()], ids=["bytes", "pieces"])
def test_pieces_are_the_text(vocabulary: Vocabulary):
    tokenizer, draw = tokenizer_of(vocabulary), random.Random(1)
    common = [*range(len(vocabulary.tokens))][-12:]
    for _ in range(300):
        ids = draw.choices(common, k=draw.randint(0, 12))
        # Runs of bytes that are no UTF-8 become U+FFFD, one or more: the package decides for a run as a whole.
        if "\ufffd" in (whole := tokenizer.decode(ids, skip_special_tokens=False)):
            continue
        for stop in ([], ["ab"], ["日a", "b"], ["", "bb "]):
            stream, pieces = TextStream(tokenizer, stop), []
            for token in ids:
                pieces.append(stream.add(token))
                if stream.stopped:
                    break
            ends = [whole.find(ending) for ending in stop if ending and ending in whole]
            assert stream.stopped == bool(ends)
            assert "".join((*pieces, stream.end())) == (whole[:min(ends)] if ends else whole), (ids, stop)


def test_a_character_that_never_ends():
    stream = TextStream(tokenizer_of(of_bytes()))
    assert [stream.add(token) for token in (0x61, 0xe6, 0x97)] == ["a", "", ""]
    assert stream.end() == "\ufffd" and stream.end() == ""


def test_each_token_is_decoded_a_few_times():
    """Not again with each token after it."""
    real, decoded = tokenizer_of(of_bytes()), []

    class Counting:
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            decoded.extend(ids)
            return str(real.decode(ids, skip_special_tokens=skip_special_tokens))

    stream = TextStream(Counting())  # type: ignore[arg-type]
    text = "".join(stream.add(token) for token in [*b"a" * 500, *"é".encode() * 200])
    assert text == "a" * 500 + "é" * 200 and len(decoded) < 900 * 6
