# SPDX-License-Identifier: Apache-2.0
"""Every body in generated C has braces: a line that is added to one stays in it."""

from __future__ import annotations

import re

import pytest

import tvm_megcc
from tests.c_braces import braced
from tests.kernels.kernel_harness import jobs_of
from tvm_megcc import paths
from tvm_megcc.codegen import bundle
from tvm_megcc.codegen.c_source.format import reindent
from tvm_megcc.codegen.c_source.render import environment, render_kernel
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS

DIGITS = paths.examples() / "digits.onnx"
#: The targets whose kernels are rendered here and what is optimised for: every way of knowing extents, and every ISA
#: that has templates of its own.
ALL = [*(pytest.param(*pair, marks=pytest.mark.slow) for pair in (
    ("c", "size"),
    ("x86-64-v4", "speed"), ("arm64", "speed"), ("cortex-m4", "speed"), ("arm64-v86", "speed"))),
    *(pytest.param(*pair, marks=[pytest.mark.slow, pytest.mark.long]) for pair in (
        ("c", "open"), ("c", "speed"), ("x86-64-v3", "size"), ("arm64", "size"), ("armv7", "size")))]


def assert_braced(text: str, name: str) -> None:
    wanted = braced(text)
    if text != wanted:
        line = next(number for number, (a, b) in enumerate(zip(text.split("\n"), wanted.split("\n"), strict=False))
                    if a != b)
        raise AssertionError(f"{name} has a body without braces:\n" + "\n".join(text.split("\n")[line:line + 3]))


@pytest.mark.parametrize(("target", "optimize"), ALL)
def test_kernels(target: str, optimize: str):
    """Of all cases of all operators; nearly all of the same text for other extents is left out."""
    seen: dict[str, int] = {}
    for kind, declaration in sorted(OPERATORS.items()):
        for index, case in enumerate(declaration.cases):
            for job in jobs_of(kind, case, index, TARGETS[target], optimize):
                spec = job.bound.spec
                shape = re.sub(r"\d+", "#", spec.symbol)
                seen[shape] = seen.get(shape, 0) + 1
                if seen[shape] <= 2:
                    assert_braced(render_kernel(spec), spec.symbol)
    assert len(seen) > 100


@pytest.mark.parametrize("options", [{}, {"dispatch": "image[0]=1..2,3..*", "optimize": "size"}], ids=["fixed", "open"])
def test_folders(options: dict):
    """Kernels, table, shape function, container, example, and the runtime beside them."""
    files = bundle.contents([tvm_megcc.compile(DIGITS, ",".join(
        name for name, target in TARGETS.items() if not (target.bare_metal and options)), **options)], embed=True)
    checked = [name for name in files if name.endswith((".c", ".h"))]
    assert {"main.c", "kernels.c", "digits_data.c", "runtime/src/vm.c", "runtime/include/megcc_double.h"} < set(checked)
    for name in checked:
        assert_braced(files[name].decode(), name)


@pytest.mark.parametrize("path", sorted(
    path for folder in ("src", "lm", "lm/text", "signed") for path in (paths.c_runtime() / folder).glob("*.c")),
    ids=lambda path: path.name)
def test_runtime(path):
    """Braces, also of the parts that only some folders have; no line of a function begins in the first column."""
    text = path.read_text("utf-8")
    assert_braced(text, path.name)
    depth = 0
    for number, line in enumerate(_code(text).split("\n"), start=1):
        if not line.startswith(("#", "}")):
            assert not depth or not line.strip() or line.startswith(" "), f"{path.name}:{number}"
        assert not line.startswith("}") or depth == 1, f"{path.name}:{number}"
        depth += line.count("{") - line.count("}")
    assert not depth


def _code(text: str) -> str:
    """The text with spaces for comments, strings and characters."""
    return re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'",
                  lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)


@pytest.mark.parametrize(("abi", "library"), [
    ("ffi", None), ("packed", None), ("ffi", {"inputs": ['"x"'], "outputs": ['"y"'], "description": '"{}"'})])
def test_modules_of_tvm(abi: str, library):
    region = {"symbol": "f", "name": "f", "profile": "f_profile", "model": 0}
    model = {"name": "m", "size": 1, "ranges": "", "digest": "0"}
    text = environment().get_template("tvm/module.c.j2").render(models=[model], regions=[region], abi=abi, version="0",
                                                                 library=library, alignment=64)
    assert_braced(text, abi)


@pytest.mark.parametrize("text", ["if (x)\n        return;", "for (;;)\n        f(x);", "while (x) x--;",
                                  "if (x) {\n        y();\n    } else\n        z();"])
def test_what_has_none_is_found(text: str):
    with pytest.raises(AssertionError):
        assert_braced(f"void f(int x)\n{{\n    {text}\n}}\n", "text")
    assert_braced(reindent(braced(f"void f(int x)\n{{\n    {text}\n}}\n")), "text")
