# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for npm`: a generated folder as an ES module with the network in WebAssembly."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from ...codegen.c_source.render import environment
from ...codegen.embedding import read_container
from ...codegen.machines import static_profile
from ...codegen.manifest import read_manifest
from ...codegen.packages.base import MIN_ALIGNMENT, known_strings, model_view, package_address, package_version
from ...codegen.packages.language_model import FUNCTIONS, LanguageModel, templates
from ...codegen.packages.languages import Port, ports, statuses
from ...codegen.packages.program import packaged
from ...codegen.packages.variables import Model
from ...errors import MegccError
from ...foreign import printable
from ...runtime.build import CFLAGS, building_in, c_sources, model_of
from ...runtime.objects import Objects, link
from ...runtime.toolchain import find_compiler
from ...target import TARGETS, Target
from ...version import VERSION

#: Valid npm names, and the most characters of one: https://docs.npmjs.com/cli/configuring-npm/package-json#name
_MAX_NAME = 214
_NAME = re.compile(r"(@[a-z0-9-][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.ASCII)
#: Names that npm does not allow for new packages: those of node's own modules, and two file names.
_RESERVED = set("""node_modules favicon.ico assert async_hooks buffer child_process cluster console constants crypto
    dgram diagnostics_channel dns domain events fs http http2 https inspector module net os path perf_hooks process
    punycode querystring readline repl stream string_decoder sys timers tls trace_events tty url util v8 vm wasi
    worker_threads zlib""".split())
#: The functions of export/web.c.j2 that every module exports, without the prefix `<model>_block_`.
_EXPORTS = ("bytes", "open", "input", "output", "run", "reset")


class NpmVariables(TypedDict, total=False):
    """The context of export/web.c.j2 and of the templates in `templates/export/npm/` and
    `templates/export/language_model/npm/`, which `package` renders.

    package: name of the npm package, such as "@scope/resnet".
    place: name of the folder that the package is in, for README.md.
    version: version of the package, three numbers such as "1.0.0".
    generator: name and version of the compiler, such as "tvm_megcc 1.4.0".
    link: the address of the homepage; "" if there is none.
    model: the only model.
    lm: the language model that it is; None: it is another network.
    inputs: the inputs of the model in their order, states included.
    outputs: the outputs of the model in their order, states included.
    strings: the strings of the model, each at its code; None: the model has no string inputs or outputs.
    embedded: whether the weights are in the module; else they are a file of their own.
    align: the alignment of the memory of a session, in bytes.
    target: the CPU that the module is compiled for, such as "wasm32-simd128".
    statuses: status of the C runtime -> its error text.
    wasm_bytes: size of the module.
    weight_bytes: size of the file with the weights; 0: they are in the module.
    """

    package: str
    place: str
    version: str
    generator: str
    link: str
    model: Model
    lm: LanguageModel | None
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    strings: Sequence[str] | None
    embedded: bool
    align: int
    target: str
    statuses: Mapping[int, str]
    wasm_bytes: int
    weight_bytes: int


def package(folder: Path, name: str | None = None, version: str = "1.0.0", url: str = "", cc: str | None = None,
            target: str | None = None, folder_name: str = "") -> dict[str, bytes]:
    """Returns the files of the package: name below its folder -> bytes.

    Args:
        folder: as `megcc compile` writes it, for a target of WebAssembly. The weights of an embedded model are in the
            module, those of others in a separate file.
        name: name of the package, by default the model's.
        cc: the compiler, by default one that is found.
        target: which of the folder's; by default the one with the most instructions.
        folder_name: name of the folder that the package will be in, which README.md says; by default that of the
            package.

    Raises:
        MegccError: if the folder is for no target of WebAssembly, has several models, or shapes without an upper
            bound, or if the name, the version or the address is invalid.
        ToolError: if there is no compiler, or it fails.
    """
    manifest = read_manifest(folder)
    program = packaged(folder, manifest)
    row = program or model_of(manifest, None, folder)
    cpu = _target(folder, row, target)
    package_version(version)
    package_address(url)
    chosen = name or row["name"].replace("_", "-")
    if not _NAME.fullmatch(chosen) or len(chosen) > _MAX_NAME:
        raise MegccError(f"'{printable(chosen)}' is no name of an npm package: small letters, digits, '-', '_' and "
                         "'.', perhaps with @scope/ before it")
    if chosen in _RESERVED:
        raise MegccError(f"'{chosen}' is reserved by npm: give another name with --name, or a @scope/ before it")
    embedded = f"{row['name']}_data.c" in manifest["files"]
    inputs, outputs = ports(row)
    context: NpmVariables = {
        "statuses": statuses(), "generator": f"tvm_megcc {VERSION}", "package": chosen,
        "place": printable(folder_name or chosen), "version": version, "link": url,
        "model": model_view(row), "inputs": inputs, "outputs": outputs, "strings": known_strings(row),
        "lm": LanguageModel.of(folder, manifest),
        "embedded": embedded, "align": max(row["alignment"], MIN_ALIGNMENT),
        "target": cpu.name}
    functions = FUNCTIONS if context["lm"] else (
        *_EXPORTS, *(["shape"] if any(port.dynamic for port in inputs) else []),
        *(["dim"] if any(port.dynamic for port in outputs) else []))
    shim = environment().get_template("export/web.c.j2").render(context)
    files = {f"{row['name']}.wasm": _module(folder, row["name"], cpu, cc, shim, functions)}
    if not embedded:
        files[f"{row['name']}.megcc"] = read_container(folder, row["name"], cpu)
    context |= {"wasm_bytes": len(files[f"{row['name']}.wasm"]),
                "weight_bytes": len(files.get(f"{row['name']}.megcc", b""))}
    for path, template in templates("npm", bool(context["lm"]), bool(program)).items():
        files[path] = environment().get_template(template).render(context).encode()
    return files


def _target(folder: Path, row: Mapping, asked: str | None) -> Target:
    found = [TARGETS[name] for name in row["targets"] if TARGETS[name].machine == "wasm32"]
    fitting = [target for target in found if asked in (None, target.name)]
    if not fitting:
        raise MegccError(f"{folder} is for {', '.join(row['targets'])}, not for {asked or 'WebAssembly'}: compile the "
                         "model again with --target wasm32-simd128")
    return fitting[0]


def _module(folder: Path, name: str, target: Target, cc: str | None, source: str,
            functions: Sequence[str]) -> bytes:
    """Compiles the folder's C code and `source` to a WebAssembly module, without a C library and therefore without
    imports, that exports `functions` of the model or program `name`."""
    manifest = read_manifest(folder)
    with building_in(folder), tempfile.TemporaryDirectory() as aside:
        compiler = find_compiler(target, cc)
        shim = Path(aside) / "web.c"
        shim.write_text(source)
        objects = Objects(folder, folder / "build" / target.name / "npm", compiler)
        flags = (*CFLAGS, *target.cflags, *static_profile(
            manifest["models"], trusted_data=True, program="program" in manifest))
        compiled = objects.compile_all([*c_sources(folder), shim], flags)
        exported = [f"-Wl,--export={name}_block_{function}" for function in functions]
        output = Path(aside) / f"{name}.wasm"
        # With the stack below the data it cannot overwrite them. Zig does so by default and rejects the option.
        stack = ("-Wl,-z,stack-size=65536", *(() if "zig" in str(compiler) else ("-Wl,--stack-first",)))
        link(compiler, (*target.cflags, "-nostdlib", "-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,--strip-all",
                        *stack, "-Wl,--export=__heap_base", *exported), compiled, output)
        return output.read_bytes()
