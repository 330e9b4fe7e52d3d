# SPDX-License-Identifier: Apache-2.0
"""What the runtime promises, seen on a real network: no heap, no copy of the weights, no writable data."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tvm_megcc.runtime.build import compile_objects

from .networks import NETWORKS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    native_compiler()
    network = NETWORKS["mobilenet_v1_025_224_f32"]
    artifact = tvm_megcc.compile(network.path, "native", name="mobilenet")
    return artifact.save(tmp_path_factory.mktemp("promises") / "mobilenet")


@pytest.mark.slow
def test_no_heap_and_weights_in_place(folder: Path, tmp_path: Path):
    built, objects = compile_objects(folder, "native")
    binary = tmp_path / "promises"
    subprocess.run([*built.compiler.command, "-O2", "-DMEGCC_MODULE=mobilenet_module",
                    f"-I{folder / 'runtime/include'}", str(HERE / "promises.c"), *(str(o) for _, o in objects),
                    "-Wl,--wrap=malloc,--wrap=calloc", "-lpthread", "-o", str(binary)], check=True)
    text = subprocess.run([str(binary), str(folder / "mobilenet.megcc")], capture_output=True, text=True,
                          check=True).stdout
    words = text.split()
    facts = dict(zip(words[::2], words[1::2], strict=True))
    print(text)
    assert facts["allocations"] == "0"
    assert int(facts["weights"]) >= 2 * 2 * 28, "weights and bias of every convolution, before and after, twice"


@pytest.mark.slow
def test_no_writable_data(folder: Path):
    """Tables of pointers are relocated once and then read-only (.data.rel.ro); nothing else is data."""
    _, objects = compile_objects(folder, "native")
    for source, path in objects:
        text = subprocess.run(["objdump", "-h", str(path)], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
        writable = [(row[1], row[2]) for row in rows
                    if row[1].startswith((".data", ".bss")) and not row[1].startswith(".data.rel.ro")]
        assert not [name for name, size in writable if int(size, 16)], f"{source}: {writable}"


