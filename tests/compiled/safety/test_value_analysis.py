# SPDX-License-Identifier: Apache-2.0
"""`megcc evidence --value-analysis`: Frama-C finds what is wrong in a kernel, and nothing in kernels of the profile."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.c_flags import native_compiler
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.codegen.embedding import read_container
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MissingTool, ToolError
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.evidence import value_analysis
from tvm_megcc.tools.evidence.properties import kernels_of
from tvm_megcc.tools.evidence.sources import Sources
from tvm_megcc.tools.evidence.value_analysis import Kernel, Operand, analyse

from .test_profile import compiled, floats, integers

C = TARGETS["c"]


def frama_c() -> None:
    try:
        value_analysis.frama_c_version()
    except MissingTool as missing:
        pytest.skip(str(missing))


def sources_of(folder: Path) -> Sources:
    try:
        return Sources.of(folder, C, "gcc")
    except (MissingTool, ToolError) as missing:
        pytest.skip(str(missing))


def model_of(folder: Path) -> tuple[str, bytes]:
    name = read_manifest(folder)["models"][0]["name"]
    return name, read_container(folder, name, C)


def kernels(sources: Sources) -> list[Kernel]:
    folder, facts = sources.folder, read_manifest(sources.folder)["models"][0]
    name, container = model_of(folder)
    return value_analysis.kernels_of(facts["programs"][0], container, C.isa.code, kernels_of(sources),
                                     (folder / value_analysis.table_file(folder, name)).read_text())


@pytest.mark.slow
@pytest.mark.parametrize("network", [floats, integers])
def test_kernels_have_no_undefined_behaviour(network, tmp_path):
    frama_c()
    sources = sources_of(compiled(network, "c", tmp_path / "net", profile="safety"))
    found, lines = kernels(sources), []
    rows = analyse(sources, found, 600, model_of(sources.folder), lines.append)["rows"]
    assert len(rows) == len(found) + 1 == len(lines) > 3
    assert not [(row["name"], row["alarms"], row["reason"]) for row in rows if row["alarms"] or row["reason"]]
    assert all(row["statements"] > 50 and row["reached"] > row["statements"] / 2 for row in rows[:-1])
    assert rows[-1]["reached"] > 1000  # what it does not reach refuses other containers and arguments


WRONG = {
    "int8_t a = x[8]; y[0] = a;": "out of bounds read",
    "y[4] = 1;": "out of bounds write",
    "y[0] = (int8_t)(100 / x[0]);": "division by zero",
    "y[0] = (int8_t)(x[0] << x[1]);": "left shift",
    "int32_t sum = 2147483000; for (int32_t i = 0; i < 8; i++) { sum += x[i]; } y[0] = (int8_t)sum;": "signed overflow",
    "int8_t none; if (x[0] > 0) { none = 1; } y[0] = none;": "uninitialized",
    "((int8_t *)x)[2] = 1; y[0] = 0;": "wrong writes a, which its contract does not assign",
    "for (int32_t i = 0; i < 4; i++) { y[i] = (int8_t)(x[i] / 2 + x[4 + i] / 2); }": "",
    "int32_t sum = 0; for (int32_t i = 0; i < 8; i++) { sum += x[i] * w[i]; } y[0] = (int8_t)(sum / 7);": "",
}


@pytest.fixture
def one_kernel(tmp_path):
    """A folder of the profile whose only kernel is replaced by a body. Shells and Frama-C would split its name."""
    frama_c()
    sources = sources_of(compiled(integers, "c", tmp_path / "a net, $(touch b); 'c'", profile="safety"))
    folder = sources.folder

    def run(body: str, *, size: int = 8, seconds: float = 60, declared: str = "wrong") -> dict:
        (folder / "kernels" / "kernels.h").write_text(f'#include "megcc_kernel.h"\nint32_t {declared}(const '
                                                            'megcc_call *call, int32_t begin, int32_t end, void *s);\n')
        (folder / "kernels" / "wrong.c").write_text(f"""#include "kernels.h"
/*@ requires \\valid_read((char *)call->in[0] + (0 .. 7)); */
int32_t wrong(const megcc_call *call, int32_t begin, int32_t end, void *scratch)
{{
    const int8_t *x = call->in[0], *w = call->in[1];
    int8_t *y = call->out[0];
    (void)begin, (void)end, (void)scratch, (void)w;
    {body}
    return 0;
}}
""")
        weights = tuple(map(str, range(-4, 4)))
        kernel = Kernel("wrong", "kernels/wrong.c", (0,), (
            Operand("a", "int8_t", size), Operand("w", "int8_t", 8, weights, weights), Operand("b", "int8_t", 4)),
            ("a", "w"), ("b",), 0, 0, 1)
        (row,) = analyse(sources, [kernel], seconds)["rows"]
        return row

    return run


@pytest.mark.parametrize("body", WRONG)
def test_alarms(body, one_kernel):
    row = one_kernel(body)
    assert not row["reason"] and all(alarm["place"].startswith("kernels/wrong.c:") for alarm in row["alarms"])
    texts = [alarm["text"] for alarm in row["alarms"]]
    assert any(WRONG[body] in text for text in texts) if WRONG[body] else not texts, texts


def test_a_call_that_breaks_the_contract(one_kernel):
    (alarm,) = one_kernel("y[0] = 0;", size=7)["alarms"]
    assert "precondition" in alarm["text"] and "wrong" in alarm["text"]


@pytest.mark.slow
def test_a_runtime_that_breaks_a_contract(tmp_path):
    """A container with an operand that is too small for its kernel, and a table of kernels that allows it."""
    frama_c()
    sources = sources_of(compiled(integers, "c", tmp_path / "net", profile="safety"))
    found = kernels(sources)
    source = sources.folder / found[0].source
    text = source.read_text()
    source.write_text(re.sub(r"valid_read\(\(char \*\)call->in\[0\] \+ \(0 \.\. \d+\)",
                             "valid_read((char *)call->in[0] + (0 .. 1000000)", text))
    assert source.read_text() != text
    row = analyse(sources, found, 600, model_of(sources.folder))["rows"][-1]
    assert any("precondition" in alarm["text"] and found[0].name in alarm["text"] for alarm in row["alarms"])


def test_a_function_that_is_not_known(one_kernel):
    assert [alarm["text"] for alarm in one_kernel("y[0] = 0;", declared="other")["alarms"]] == [
        "wrong has neither code nor contract"]


def test_time_is_limited(one_kernel):
    row = one_kernel("for (int32_t i = 0; i < 3000000; i++) { y[i % 4] = x[0]; }", seconds=2)
    assert "more than 2 s" in row["reason"] and not row["statements"]


ROUND = """
#define MGC_ISA_C
#include "megcc_simd.h"
#include <math.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (uint64_t bits = 0; argc > 1 && bits < (uint64_t)1 << 32; bits += (uint64_t)atol(argv[1])) {
        const float v = mgc_lane_float((uint32_t)bits);
        const double r = mgc_lane_round(v);
        if (isfinite(v) && !(isfinite(r) && v - 0.5 <= r && r <= v + 0.5 && r == rint(v)))
            return 1;
    }
    return 0;
}
"""


@pytest.mark.parametrize("step", ["997", pytest.param("1", marks=pytest.mark.long)])
def test_the_contract_of_round(step, tmp_path):
    """Kernels are analysed with the contract of mgc_lane_round: it holds for every `step`-th float."""
    source, made = tmp_path / "round.c", tmp_path / "round"
    source.write_text(ROUND)
    subprocess.run([*native_compiler().command, "-O2", f"-I{paths.c_runtime() / 'include'}", str(source), "-lm", "-o",
                    str(made)], check=True)
    assert subprocess.run([made, step]).returncode == 0


def test_constants_that_calls_share_have_all_values_between():
    wide = np.array([-(2**63), 2**63 - 1, 5])
    operand = value_analysis._operand("w", "int64", 24, [wide, np.array([1, 2, 3])])
    assert operand.least == (f"({1 - 2**63}LL - 1)", "2LL", "3LL") and operand.most == ("1LL", f"{2**63 - 1}LL", "5LL")
    assert not operand.is_constant and operand.interval == "Frama_C_long_long_interval"
    floats = np.array([0.1, -2.5], np.float32)
    known = value_analysis._operand("w", "float32", 8, [floats])
    assert known.least == known.most == ("0x1.99999a0000000p-4", "-0x1.4000000000000p+1")
    assert value_analysis._operand("w", "float32", 8, [floats, floats * np.inf]).least is None
    assert value_analysis._operand("w", "float32", 8, [floats, None]).least is None


def test_what_is_refused(tmp_path, monkeypatch, capsys):
    folder = compiled(integers, "cortex-m33", tmp_path / "net", profile="safety")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["evidence", str(folder), "--value-analysis", "-o", str(tmp_path / "found")]) == REFUSED
    assert "apt-get install frama-c-base" in capsys.readouterr().err
    monkeypatch.setattr(value_analysis, "frama_c_version", lambda: "25")
    assert main(["evidence", str(folder), "--value-analysis", "-o", str(tmp_path / "found")]) == REFUSED
    assert "--target c" in capsys.readouterr().err
