# SPDX-License-Identifier: Apache-2.0
"""Grammars in C (c_runtime/lm): masks equal those of llguidance and of an enumeration of all strings."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, FLAGS, ROOT, SANITIZE, call, has_flags
from tvm_megcc.tools.lm.grammar import Grammar, Matcher, token_trie
from tvm_megcc.tools.lm.grammars.automaton import network_of
from tvm_megcc.tools.lm.grammars.tables import tables
from tvm_megcc.tools.lm.tables import byte_letters
from tvm_megcc.tools.lm.tables import tables as tokenizer_tables
from tvm_megcc.tools.lm.tokenizer import Vocabulary, tokenizer_of

pytest.importorskip("tokenizers")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]
LM = ROOT / "lm"
#: Tokens of several bytes; all single bytes are tokens too. The last one is a part of a character.
TOKENS = ["xy", "yx", "xx", "xyx", "aa", "aaa", "ab", "ba", "(1", "12)", "1,", ", (", "12", "é)", '{"', '":', '"}', '",',
          '":"', "[[", "]]", "[[[", "],[", "true", "tru", "e}", "\n\n", "  ", "1.5", "-1", "e+", "\\u", "00", "日本", "本)",
          "((((", "))))", "x+x", "+x*", "*x)"]
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
    "not_text": r'root ::= "(" [^\U0001F600é日-本]{2,3} ")"', "high": r"root ::= [\U0001F600-\U0010FFFF]+ [\uD7FF\uE000]",
    "counts": 'root ::= "x"{2,5} ("yx" | "y"){0,2} "1"{3} [12]{2,}',
    "nested_counts": 'root ::= ("x"{1,3} "y"?){2,4} (("a"|"b"){2}){3}',
    "empty_counts": 'root ::= ("x"? "y"?){3,6} "1"*{2}',
    "dead_end": 'root ::= "x" ("y" n | "a") | "1" n\nn ::= "x" n',
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
extern const megcc_grammar t_grammar_g;
uint32_t size(void) { return sizeof(megcc_grammar_state); }
int32_t begin(megcc_grammar_state *state) { return megcc_grammar_begin(state, &t_grammar_g); }
"""


def vocabulary() -> Vocabulary:
    letters = [letter for letter, _ in sorted(byte_letters().items(), key=lambda item: item[1])]
    words = ["".join(letters[byte] for byte in token.encode()) for token in TOKENS]
    return Vocabulary(pieces=False, split="gpt-2", tokens=(*letters, *words, letters[0xe6] + letters[0x97], "<|end|>"),
                      pairs=(), special=(("<|end|>", True),))


class CMatcher:
    """A grammar in C."""

    def __init__(self, folder: Path, grammar: str, depth: int = 64):
        (folder / "shim.c").write_text("\n".join(SHIM.splitlines()[1:]))
        words = vocabulary()
        (folder / "g.c").write_text(tables("t", words, [END], {"g": network_of(grammar)}))
        (folder / "t.c").write_text(tokenizer_tables("t", words))
        flags = [flag for flag in FLAGS if not flag.startswith("-Wmissing")]
        call([CC, *flags, "-O1", f"-DMEGCC_GRAMMAR_DEPTH={depth}", f"-I{LM}", "-fPIC", "-shared", "-fvisibility=default",
              *(folder / name for name in ("shim.c", "g.c", "t.c")), LM / "megcc_grammar.c", LM / "megcc_tokenizer.c",
              "-o", folder / "g.so"])
        self.c = ctypes.CDLL(str(folder / "g.so"))
        self.state = ctypes.create_string_buffer(self.c.size())
        self.logits = np.zeros(END + 1, np.float32)
        assert self.begin()

    def begin(self) -> bool:
        return bool(self.c.begin(self.state))

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


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_are_those_of_llguidance(name: str, trie, tmp_path: Path):
    """At every step of random texts."""
    c, draw = CMatcher(tmp_path, GRAMMARS[name]), np.random.default_rng(1)
    for _ in range(20):
        assert c.begin()
        other, text = Matcher(trie, Grammar.gbnf(GRAMMARS[name])), []
        for _ in range(25):
            found, wanted = c.mask(), other.mask()
            assert np.flatnonzero(found).tolist() == np.flatnonzero(wanted).tolist(), text
            assert not c.accept(int(draw.choice(np.flatnonzero(~found))))
            token = int(draw.choice(np.flatnonzero(found)))
            if token == END:
                assert c.accept(token)
                break
            assert c.accept(token)
            other.accept(token)
            text.append(token)
            assert c.is_complete == other.is_complete
            if other.is_complete:
                break
