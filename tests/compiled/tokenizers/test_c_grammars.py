# SPDX-License-Identifier: Apache-2.0
"""Grammars in C (c_runtime/lm): masks equal those of llguidance and of an enumeration of all strings."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, FLAGS, ROOT, SANITIZE, call, has_flags
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.grammar import Grammar, Matcher, token_trie
from tvm_megcc.tools.lm.grammars.automaton import Network, network_of
from tvm_megcc.tools.lm.grammars.formats import FORMATS
from tvm_megcc.tools.lm.grammars.json_schema import gbnf_of
from tvm_megcc.tools.lm.grammars.tables import tables
from tvm_megcc.tools.lm.tokenizers.tables import byte_letters
from tvm_megcc.tools.lm.tokenizers.tables import tables as tokenizer_tables
from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary, tokenizer_of

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
    "meeting": {"type": "object", "properties": {name: {"type": "string", "format": name} for name in (
        "date", "time", "uuid", "email")}, "additionalProperties": False},
    "address": {"type": ["string", "null"], "format": "ipv6"},
    "room": {"type": "object", "properties": {"n": {"type": "string", "pattern": "^[A-F]-?[0-9]{2,3}$"}, "s": {
        "type": "string", "pattern": r"a\."}}, "required": ["n"], "additionalProperties": False},
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
        f"schema_{name}": gbnf_of(json.dumps(schema)) for name, schema in SCHEMAS.items()} | {
            f"finite_{name}": grammar for name, grammar in FINITE.items()})


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


#: Finite languages of strings.
FINITE = {
    "words": 'root ::= a b a\na ::= "x" | "xy" | ""\nb ::= "y" | "yx" a',
    "calls": 'root ::= "(" c ")" | c c\nc ::= "x" d | d "y" | "xy"\nd ::= "" | "xx" | "yx" "x"?',
    "dead_ends": 'root ::= "x" ("y" n | "aa") | "1" n | "ab"\nn ::= "x" n'}


@pytest.mark.parametrize("name", FINITE)
def test_masks_are_those_of_all_strings(name: str, c: CMatcher):
    words = [bytes([byte]) for byte in range(256)] + [token.encode() for token in TOKENS] + [b"\xe6\x97"]
    wanted = strings(network_of(FINITE[name]))
    pending, seen = [((), b"")], set()
    while pending:
        tokens, text = pending.pop()
        if text in seen:
            continue
        seen.add(text)
        assert c.begin(f"finite_{name}") and all(map(c.accept, tokens))
        following = [token for token, word in enumerate(words) if any(each.startswith(text + word) for each in wanted)]
        assert np.flatnonzero(c.mask()).tolist() == following + [END] * (text in wanted), text
        pending += [((*tokens, token), text + words[token]) for token in following]
    assert wanted <= seen and len(seen) > len(wanted) > 1


def strings(network: Network) -> set[bytes]:
    """Returns all strings of a grammar without recursion, whose rules became one automaton."""
    assert len(network.rules) == 1
    byte_of = {class_: bytes([byte]) for byte, class_ in enumerate(network.classes)}
    found, pending = set(), [(b"", 0)]
    while pending:
        text, state = pending.pop()
        if network.states[state].ends:
            found.add(text)
        pending += [(text + byte_of[class_], target) for class_, target in network.states[state].moves.items()]
    return found


def test_texts_stay_in_the_grammar_when_memory_ends(trie, tmp_path: Path):
    """With little memory, all tokens that can follow in C can follow, and tokens that would need more cannot."""
    small, draw, stopped = CMatcher(tmp_path, GRAMMARS, depth=8), np.random.default_rng(1), 0
    for name in ("lists", "json", "middle", "expression", "ambiguous", "spaces", "shared"):
        for _ in range(5):
            assert small.begin(name)
            other = Matcher(trie, Grammar.gbnf(GRAMMARS[name]))
            for _ in range(30):
                found, wanted = small.mask(), other.mask()
                assert not (found & ~wanted).any()
                stopped += not np.array_equal(found, wanted)
                if not found[:END].any():
                    break
                token = int(draw.choice(np.flatnonzero(found[:END])))
                assert small.accept(token)
                other.accept(token)
                if other.is_complete:
                    break
    assert stopped > 20


PATTERNS = [
    "a", "^a", "a$", "^a$", "", "^$", "^a|b$", "^(a|b)$", "^(?:ab|a[x-z]+)*c{2,3}?$", "^[0-9]{3}-[A-Z]{2,}$", "ab|bc",
    r"^\d+\.\d{2}$", r"^\w+@\w+$", r"^[^\s,]+(,[^\s,]+)*$", r"^\S\s\D\W$", "^.$", '^[a-c"\\\\\n]*$',
    r"^\u0041\x42\n\t\r\f\v\/\-$", "^[é日\U0001f600-\U0001f64f]+$", "^[^é]{2}$", r"^[-a]b?[a-]$", r'^[\]\[]\\\"$',
    "^(|a)(b||c)$", r"^(\+\d{1,3} )?\(?\d{3}\)?$", "^(((a)))+?x*?y??$"]


@pytest.mark.parametrize("keyword, value", [*(("format", name) for name in FORMATS),
                                            *(("pattern", pattern) for pattern in PATTERNS)])
def test_strings_are_those_of_llguidance(keyword: str, value: str, trie):
    """In each state of the automaton, the same bytes can follow."""
    schema = json.dumps({"type": "string", keyword: value})
    network, grammar = network_of(gbnf_of(schema)), Grammar.json_schema(schema)
    byte_of = {class_: byte for byte, class_ in enumerate(network.classes)}
    paths, pending = {0: b""}, [0]
    for state in pending:
        matcher = Matcher(trie, grammar)
        for byte in paths[state]:
            matcher.accept(byte)
        moves = network.states[state].moves
        wanted = [] if matcher.is_complete else np.flatnonzero(matcher.mask()[:256]).tolist()
        assert [byte for byte, class_ in enumerate(network.classes) if class_ in moves] == wanted, paths[state]
        for class_, target in moves.items():
            if target not in paths:
                paths[target] = paths[state] + bytes([byte_of[class_]])
                pending.append(target)
    assert len(pending) == len(network.states)


FUZZ = """
#include <stdio.h>
#include <stdlib.h>
#include "megcc_grammar.h"
%s
static const megcc_grammar *const all[] = { %s };
static megcc_grammar_state state;
static float logits[1000];
int main(int argc, char **argv)
{
    uint32_t x = 1, longest = 0, steps = (uint32_t)atoi(argv[argc - 1]);
    for (uint32_t turn = 0, length = 0; turn < steps; turn++) {
        const megcc_grammar *grammar = all[turn / 64u %% (sizeof all / sizeof *all)];
        x = x * 1664525u + 1013904223u;
        if (turn %% 64u == 0 || x >> 26 == 0) {
            megcc_grammar_begin(&state, grammar);
            length = 0;
        }
        uint32_t token = (uint32_t)((uint64_t)x * 400u >> 32);
        if (x %% 4u) { /* one that can follow */
            uint32_t lowest = megcc_grammar_mask(&state, logits), tries = token;
            for (token = 0; token < grammar->tokens->tokenizer->tokens; token++) {
                if (logits[token] == 0.0f) {
                    tries = tries ? tries - 1u : 0u;
                    if (!tries)
                        break;
                }
            }
            for (uint32_t i = 0; i < 1000; i++)
                logits[i] = 0;
            token = token < grammar->tokens->tokenizer->tokens ? token : lowest;
            if (token != MEGCC_NO_TOKEN && !megcc_grammar_accept(&state, token))
                return 1;
        } else {
            megcc_grammar_accept(&state, token);
        }
        length++;
        longest = length > longest ? length : longest;
        megcc_grammar_is_finished(&state);
    }
    printf("%%u", (unsigned)longest);
    return 0;
}
"""


@pytest.mark.parametrize("depth", [4, 12, 256])
def test_sanitizers(c: CMatcher, depth: int, tmp_path: Path):
    """Random tokens. $MEGCC_GRAMMAR_TOKENS: how many."""
    if not has_flags(*SANITIZE):
        pytest.skip("the compiler has no sanitizers")
    names = [f"t_grammar_{name}" for name in c.grammars]
    (tmp_path / "fuzz.c").write_text(FUZZ % ("".join(f"extern const megcc_grammar {name};\n" for name in names),
                                             ", ".join(f"&{name}" for name in names)))
    call([CC, "-std=c99", f"-DMEGCC_GRAMMAR_DEPTH={depth}", "-DMEGCC_GRAMMAR_TOKEN=5", f"-I{LM}", *SANITIZE,
          *(c.folder / name for name in ("g.c", "t.c")), tmp_path / "fuzz.c", LM / "megcc_grammar.c",
          LM / "megcc_tokenizer.c", "-o", tmp_path / "fuzz"])
    assert int(call([tmp_path / "fuzz", os.environ.get("MEGCC_GRAMMAR_TOKENS", "2000")])) > 10


@pytest.mark.parametrize(("grammar", "message"), [
    ("root ::= root", "matches no text"), ("root ::= a\na ::= \"x\" a", "matches no text"),
    ('root ::= "a"{10000} "b"{10000} "c"{10000} "d"{10000}', "more than 32,767 states"),
    ('root ::= (("a"{1000}){1000}){1000}', "more than 100,000 states"),
    ('root ::= ("a" | "b")* "a" ("a" | "b"){16}', "more than 32,767 states"),
    ('root ::= ("a"? "b"?){4000}', "too many ways"), ("root ::= " + "(" * 101 + '"a"' + ")" * 101, "nested deeper"),
    ("root ::= " + "|".join(f"r{i}" for i in range(10001)) + "".join(f'\nr{i} ::= "a"' for i in range(10001)),
     "more than 10,000 rules")])
def test_hostile_grammars_are_refused(grammar: str, message: str):
    with pytest.raises(MegccError, match=message):
        network_of(grammar)


@pytest.mark.parametrize("grammar", [
    "root ::= r0" + "".join(f"\nr{i} ::= r{i + 1} r{i + 1}" for i in range(16)) + '\nr16 ::= "a"',
    "root ::= " + " ".join(f"r{i}" for i in range(300)) + "".join(f'\nr{i} ::= "a" r{i} | ""' for i in range(300)),
    "root ::= r0" + "".join(f"\nr{i} ::= r{i + 1} | \"x\" r{i // 2}" for i in range(300)) + '\nr300 ::= "a"'])
def test_large_grammars_take_little_time(grammar: str):
    """Rules that grow exponentially if calls are replaced, and many recursive rules."""
    begin = time.process_time()
    network = network_of(grammar)
    assert len(network.states) < 32767 and time.process_time() - begin < 20


def test_control_characters_in_patterns():
    """Each has its number, in both cases of letters, and some have a letter. (llguidance 1.9 also takes quotation marks
    for a class of control characters only.)"""
    network = network_of(gbnf_of(json.dumps({"type": "string", "pattern": '^[\x07-\x0a\x7f"]$'})))
    wanted = ["u0007", "u0008", "b", "u0009", "t", "u000a", "u000A", "n", "u007f", "u007F", '"']
    assert strings(network) == {f'"\\{each}"'.encode() for each in wanted}


@pytest.mark.parametrize(("pattern", "message"), [
    ("a^b", "has '^'"), ("a$b", "has 'b'"), ("(a$)", "not closed"), ("(?=a)", "has '(?='"), ("(?i)a", "has '(?i'"),
    (r"\b", r"has '\b'"), (r"\p{L}", r"has '\p'"), (r"(a)\1", r"has '\1'"), ("a**", "has '*'"), ("*", "has '*'"),
    ("a{2,1}", "repeats '2,1' times"), ("a{99999}", "repeats"), ("a{x}", "has '{'"), ("[", "too early"),
    ("[]", "has '[]'"), ("[z-a]", "has '-'"), ("[[a]]", "has '['"), ("a)", "has ')'"), ("(" * 200, "deeper than 100"),
    (r"[^\s\S]", "without characters"), ("\\", "too early"), (r"\ud800", r"has '\u'"), ("[a&&b]", "has '&'"),
    ("\ud800", "surrogate"), (3, "no string")])
def test_patterns_are_refused_by_name(pattern: object, message: str):
    with pytest.raises(MegccError) as refusal:
        network_of(gbnf_of(json.dumps({"type": "string", "pattern": pattern})))
    assert message in str(refusal.value)


@pytest.mark.parametrize(("schema", "message"), [
    ("[", "cannot be read"), ("[" * 100_000, "cannot be read"), ("3", "an object or a boolean"), ("false", "no text"),
    ('{"type": "string", "format": "uri"}', "the format 'uri' is not supported; date, "),
    ('{"type": "string", "format": 3}', "is not supported; date, "),
    ('{"type": "string", "format": "date", "maxLength": 3}', "'format' beside 'maxLength' is not supported"),
    ('{"not": {}}', "'not' is not supported"), ('{"uniqueItems": true}', "'uniqueItems' is not supported"),
    ('{"type": "number", "minimum": 1}', "'minimum' is supported for the type integer only"),
    ('{"$ref": "http://a"}', "is not supported"), ('{"$ref": "#/a"}', "there is no such schema"),
    ('{"$ref": "#/a", "type": "null"}', "beside 'type'"),
    ('{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "differ"),
    ('{"allOf": [true, true]}', "several schemas"), ('{"type": "x"}', "no type 'x'"), ('{"type": 3}', "no list"),
    ('{"enum": 3}', "no list"), ('{"enum": []}', "without alternatives"), ('{"const": "\\ud800"}', "surrogate"),
    ('{"const": NaN}', "no number"), ('{"const": 1e30}', "is not supported"), ('{"$ref": "#"}', "matches no text"),
    ('{"type": "string", "maxLength": -1}', "no whole number"),
    ('{"type": "string", "minLength": true}', "no whole number"),
    ('{"type": "integer", "minimum": 0.5}', "no whole number"),
    ('{"type": "integer", "minimum": 5, "maximum": 3}', "no integer is between"), ('{"properties": 3}', "is no object"),
    ('{"type": "object", "required": ["a"], "additionalProperties": false}', "required property 'a'"),
    ('{"type": "object", "properties": {"a\\"b": true}}', "which JSON escapes"),
    ('{"required": [3]}', "no list of strings"),
    ('{"type": "array", "items": false, "minItems": 1}', "no array has 1 items"),
    ('{"items":' * 200 + "true" + "}" * 200, "nested deeper than 100"),
    ('{"const":' + "[" * 200 + "]" * 200 + "}", "deeper")])
def test_schemas_are_refused_by_name(schema: str, message: str):
    with pytest.raises(MegccError, match=message):
        network_of(gbnf_of(schema))
