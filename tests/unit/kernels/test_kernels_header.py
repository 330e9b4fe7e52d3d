# SPDX-License-Identifier: Apache-2.0
"""kernels.h: each prototype once, what a kernel sees of it, and who includes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.codegen import bundle
from tvm_megcc.codegen.c_source.symbols import kernel_file
from tvm_megcc.codegen.headers import HEADER, header_for, kernels_header, short_name
from tvm_megcc.errors import InternalError

DIGITS = paths.examples() / "digits.onnx"


def code_of(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_every_name_of_the_runtime_is_there():
    """Templates and printers write `mgc_…` names of the runtime's headers, which a renaming may miss.

    Names that a template or a macro puts together are known by their beginning.
    """
    headers = "".join(path.read_text() for path in paths.c_runtime().rglob("*.[ch]"))
    known = set(re.findall(r"\bmgc_\w+", headers))
    pasted = tuple(set(re.findall(r"\b(mgc_\w+?_?)(?:##|<)", headers)))
    package = Path(tvm_megcc.__file__).parent
    for path in (*package.rglob("*.j2"), *package.rglob("*.py")):
        text = path.read_text()
        own = set(re.findall(r"\b(mgc_\w+)\((?:const |int|u?int\w+_t |mgc_\w+ |ptrdiff_t )", text))
        used = set(re.findall(r"(?<![\w}])(mgc_\w*[^\W_])(?![\w{])", text)) - known - own
        wrong = [name for name in used if not f"{name}_".startswith(pasted)]
        assert not wrong, (path.name, wrong)


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_each_prototype_stands_once(optimize: str):
    """Of all models and CPUs of a folder; a name followed by a parenthesis is a prototype, a definition or a call."""
    artifacts = [tvm_megcc.compile(DIGITS, "arm64,c", optimize=optimize, name=name) for name in ("one", "two")]
    files = {name: text.decode() for name, text in bundle.contents(artifacts).items() if name.endswith((".c", ".h"))}
    kernels = {call["kernel"] for artifact in artifacts for program in artifact.manifest["programs"]
               for call in program["calls"]}
    assert len(kernels) > 5
    assert {kernel_file(kernel) for kernel in kernels} == {name for name in files if re.match(r"kernels/.*\.c$", name)}
    declared = re.findall(r"(\w+)\(", code_of(files[HEADER]))
    assert declared == sorted(kernels)
    for kernel in kernels:
        found = [name for name, text in files.items() if re.search(rf"\b{kernel}\(", code_of(text))]
        assert found == sorted([HEADER, kernel_file(kernel)], key=list(files).index), kernel
        assert files[kernel_file(kernel)].count(f"{kernel}(") == 1
        assert '#include "kernels.h"\n' in files[kernel_file(kernel)]
    for table in ("one_kernels.c", "two_kernels.c"):
        assert f'#include "{HEADER}"\n' in files[table]


def test_a_kernel_sees_its_own_prototype():
    header = kernels_header(["b", "a", "ab"])
    assert header_for('#include "kernels.h"\nint32_t a(…)', header) == kernels_header(["a"])
    assert header_for("const fn[] = { a, ab, b };", header) == header
    assert "#define EDITED" in header_for("a", header.replace("#endif", "#define EDITED\n#endif"))


def test_no_kernels():
    assert "(" not in code_of(kernels_header([])) and "(" in code_of(kernels_header(["b"]))
    assert "(" not in code_of(header_for("a", kernels_header(["b"])))


def test_names_are_identifiers():
    with pytest.raises(InternalError):
        kernels_header(["a; evil"])


def test_short_names():
    """At most 31 characters, all distinct, an identifier; for the kernels of a folder, each defined once."""
    artifact = tvm_megcc.compile(DIGITS, "native,arm64,c")
    files = bundle.contents([artifact])
    symbols = {call["kernel"] for program in artifact.manifest["programs"] for call in program["calls"]}
    defined = dict(re.findall(r"^#define (\w+) (megcc_\w+)$", files[HEADER].decode(), re.MULTILINE))
    assert defined == {symbol: short_name(symbol) for symbol in symbols}
    assert max(map(len, defined.values())) <= 31 and len(set(defined.values())) == len(symbols)
