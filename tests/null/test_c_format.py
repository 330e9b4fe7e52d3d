# SPDX-License-Identifier: Apache-2.0
"""The columns of generated C."""

from __future__ import annotations

from tvm_megcc.codegen.c_format import reindent

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


def test_reindent_is_stable():
    assert reindent(TIDY) == TIDY
