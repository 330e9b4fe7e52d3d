# SPDX-License-Identifier: Apache-2.0
"""The tests that every tokenizer in C has to pass: the tokens of a package, and no byte beyond its buffers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from tests.compiled.runtime.test_runtime import CC, SANITIZE, call, has_flags
from tvm_megcc.cli import main

from .tokenizer_texts import LM, text

#: Bytes that are not UTF-8.
NO_TEXT = (b"\xff", b"a\xc3", b"\xe2\x82 b", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x80\x80x")


class SameTokens:
    """Tests of the module's fixture `kind`, a tuple that ends with the package's tokenizer and ours.

    at_once: characters that one call encodes, each in its `place`.
    """

    at_once = 200

    def words(self, seed: int) -> str:
        return text(seed)

    def place(self, character: str) -> str:
        """Returns a text with the character wherever it could be treated in another way."""
        raise NotImplementedError

    def wanted(self, python, given: str) -> list[int]:
        return python.encode(given, add_special_tokens=False).ids

    def compare(self, kind, seeds: range) -> None:
        *_, python, c = kind
        for seed in seeds:
            given = self.words(seed)
            assert c.encode(given.encode()) == self.wanted(python, given), (seed, given)

    def compare_characters(self, kind, codes) -> None:
        *_, python, c = kind
        given = [self.place(chr(code)) for code in codes if not 0xd800 <= code < 0xe000]
        for begin in range(0, len(given), self.at_once):
            part = "".join(given[begin:begin + self.at_once])
            assert c.encode(part.encode()) == self.wanted(python, part), part

    def test_texts(self, kind):
        self.compare(kind, range(1000))

    @pytest.mark.long
    def test_many_texts(self, kind):
        self.compare(kind, range(1000, int(os.environ.get("MEGCC_TEXTS", "100000"))))

    def test_characters(self, kind):
        """Code points below U+3100, and some of all others."""
        self.compare_characters(kind, [*range(0x3100), *range(0x3100, 0x110000, 61)])

    @pytest.mark.long
    def test_all_characters(self, kind):
        self.compare_characters(kind, range(0x110000))


def compare_program(c, tokenizer: Path, folder: Path, special: str, *options: str) -> None:
    """Compares the program that `megcc lm tokenizer` writes with the library.

    tokenizer: the file or folder that the command reads; its name, or that in `options`, is "given".
    """
    assert main(["lm", "tokenizer", str(tokenizer), *options, "-o", str(folder)]) == 0
    call(["make", "-s", "-C", folder, f"CC={CC}"])
    given = [f"hello {special}", "", "A\u0301B, \u4e2d!"]
    printed = call([folder / "given_tokens"], input="\n".join(given) + "\n").splitlines()
    assert printed == [" ".join(map(str, c.encode(line.encode()))) for line in given]


#: KIND, WORK (bytes that suffice), UNIT (of the work memory), SPECIAL (an argument) are replaced. `known` are strings
#: of the vocabulary, one after the other, from the offsets `known_at` on.
_FUZZ = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "megcc_KIND.h"
extern const megcc_KIND t_tokenizer;
extern const uint8_t known[];
extern const uint32_t known_at[], known_count;
int main(int argc, char **argv)
{
    uint64_t x = 88172645463325252u;
    const long count = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 0; i < count; i++) {
        char text[300];
        size_t size = 0;
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        const size_t wanted = x % (x & 1024u ? 300u : 40u);
        while (size < wanted) { /* bytes, characters, or what the vocabulary knows */
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            const uint32_t drawn = (uint32_t)(x >> 8) % known_count;
            const size_t length = known_at[drawn + 1u] - known_at[drawn];
            if (x & 128u && length <= wanted - size) {
                memcpy(text + size, known + known_at[drawn], length);
                size += length;
            } else if (x & 64u && wanted - size >= 3u) {
                text[size++] = (char)(0xe1u + x / 256u % 12u);
                text[size++] = (char)(0x80u + x / 4096u % 64u);
                text[size++] = (char)(0x80u + x / 65536u % 64u);
            } else
                text[size++] = (char)(x >> 40);
        }
        char *exact = malloc(size ? size : 1u); /* so that a byte behind the text is seen */
        memcpy(exact, text, size);
        const size_t bytes = x & 1u ? WORK : x / 2u % 2000u;
        const int32_t room = x & 2u ? 80 : (int32_t)(x / 4u % 8u);
        UNIT *work = malloc(bytes + 1u);
        uint32_t *tokens = malloc(4u * (uint32_t)room + 1u);
        const int32_t found = megcc_KIND_encode(&t_tokenizer, exact, size, SPECIAL tokens, room, work, bytes);
        for (int32_t k = 0; k < found && k < room; k++)
            if (tokens[k] >= t_tokenizer.tokens)
                return 1;
        free(exact);
        free(work);
        free(tokens);
    }
    puts("done");
    return 0;
}
"""


def fuzz(kind: str, *, work: str, unit: str = "uint32_t", special: str = "x / 4u & 1u,") -> str:
    """Returns a C program that encodes random bytes. The arguments are C, as `_FUZZ` has them."""
    program = _FUZZ
    for name, value in (("KIND", kind), ("WORK", work), ("UNIT", unit), ("SPECIAL", special)):
        program = program.replace(name, value)
    return program


def run_sanitized(folder: Path, program: str, tables: str, sources: tuple[str, ...], count: int,
                  known: Sequence[str] = ()) -> None:
    """Runs a program of `fuzz` under ASan and UBSan. sources: megcc_NAME.c of these names. known: strings of the
    vocabulary."""
    if not has_flags(*SANITIZE):
        pytest.skip("the compiler has no sanitizers")
    strings = [text.encode() for text in known]
    (folder / "tables.c").write_text("\n".join([
        tables, f"const uint8_t known[] = {{ {','.join(map(str, b''.join(strings)))} }};",
        f"const uint32_t known_at[] = {{ {','.join(map(str, accumulate(map(len, strings), initial=0)))} }};",
        f"const uint32_t known_count = {len(strings)};"]) if known else tables)
    (folder / "fuzz.c").write_text(program)
    call([CC, "-std=c99", f"-I{LM}", *SANITIZE, folder / "fuzz.c", folder / "tables.c",
          *(LM / f"megcc_{name}.c" for name in sources), "-o", folder / "fuzz"])
    assert call([folder / "fuzz", count]) == "done\n"
