# SPDX-License-Identifier: Apache-2.0
"""The text of generated C: columns, braces, arithmetic without what does nothing."""

from __future__ import annotations

import pytest

from tests.c_braces import braced
from tvm_megcc.codegen.c_source.format import reindent
from tvm_megcc.codegen.c_source.simplify import simplified

MESSY = """\
static void f(const float *x,
  int32_t n)
{
{
int32_t i = 0; /* a { brace */
  for (int32_t j = 0; j < n; j++)
for (int32_t k = 0; k < n; k++)
i += call(x,
y);
if (n) {

i = "}";

switch (n) {
case 1:
return a_long_name_of_a_function(with_operands + that_are_long, which_call(others, and_others), until_a_line, ends);
}
} else {


i = 2 +
3;
}
#define A 1
/* two
 * lines */
return;
}
}
"""

TIDY = """\
static void f(const float *x,
    int32_t n)
{
    {
        int32_t i = 0; /* a { brace */
        for (int32_t j = 0; j < n; j++)
            for (int32_t k = 0; k < n; k++)
                i += call(x,
                    y);
        if (n) {
            i = "}";
            switch (n) {
            case 1:
                return a_long_name_of_a_function(with_operands + that_are_long, which_call(others, and_others),
                    until_a_line, ends);
            }
        } else {
            i = 2 +
                3;
        }
#define A 1
        /* two
         * lines */
        return;
    }
}
"""


def test_reindent():
    assert reindent(MESSY) == TIDY


def test_a_statement_of_any_length():
    """Is broken at one indentation."""
    lines = reindent("x = f(" + ", ".join(f"g({number})" for number in range(20_000)) + ");").split("\n")
    assert len(lines) > 1000 and {len(line) - len(line.lstrip()) for line in lines[1:]} == {4}
    assert all(len(line) <= 120 for line in lines) and len(lines) < 20_000 / 8


def test_reindent_is_stable():
    assert reindent(TIDY) == TIDY


@pytest.mark.parametrize(("given", "simple"), [
    ("(C + 0) / 1 * 1 - c / 16 * 16;", "C - c / 16 * 16;"),
    ("(ptrdiff_t)1 * IW * 16", "(ptrdiff_t)IW * 16"),
    ("y + at + 0 * y_pixel + 0", "y + at"),
    ("xk[0 * (ptrdiff_t)IC + 3]", "xk[3]"),
    ("top = ih < 0 ? (-ih + 0) / 1 : 0;", "top = ih < 0 ? -ih : 0;"),
    ("w, 1 * 16 * (ptrdiff_t)(144) + 0", "w, 16 * (ptrdiff_t)144"),
    ("row = (11) * 16;", "row = 11 * 16;"),
    ("x = a + 0 * (g + 1) * 3;", "x = a;"),
    ("at = ow * 1 - PL, end = begin - 0;", "at = ow - PL, end = begin;"),
])
def test_simplified(given: str, simple: str):
    assert simplified(given) == simple
    assert simplified(simple) == simple


@pytest.mark.parametrize("text", [
    "x * 1.0f + 0.0f", "x * 10 + 01", "0 * f(x)", "0 * *p++", "a / 0 * 1.5", "x % 1 * y", "for (; n > 0 - 1; n -= 10)",
    "a ? 1 : 0", "(float)+ 0", "b + 0 * a[3]", "#define A(x) x * 1", "asm(\"x + 0\" : \"+w\"(a)); /* a * 1 */",
    "f(0) * a",
])
def test_what_is_no_neutral_term_stays(text: str):
    assert simplified(text) == text


UNBRACED = """\
static const int a[] = { 1, 2 };
static int f(int x)
{
    if (x) /* no } */
        return 1;
    else if (x > 2)
        g(1, 2);
    else
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 2; j++)
            {
                k();
            }
    switch (p) {
    default:
        if (x) y();
        break;
    }
#if X
    while (x--)
        q("}");
#endif
    float v[4] = {0.0f};
    do x(); while (y);
}
"""

BRACED = """\
static const int a[] = { 1, 2 };
static int f(int x)
{
    if (x) {
        /* no } */
        return 1;
    } else if (x > 2) {
        g(1, 2);
    } else {
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 2; j++) {
                k();
            }
        }
    }
    switch (p) {
    default:
        if (x) {
            y();
        }
        break;
    }
#if X
    while (x--) {
        q("}");
    }
#endif
    float v[4] = {0.0f};
    do {
        x();
    } while (y);
}
"""


def test_braced():
    assert reindent(braced(UNBRACED)) == BRACED
    assert braced(BRACED) == BRACED
