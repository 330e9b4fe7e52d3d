# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for tvm-ffi`: writes a generated folder as a shared library for `tvm_ffi.load_module`, with examples
in Python, C++ and Rust."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from ...codegen.c_source.render import environment
from ...codegen.embedding import data_source, read_container
from ...codegen.machines import NO_DYNAMIC, is_dynamic
from ...codegen.manifest import read_manifest
from ...codegen.packages.base import package_name, package_version
from ...codegen.packages.languages import ELEMENTS, Element, Port, counted, ports
from ...errors import MegccError
from ...foreign import c_string, printable
from ...runtime.build import CFLAGS, building_in, c_sources, model_of
from ...runtime.objects import Objects, link
from ...runtime.toolchain import find_compiler
from ...runtime.tvm_module import EmbeddedModel, EntryFunction, Library, ModuleVariables
from ...target import TARGETS, Target
from ...version import VERSION

#: Machines for which TVM's FFI is published, and whose shared libraries are ELF files.
MACHINES = ("x86_64", "aarch64")
#: DLPack's codes of element types, by numpy's kind.
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class LibraryVariables(TypedDict):
    """The context of the templates in `templates/export/tvm-ffi/`, which `package` renders.

    generator: name and version of the compiler, such as "tvm_megcc 1.4.0".
    name: name of the package; the library is `<name>.so`.
    inputs: the arguments of the function `run`, in their order; their shapes do not change.
    outputs: the arguments after the inputs, in their order; their shapes do not change.
    targets: the names of the CPUs that the library has kernels for, such as "x86-64-v3".
    elements: C type -> the same type in other languages.
    code: identifier of an input or output -> DLPack's code of its element type, such as 2 for float32.
    """

    generator: str
    name: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    targets: Sequence[str]
    elements: Mapping[str, Element]
    code: Mapping[str, int]


def package(folder: Path, name: str | None = None, version: str = "1.0.0", cc: str | None = None) -> dict[str, bytes]:
    """Returns the library, a README.md and the examples.

    Args:
        folder: as `megcc compile` writes it, for levels of one machine that runs Linux.
        name: name of the package and the library, by default the model's.
        cc: the compiler, by default one that is found.

    Raises:
        MegccError: if the folder is not for exactly one of `MACHINES`; if it has several models, dynamic shapes or
            states; if the name or the version is invalid.
        ToolError: if there is no compiler, or it fails.
    """
    row = model_of(read_manifest(folder), None, folder)
    targets = [TARGETS[target] for target in row["targets"]]
    machines = {target.machine for target in targets} - {"any"}
    if len(machines) > 1 or not machines <= set(MACHINES):
        raise MegccError(f"{folder} is for {', '.join(row['targets'])}, but a library is for levels of one machine "
                         f"that TVM's FFI runs on: {', '.join(MACHINES)}")
    if row["states"]:
        states = ", ".join(printable(state["input"]) for state in row["states"])
        raise MegccError(f"{folder} keeps states ({states}), and functions of a library have none: compile the model "
                         "without --state, then they are inputs and outputs")
    package_version(version)
    name = package_name(name or row["name"], "tvm-ffi")
    inputs, outputs = ports(row)
    for port in (*inputs, *outputs):
        if not all(isinstance(extent, int) for extent in port.shape):
            data_dependent = counted(row)   # no option gives these a value
            named = " ".join(f"--dim {printable(symbol)}=SIZE" for symbol in dict.fromkeys(
                symbol for bucket in row["buckets"] for symbol in bucket) if symbol not in data_dependent)
            raise MegccError(f"the shape of '{printable(port.name)}' changes from run to run, which this library "
                             f"leaves out: compile the model again with {named or 'other --output-names'}, or take a "
                             "wheel or a package of another language, which have shapes that change")
        if port.dtype not in np.sctypeDict:
            raise MegccError(f"'{printable(port.name)}' is {port.dtype}, which numpy does not have")
    chosen = next((target for target in targets if target.machine in machines), targets[0])
    context: LibraryVariables = {
        "generator": f"tvm_megcc {VERSION}", "name": name, "inputs": inputs, "outputs": outputs,
        "targets": row["targets"], "elements": ELEMENTS,
        "code": {port.word: CODES[np.dtype(port.dtype).kind] for port in (*inputs, *outputs)}}
    files = {f"{name}.so": _library(folder, row, chosen, cc, inputs, outputs)}
    for path in ("README.md", "example/run.py", "example/run.cpp", "example/run.rs"):
        files[path] = environment().get_template(f"export/tvm-ffi/{path}.j2").render(context).encode()
    return files


def _description(row: Mapping) -> str:
    """Returns the JSON text that the function `describe` returns."""
    return json.dumps({"name": row["name"], "generator": f"tvm_megcc {VERSION}", "targets": row["targets"], **{
        end: [{key: port[key] for key in ("name", "dtype", "shape", "quant") if key in port} for port in row[end]]
        for end in ("inputs", "outputs")}}, ensure_ascii=True)


def _library(folder: Path, row: Mapping, target: Target, cc: str | None, inputs: Sequence[Port],
             outputs: Sequence[Port]) -> bytes:
    """Compiles the folder's C code and the entry for TVM's FFI to a shared library. It does not link libtvm_ffi, which
    the loading process has."""
    name, container = row["name"], read_container(folder, row["name"], target)
    model = EmbeddedModel(name, size=len(container), digest=hashlib.sha256(container).hexdigest(), ranges="")
    functions = [EntryFunction("run", name=name, profile="profile", model=0)]
    library = Library([c_string(port.name) for port in inputs], [c_string(port.name) for port in outputs],
                      c_string(_description(row)))
    written = {"functions.c": environment().get_template("tvm/module.c.j2").render(ModuleVariables(
        models=[model], regions=functions, abi="ffi", library=library, version=VERSION, alignment=row["alignment"])),
        "data.c": data_source(name, [target], [container], declared=False)}
    with building_in(folder), tempfile.TemporaryDirectory() as aside:
        compiler = find_compiler(target, cc)
        for file, text in written.items():
            (Path(aside) / file).write_text(text)
        objects = Objects(folder, folder / "build" / target.name / "tvm-ffi", compiler)
        sources = [path for path in c_sources(folder) if path.name != f"{name}_data.c"]
        flags = (*CFLAGS, *target.cflags, *([] if is_dynamic(row) else [NO_DYNAMIC]), "-fPIC")
        compiled = objects.compile_all([*sources, *(Path(aside) / file for file in written)], flags)
        output = Path(aside) / "network.so"
        link(compiler, ("-shared", "-Wl,--gc-sections", "-s", *target.cflags, "-pthread"), compiled, output)
        return output.read_bytes()
