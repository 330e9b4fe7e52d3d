# SPDX-License-Identifier: Apache-2.0
"""What is printed of a model's names never leaves the comment, literal or identifier that it is printed into."""

import ast
import random
import re

import jinja2
import pytest

from tests.foreign_texts import TEXTS, code_of
from tvm_megcc.codegen.c_source.render import environment
from tvm_megcc.errors import InternalError, shortened
from tvm_megcc.foreign import MAX_IDENTIFIER, MAX_PRINTED, c_name, c_string, checked, identifier, printable

ALPHABET = "*/\\?\n\r\t \"'#<>&|`$%{}[]()=-_+~^!@;:,.aZ09\0\x1b\x7f\x85\u2028\u202eé名\U0001f600\udcff"


def strings(count: int = 2000):
    generator = random.Random(0)
    yield from TEXTS
    for _ in range(count):
        yield "".join(generator.choices(ALPHABET, k=generator.randrange(12)))


def test_a_comment_holds_it():
    for text in strings():
        shown = printable(text)
        assert re.fullmatch(r"[ -~]+", shown) and len(shown) <= MAX_PRINTED
        assert not set(shown) & set("\\?\"'`<>&|$[]{}"), shown
        assert code_of(f"/* {shown} */").strip() == "", shown
        assert "/*" not in shown and "*/" not in shown


def test_what_is_harmless_stays():
    for text in ("/model/layer.1/Conv_output_0", "StatefulPartitionedCall/bn:0;x", "2*batch + 1", "aten::add"):
        assert printable(text) == text


def test_a_literal_keeps_it():
    for text in strings():
        literal = c_string(text)
        assert re.fullmatch(r'"[ -~]*"', literal) and "??" not in literal
        assert ast.literal_eval(f"b{literal}") == text.encode("utf-8", "replace")


def test_an_identifier_is_one():
    for text in strings():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", identifier(text))
        assert len(identifier(text)) <= MAX_IDENTIFIER + 2
    assert identifier("MobileNet-v1 (0.25)") == "mobilenet_v1_0_25"
    assert identifier("x" * 1000 + "a") != identifier("x" * 1000 + "b")


@pytest.mark.parametrize("text", ["", "9", "a-b", "é", "a\n", "a b"])
def test_no_identifier(text):
    with pytest.raises(InternalError):
        c_name(text)


def test_long_texts_lose_their_middle():
    assert shortened("a" * 50 + "b" * 50, 20) == "a" * 12 + "..." + "b" * 5
    assert shortened("short", 20) == "short"


@pytest.mark.parametrize("text", ["x */ int y; /* z", "a /*", "??/", 'say "', "// so", "/* a \\\n/ */", "/* ??/\n/ */"])
def test_templates_refuse_what_leaves_a_comment(text):
    """The net below `printable`: a name of a model that a template forgets to put through it."""
    for template in ("/* {{ name }} */", "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(name) }}"):
        with pytest.raises(InternalError, match="a template prints"):
            environment().from_string(template).render(name=text)


def test_templates_print_c():
    for text in ("/* a comment: it's \"quoted\" */ int x;", 'f("a /* b", \'"\')', "a // b\n", "x / *y", 3, None):
        assert checked(text) is text
    assert isinstance(environment().from_string("{{ 1 }}"), jinja2.Template)
