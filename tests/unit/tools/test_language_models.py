# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of GGUF files, sampling, and the chat template."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.model import Settings, rendered
from tvm_megcc.tools.lm.program import Chat, chat_of
from tvm_megcc.tools.lm.sampling import Sampling, choose, philox, weights
from tvm_megcc.tools.lm.tokenizers.tokenizer import SPLITS, Vocabulary, tokenizer_of

TEXTS = ["", "Hello world", "  two  spaces\n\nand lines", "1234 and 5.6", "naïve café, 日本語 🙂", "it's we'll DON'T",
         "<|end|>a<|end|>", "\x00\x7f\ttab", "ﬀ e\u0301"]


def byte_level(split: str = "default", **others) -> dict:
    """Every byte, a few merged pairs and a control token."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "12 3"]
    tokens = [*letters, *(merge.replace(" ", "") for merge in merges), "<|end|>"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": split, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": np.array([1] * (len(tokens) - 1) + [3]),
            **others}


def sentence_piece(**others) -> dict:
    pytest.importorskip("tokenizers")
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "ab", "▁a", "▁ab", "<|end|>"]
    scores = np.array([0.0] * 258 + [-9, -9, -9, -2, -3, -1, 0], np.float32)
    types = np.array([2, 3] + [6] * 256 + [1] * 6 + [3])
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": 0, **others}


def made(metadata: dict):
    return tokenizer_of(Vocabulary.of(metadata))


@pytest.mark.parametrize("split", [*SPLITS, "smollm"])
@pytest.mark.parametrize("text", TEXTS)
def test_bytes_come_back(split, text):
    built = made(byte_level(split))
    assert built.decode(built.encode(text).ids, skip_special_tokens=False) == text


def test_pairs_are_merged_within_parts():
    """Digits are parts of their own, or of three, or one part."""
    assert made(byte_level()).encode("hello 123").tokens == ["hello", "Ġ", "123"]
    assert made(byte_level("llama-bpe")).encode("hello 1234").tokens == ["hello", "Ġ", "123", "4"]
    assert made(byte_level("qwen2")).encode("hello 123").tokens == ["hello", "Ġ", "1", "2", "3"]
    assert made(byte_level("smollm")).encode("hello 123").tokens == ["hello", "Ġ", "1", "2", "3"]
    assert made(byte_level()).encode("<|end|>he").tokens == ["<|end|>", "he"]


def test_the_best_pair_first():
    built = made(sentence_piece())
    assert built.encode("ab ab").tokens == ["▁ab", "▁ab"]
    assert built.encode("é").tokens == ["▁", "<0xC3>", "<0xA9>"] and built.decode(built.encode("é a").ids) == "é a"
    assert made(sentence_piece(**{"tokenizer.ggml.add_space_prefix": False})).encode("ab").tokens == ["ab"]


@pytest.mark.parametrize("change, reason", [
    ({"tokenizer.ggml.model": "bert"}, "the tokenizer is 'bert'; gpt2 and llama are supported"),
    ({"tokenizer.ggml.model": None}, "the tokenizer is 'None'"),
    ({"tokenizer.ggml.model": np.array([1, 2])}, "tokenizer.ggml.model is an array"),
    ({"tokenizer.ggml.pre": ["a", "b"]}, "tokenizer.ggml.pre is an array"),
    ({"tokenizer.ggml.pre": "deepseek"}, "pre-tokenizer 'deepseek' is not supported"),
    ({"tokenizer.ggml.tokens": []}, "tokenizer.ggml.tokens is missing"),
    ({"tokenizer.ggml.tokens": [1, 2]}, "tokenizer.ggml.tokens is missing, or of another kind"),
    ({"tokenizer.ggml.merges": ["he"]}, "pairs whose parts or whole are not tokens"),
    ({"tokenizer.ggml.merges": ["x yy"]}, "pairs whose parts or whole are not tokens"),
    ({"tokenizer.ggml.token_type": None}, "tokenizer.ggml.token_type is missing"),
])
def test_metadata_without_a_tokenizer(change, reason):
    with pytest.raises(MegccError) as raised:
        made(byte_level(**change))
    assert reason in str(raised.value)


LOGITS = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05]))


def drawn(sampling: Sampling, count: int = 4000, before=()) -> np.ndarray:
    generator = sampling.generator()
    found = Counter(choose(LOGITS, before, sampling, generator) for _ in range(count))
    return np.array([found[token] / count for token in range(len(LOGITS))])


def test_the_likeliest():
    assert choose(LOGITS, [], Sampling(), Sampling().generator()) == 0
    assert choose(np.array([1.0, 3.0, 3.0]), [], Sampling(), Sampling().generator()) == 1


@pytest.mark.parametrize("sampling, wanted", [
    (Sampling(1.0), [0.4, 0.3, 0.15, 0.1, 0.05]),
    (Sampling(0.5), np.array([0.16, 0.09, 0.0225, 0.01, 0.0025]) / 0.285),
    (Sampling(1.0, top_k=2), [4 / 7, 3 / 7, 0, 0, 0]),
    (Sampling(1.0, top_p=0.69), [4 / 7, 3 / 7, 0, 0, 0]),
    (Sampling(1.0, top_p=0.71), [0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85, 0, 0]),
    (Sampling(1.0, min_p=0.3), [0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85, 0, 0]),
    (Sampling(1.0, top_k=1), [1, 0, 0, 0, 0]),
])
def test_probabilities(sampling, wanted):
    np.testing.assert_allclose(drawn(sampling), wanted, atol=0.03)


def test_random_numbers():
    """Known answers of Random123, kat_vectors."""
    for counter, key, block in (
            ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
            ((0xffffffff,) * 4, (0xffffffff,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
            ((0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), (0xa4093822, 0x299f31d0),
             "d16cfe09 94fdcceb 5001e420 24126ea1")):
        assert philox(counter, key) == tuple(int(word, 16) for word in block.split())


@pytest.mark.parametrize("temperature", [0.01, 0.3, 0.8, 1.0, 1.7, 20.0])
def test_weights(temperature):
    logits = np.random.default_rng(1).normal(3, 8, 20000).astype(np.float32)
    exact = np.exp((logits.astype(np.float64) - float(logits.max())) / np.float64(np.float32(temperature)))
    np.testing.assert_allclose(weights(logits, temperature) / 2**31, exact, rtol=0, atol=2**-23)
    strange = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 5], np.float32)
    assert weights(strange, temperature).tolist() == [0, 1 << 31, 0, 1 << 31, 0, 0]


def test_a_seed_is_a_sequence():
    def tokens(seed: int) -> list[int]:
        sampling = Sampling(1.0, seed=seed)
        generator = sampling.generator()
        return [choose(LOGITS, [], sampling, generator) for _ in range(20)]

    assert tokens(3) == tokens(3) != tokens(4)


def test_penalty():
    """The likeliest token was there, and its logit is negative; of two positive ones the first is halved."""
    assert choose(LOGITS, [0], Sampling(repetition_penalty=2.0), Sampling().generator()) == 1
    assert choose(np.array([3.0, 2.0]), [0, 0], Sampling(repetition_penalty=2.0), Sampling().generator()) == 1


@pytest.mark.parametrize("name, value", [("temperature", -1), ("temperature", float("nan")), ("top_p", 0), ("top_p", 2),
                                         ("min_p", -0.1), ("repetition_penalty", 0), ("seed", -1), ("top_k", -1)])
def test_numbers_out_of_range(name, value):
    with pytest.raises(MegccError, match=name):
        Sampling(**{name: value})


def settings(template: str, **tokens: str) -> Settings:
    return Settings(context=8, prompt=4, bos=-1, ends=(), chat_template=template, **tokens)


def test_tokens_of_chat_templates():
    """TinyLlama's, Llama 2's and Mistral's print them, between messages as well."""
    template = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content + eos_token }}{% endfor %}"
                "<|assistant|>")
    given = settings(template, bos_token="<s>", eos_token="</s>")
    assert rendered(given, [{"role": "user", "content": "hi"}]) == "<s><|user|>hi</s><|assistant|>"
    assert chat_of(given) == Chat("<s><|user|>", "<s><|system|>", "</s><|user|>", "</s><|assistant|>", "</s><|user|>")


def test_chat_templates():
    """They run in a sandbox."""
    messages = [{"role": "user", "content": "hi"}]
    template = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}:{% endif %}")
    assert rendered(settings(template), messages) == "<user>hi:"
    for bad in ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{% for %}",
                "{{ raise_exception('no') }}", ""):
        with pytest.raises(MegccError, match="chat template"):
            rendered(settings(bad), messages)


CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TRIMMED = ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
           "<{{ 'model' if m.role == 'assistant' else m.role }}>{{ m.content | trim }}</>{% endfor %}<model>")
THINKING = ("{% for m in messages %}<{{ m.role }}>{{ m.content if m.role != 'assistant' or loop.last else '-' }}"
            "{% endfor %}<assistant>")
NOT_SIMPLE = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"


@pytest.mark.parametrize("template, wanted", [
    (CHATML, Chat("<|im_start|>user\n", "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n",
                  "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n")),
    (TRIMMED, Chat("<user>", None, None, "</><model>", "</><user>")),
    (THINKING, Chat("<user>", "<system>", "<user>", "<assistant>", None)),
    (NOT_SIMPLE, None), ("", None), ("{% for %}", None)])
def test_strings_of_a_conversation(template, wanted):
    """What the strings say is what the template gives, with and without a system message, for several questions."""
    found = chat_of(settings(template))
    assert found == wanted
    if found and found.system and found.next:
        messages = [{"role": role, "content": text} for role, text in zip(
            ["system", "user", "assistant", "user", "assistant", "user"], "stuvwx", strict=True)]
        assert rendered(settings(template), messages) == (
            f"{found.system}s{found.after_system}t{found.answer}u{found.next}v{found.answer}w{found.next}x{found.answer}")
