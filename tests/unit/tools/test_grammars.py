# SPDX-License-Identifier: Apache-2.0
"""Masks of grammars equal those of an enumeration of all strings of the grammar, for vocabularies whose tokens reach
over the ends of rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.grammar import MAX_CHARACTERS, Grammar, Matcher, read, token_trie

pytest.importorskip("tokenizers")
pytest.importorskip("llguidance")

#: Rules of finite languages: name -> alternatives, which are sequences of names of rules and of texts in quotes.
GRAMMARS = {
    "words": {"root": [["a", "b", "a"]], "a": [['"x"'], ['"xy"'], []], "b": [['"y"'], ['"yx"', "a"]]},
    "nested": {"root": [["pair"], ["pair", '", "', "pair"]], "pair": [['"("', "n", '")"'], ["n"]],
               "n": [['"1"'], ['"12"'], ['"é"']]},
    "optional": {"root": [["s", "s", "s"]], "s": [[], ['"x"'], ['"yx"']]}}
#: Tokens of several bytes; all single bytes are tokens too.
TOKENS = ["xy", "yx", "xx", "xyx", "(1", "12)", "1,", ", (", "12", "é)"]


def strings(rules: dict[str, list[list[str]]], symbol: str = "root") -> set[bytes]:
    """Returns all strings of a rule."""
    found: set[bytes] = set()
    for alternative in rules[symbol]:
        parts = {b""}
        for item in alternative:
            following = {item[1:-1].encode()} if item[0] == '"' else strings(rules, item)
            parts = {first + second for first in parts for second in following}
        found |= parts
    return found


def gbnf(rules: dict[str, list[list[str]]]) -> str:
    return "\n".join(f"{name} ::= " + " | ".join(" ".join(items) or '""' for items in alternatives)
                     for name, alternatives in rules.items())


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> tuple[Path, list[bytes]]:
    """A tokenizer file of single bytes and TOKENS, whose last token ends a text; and the bytes of each token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = ["".join(part for part, _ in level.pre_tokenize_str(token)) for token in TOKENS]
    numbers = {word: number for number, word in enumerate([*letters, *words])}
    tokenizer = Tokenizer(models.BPE(numbers, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = level, decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    path = tmp_path_factory.mktemp("grammar") / "tokenizer.json"
    tokenizer.save(str(path))
    byte_of = {word: bytes([byte]) for byte in range(256) for word in [_letter(byte)]}
    return path, [byte_of[letter] for letter in letters] + [token.encode() for token in TOKENS]


def _letter(byte: int) -> str:
    """Returns the character that GPT-2's vocabulary has for a byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in shown else chr(256 + [each for each in range(256) if each not in shown].index(byte))


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_are_those_of_all_strings(name: str, vocabulary):
    path, tokens = vocabulary
    end, wanted = len(tokens), strings(GRAMMARS[name])
    trie, grammar = token_trie(path, [end], end + 3), Grammar.gbnf(gbnf(GRAMMARS[name]))
    pending, seen = [((), b"")], set()
    while pending:
        read_tokens, text = pending.pop()
        if text in seen:
            continue
        seen.add(text)
        matcher = Matcher(trie, grammar)
        for token in read_tokens:
            matcher.accept(token)
        found = set(np.flatnonzero(matcher.mask()).tolist())
        following = {token for token, part in enumerate(tokens) if any(each.startswith(text + part) for each in wanted)}
        assert found == following | ({end} if text in wanted else set()), text
        pending += [((*read_tokens, token), text + tokens[token]) for token in following]
    assert wanted <= seen and len(seen) > len(wanted)


def test_left_recursion_and_schemas(vocabulary):
    path, tokens = vocabulary
    trie = token_trie(path, [len(tokens)], len(tokens) + 1)

    def following(grammar: Grammar, text: str = "") -> set[bytes]:
        matcher = Matcher(trie, grammar)
        for byte in text.encode():
            matcher.accept(tokens.index(bytes([byte])))
        return {[*tokens, b"END"][token] for token in np.flatnonzero(matcher.mask())}

    left = Grammar.gbnf('root ::= root "yx" | "x"')
    assert following(left) == {b"x", b"xy", b"xyx"} and following(left, "xyx") == {b"y", b"yx", b"END"}
    signs = Grammar.gbnf('root ::= [x\\x79-\\x7a]{2} ("("|.)? # end\n')
    assert {b"x", b"xy", b"yx", b"xx", b"z"} <= following(signs) and b"1" not in following(signs)
    assert following(signs, "xz") >= {b"(", b"1", b"END"} and following(signs, "xz(") == {b"END"}
    other = following(Grammar.gbnf(r"root ::= [^a\n-]+"))
    assert b"," in other and not {b"a", b"-", b"\n"} & other
    assert following(Grammar.gbnf("root ::= [--/]")) == {b"-", b".", b"/"}
    assert following(Grammar.gbnf("root ::= [+--]")) == {b"+", b",", b"-"}
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}
    assert following(Grammar.json_schema(schema), '{"a":t') == {b"r"}
    assert following(Grammar.json_schema(json.dumps(schema)), '{"a":true}') == {b"END"}


@pytest.mark.parametrize(("text", "message"), [
    ("root ::= x", "no rule 'x', which 'root' needs"), ("", "no rule 'root'"), ("root ::= (" * 3000, "missing"),
    ("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested deeper than 100"),
    ('root ::= "a"' + "*" * 200_000, "more than 100 signs of repetition"), ("root ::= root", "refused|no token"),
    ("root ::= ((a)", "missing"), ("root ::= a)", "closes nothing"), ("root ::= []", "no characters"),
    ("root ::= [b-a]", "ends before it begins"), (r'root ::= "\uD800"', "is no character"),
    ('root ::= "a', "no part of"),
    ("root ::= a\nroot ::= a", "defined twice"), ('root ::= "a"{3,1}', "number of repetitions"),
    ('root ::= "a"' + " " * MAX_CHARACTERS, "characters, more than"),
    ('root ::= "a"{1,3}{1,400000000}', "number of repetitions")])
def test_hostile_grammars_are_refused(text: str, message: str, vocabulary):
    path, tokens = vocabulary
    trie = token_trie(path, [len(tokens)], len(tokens) + 1)
    with pytest.raises(MegccError, match=message):
        Matcher(trie, Grammar.gbnf(text)).mask()


@pytest.mark.parametrize(("schema", "message"), [
    ("[", "cannot be read"), ("[" * 100_000, "cannot be read"), ({"not": {}}, 'Unimplemented keys: \\["not"\\]'),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"$ref": "https://example.com/a"}, "example.com"),
    ({"type": "string", "format": "color"}, "format"), ({"type": "string", "pattern": "("}, "regex")])
def test_schemas_that_are_not_supported_are_refused_by_name(schema, message: str, vocabulary):
    path, tokens = vocabulary
    with pytest.raises(MegccError, match=message):
        Matcher(token_trie(path, [len(tokens)], len(tokens) + 1), Grammar.json_schema(schema))


def test_files(tmp_path: Path):
    with pytest.raises(MegccError, match=r"none\.gbnf cannot be read"):
        read(tmp_path / "none.gbnf", is_schema=False)
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(MegccError, match="cannot be read"):
        read(tmp_path / "bytes", is_schema=True)
