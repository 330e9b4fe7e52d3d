# SPDX-License-Identifier: Apache-2.0
"""Grammars in C (c_runtime/lm): masks equal those of llguidance and of an enumeration of all strings."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, FLAGS, ROOT, call
from tvm_megcc.tools.lm.grammar import Grammar, Matcher, token_trie
from tvm_megcc.tools.lm.grammars.automaton import network_of
from tvm_megcc.tools.lm.grammars.json_schema import gbnf_of
from tvm_megcc.tools.lm.grammars.tables import tables
from tvm_megcc.tools.lm.tables import byte_letters
from tvm_megcc.tools.lm.tables import tables as tokenizer_tables
from tvm_megcc.tools.lm.tokenizer import Vocabulary, tokenizer_of

pytest.importorskip("tokenizers")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]
LM = ROOT / "lm"
#: Tokens of several bytes; all single bytes are tokens too. The last one is a part of a character.
TOKENS = ["xy", "yx", "xx", "xyx", "aa", "aaa", "ab", "ba", "(1", "12)", "1,", ", (", "12", "é)", '{"', '":', '"}',
          '",', '":"', "[[", "]]", "[[[", "],[", "true", "tru", "e}", "\n\n", "  ", "1.5", "-1", "e+", "\\u", "00",
          "日本", "本)", "((((", "))))", "x+x", "+x*", "*x)"]
END = 256 + len(TOKENS) + 1
#: By name: a grammar in GBNF.
GRAMMARS = {
    "words": 'root ::= a b a\na ::= "x" | "xy" | ""\nb ::= "y" | "yx" a',
    "optional": 'root ::= s s s\ns ::= "" | "x" | "yx"',
    "left": 'root ::= root "yx" | "x"',
    "left_indirect": 'root ::= a | "x"\na ::= b "y"\nb ::= root "x" | a a | "1"',
    "left_hidden": 'root ::= e root "y" | "x"\ne ::= "" | "1"',
    "right": 'root ::= "x" root | "y"',
    "right_units": 'root ::= "x" b\nb ::= root | "y"',
    "middle": 'root ::= "a" root "a" | "b" root "b" | ""',
    "palindromes": 'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',
    "ambiguous": 'root ::= root root | "x" | "yx"',
    "ambiguous_empty": 'root ::= root root root | "x" | ""',
    "dangling": 's ::= "x" s | "x" s "y" s | "1"\nroot ::= s',
    "not_lr": 'root ::= a "b" | c "ba"\na ::= "a" a "a" | "a"\nc ::= "a" c | "a"',
    "expression": 'root ::= t | root "+" t\nt ::= f | t "*" f\nf ::= "x" | "1" "2"? | "(" root ")"',
    "cycle": 'root ::= a\na ::= b | "x"\nb ::= a | root "y" | ""',
    "lists": 'root ::= v\nv ::= "[" (v ("," v)*)? "]" | [0-9]+ | "true"',
    "trailing_space": 'root ::= "x" s (", " root)? s\ns ::= " "*',
    "any": "root ::= .*", "one": "root ::= .", "none_of": r"root ::= [^a\n-]+",
    "text": r'root ::= "日" "本"? [é-ü一-龠]* "\u00e9"',
    "not_text": r'root ::= "(" [^\U0001F600é日-本]{2,3} ")"',
    "high": r"root ::= [\U0001F600-\U0010FFFF]+ [\uD7FF\uE000]",
    "counts": 'root ::= "x"{2,5} ("yx" | "y"){0,2} "1"{3} [12]{2,}',
    "nested_counts": 'root ::= ("x"{1,3} "y"?){2,4} (("a"|"b"){2}){3}',
    "empty_counts": 'root ::= ("x"? "y"?){3,6} "1"*{2}',
    "shared": 'root ::= a ("," a)* | b\na ::= "x" b? "y"\nb ::= "(" (a | b)* ")"',
    "two": 'root ::= "aa"* "x" | "aaa"* "y"',
    "mirror": 'root ::= a | b\na ::= "(" a ")" | "x"\nb ::= "(" b "))" | "x"',
    "spaces": 'root ::= ws "[" ws (root (ws "," ws root)*)? ws "]" ws\nws ::= [ \\n]*',
    "empty": 'root ::= ""', "empty_calls": 'root ::= e e "x" e\ne ::= f*\nf ::= "" e',
    "json": r"""root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \n\t]*"""}

SHIM = """
#include "megcc_grammar.h"
extern const uint32_t state_bytes;
const uint32_t state_bytes = sizeof(megcc_grammar_state);
"""


def vocabulary() -> Vocabulary:
    letters = [letter for letter, _ in sorted(byte_letters().items(), key=lambda item: item[1])]
    words = ["".join(letters[byte] for byte in token.encode()) for token in TOKENS]
    return Vocabulary(pieces=False, split="gpt-2", tokens=(*letters, *words, letters[0xe6] + letters[0x97], "<|end|>"),
                      pairs=(), special=(("<|end|>", True),))


class CMatcher:
    """Grammars in C. begin: begins a text of one of them."""

    def __init__(self, folder: Path, grammars: dict[str, str], depth: int = 256):
        self.folder, self.grammars = folder, grammars
        (folder / "shim.c").write_text(SHIM)
        words = vocabulary()
        (folder / "g.c").write_text(tables("t", words, [END], {
            name: network_of(grammar) for name, grammar in grammars.items()}))
        (folder / "t.c").write_text(tokenizer_tables("t", words))
        flags = [flag for flag in FLAGS if flag != "-O2"]
        call([CC, *flags, "-O1", f"-DMEGCC_GRAMMAR_DEPTH={depth}", f"-I{LM}", "-fPIC", "-shared",
              *(folder / name for name in ("shim.c", "g.c", "t.c")), LM / "megcc_grammar.c", LM / "megcc_tokenizer.c",
              "-o", folder / "g.so"])
        self.c = ctypes.CDLL(str(folder / "g.so"))
        self.state = ctypes.create_string_buffer(ctypes.c_uint32.in_dll(self.c, "state_bytes").value)
        self.logits = np.zeros(END + 1, np.float32)

    def begin(self, name: str) -> bool:
        grammar = ctypes.c_char.in_dll(self.c, f"t_grammar_{name}")
        return bool(self.c.megcc_grammar_begin(self.state, ctypes.byref(grammar)))

    def mask(self) -> np.ndarray:
        self.logits[:] = 0
        lowest = ctypes.c_uint32(self.c.megcc_grammar_mask(self.state, self.logits.ctypes.data_as(ctypes.c_void_p)))
        found = np.isfinite(self.logits)
        assert lowest.value == (int(found.argmax()) if found.any() else 0xffffffff)
        return found

    def accept(self, token: int) -> bool:
        return bool(self.c.megcc_grammar_accept(self.state, token))

    @property
    def is_complete(self) -> bool:
        return bool(self.c.megcc_grammar_is_finished(self.state))


@pytest.fixture(scope="module")
def trie(tmp_path_factory):
    pytest.importorskip("llguidance")
    path = tmp_path_factory.mktemp("trie") / "tokenizer.json"
    path.write_text(tokenizer_of(vocabulary()).to_str())
    return token_trie(path, [END], END + 1)


CITY = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30}, "country": {"enum": ["France", "Japan", "日本"]},
    "people": {"type": "integer", "minimum": 0}, "capital": {"type": "boolean"},
    "rivers": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
    "required": ["name", "people"], "additionalProperties": False}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
    "v": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v"], "additionalProperties": False}}}
SCHEMAS = {
    "any": {}, "true": True, "integer": {"type": "integer"}, "number": {"type": "number"}, "string": {"type": "string"},
    "null": {"type": "null"}, "boolean": {"type": "boolean"}, "types": {"type": ["integer", "null", "array"]},
    "lengths": {"type": "string", "minLength": 2, "maxLength": 4}, "long": {"type": "string", "minLength": 3},
    "constants": {"enum": [1, -20, 1.5, "a", "xy\n\u0001\"\\é/\x7f", None, True, {"b": [1, "xx"], "c": {}}, [], [[]]]},
    "const": {"const": {"xy": "yx"}}, "enum_of_type": {"type": "string", "enum": ["aa", "ab", 1, None]},
    "city": CITY, "tree": TREE, "open": {"type": "object", "properties": {"a": {"type": "integer"}, "aa": False}},
    "open_typed": {"type": "object", "properties": {"é": {"type": "null"}, "": {"type": "null"}},
                   "additionalProperties": {"type": "integer"}, "required": ["other", ""]},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "optional": {"type": "object", "properties": {name: {"type": "boolean"} for name in ("a", "b", "ab", "ba")},
                 "additionalProperties": False},
    "mixed": {"type": "object", "properties": {name: {"type": "null"} for name in "abcde"}, "required": ["b", "d"],
              "additionalProperties": False},
    "no_type": {"properties": {"a": {"const": 1}}, "minLength": 2, "items": {"type": "null"}},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "array_least": {"type": "array", "items": {"type": "null"}, "minItems": 2},
    "array_of_two": {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2},
    "array_none": {"type": "array", "maxItems": 0}, "array_false": {"type": "array", "items": False},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "xy"}], "items": {"type": "null"}},
    "tuple_limits": {"type": "array", "prefixItems": [{"const": 1}, {"const": "xy"}, {"const": 2}], "minItems": 2,
                     "items": False},
    "tuple_long": {"type": "array", "prefixItems": [{"const": 1}, {"const": "xy"}], "minItems": 3, "maxItems": 5,
                   "items": {"type": "null"}},
    "tuple_old": {"type": "array", "items": [{"const": 1}, {"const": 12}], "additionalItems": {"type": "null"}},
    "any_of": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}},
                         False]},
    "one_of": {"oneOf": [{"const": "xy"}, {"type": "null"}, {"const": "xx"}]},
    "one_of_objects": {"oneOf": [
        {"type": "object", "properties": {"k": {"const": kind}, "v": {"type": value}}, "required": ["k"],
         "additionalProperties": False} for kind, value in (("a", "null"), ("ab", "boolean"))]},
    "all_of": {"allOf": [{"type": "integer"}]},
    "recursion": {"type": "array", "items": {"$ref": "#"}},
    "pointers": {"type": "array",
                 "prefixItems": [{"type": "null"}, {"$ref": "#/prefixItems/0"}, {"$ref": "#/$defs/a~1b%20c"}],
                 "$defs": {"a/b c": {"type": "boolean"}}, "items": False},
    **{f"integers_{low}_{high}".replace("-", "m"): {"type": "integer", **({"minimum": low} if low is not None else {}),
                                 **({"maximum": high} if high is not None else {})}
       for low, high in ((0, 9), (1, 12), (-5, 20), (-115, -12), (-10, 0), (3, 1999), (95, 105), (None, 3), (None, 0),
                         (None, -12), (0, None), (12, None), (-12, None), (7, 7), (0, 10 ** 12))},
    "exclusive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 12, "minimum": -3},
    "exclusive_old": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 12}}


@pytest.fixture(scope="module")
def c(tmp_path_factory) -> CMatcher:
    return CMatcher(tmp_path_factory.mktemp("grammars"), GRAMMARS | {
        f"schema_{name}": gbnf_of(json.dumps(schema)) for name, schema in SCHEMAS.items()})


def compare(c: CMatcher, name: str, begin, texts: int, tokens: int) -> None:
    """The masks at every step of random texts. begin: makes the matcher of llguidance."""
    draw = np.random.default_rng(1)
    for _ in range(texts):
        assert c.begin(name)
        other, text = begin(), []
        for _ in range(tokens):
            found, wanted = c.mask(), other.mask()
            assert np.flatnonzero(found).tolist() == np.flatnonzero(wanted).tolist(), text
            if not found.all():
                assert not c.accept(int(draw.choice(np.flatnonzero(~found))))
            token = int(draw.choice(np.flatnonzero(found)))
            assert c.accept(token)
            if token == END:
                break
            other.accept(token)
            text.append(token)
            assert c.is_complete == other.is_complete
            if other.is_complete:
                break


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_are_those_of_llguidance(name: str, trie, c: CMatcher):
    compare(c, name, lambda: Matcher(trie, Grammar.gbnf(GRAMMARS[name])), 8,
            10 if name.startswith("ambiguous") else 25)


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_of_schemas_are_those_of_llguidance(name: str, trie, c: CMatcher):
    text = json.dumps(SCHEMAS[name])
    compare(c, f"schema_{name}", lambda: Matcher(trie, Grammar.json_schema(text)), 8, 40)
