# SPDX-License-Identifier: Apache-2.0
"""`megcc export`: writes a generated folder as a package for a build system or a language."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...codegen.embedding import AUTO, TEXT
from ...codegen.manifest import read_manifest
from ...codegen.packages import base as sources
from ...errors import MegccError, refused_by_system
from ...target import machine
from . import npm, tvm_ffi, wheel

#: Systems whose packages contain compiled code -> what `megcc export` writes for them.
BUILT = {"npm": "an ES module with the network in WebAssembly",
         "wheel": "a Python package with the network compiled in",
         "tvm-ffi": "a library of functions for TVM's FFI"}
SYSTEMS = {**sources.SYSTEMS, **BUILT}
#: The default target of a system; portable C if the system supports many CPUs.
TARGETS = {"zephyr": "c", "esp-idf": "c", "arduino": "c", "platformio": "c", "cmake": "c", "cmsis-pack": "cortex-m4",
           "stm32cube": "cortex-m4", "mlperf-tiny": "cortex-m4",
           "npm": "wasm32-simd128", "rust": "x86-64-v3,arm64,c", "cpp": "x86-64-v3,arm64,c",
           "go": "x86-64-v3,arm64,c", "android": "arm64,arm64-v82,armv7,x86-64",
           "swift": "arm64,arm64-v82,x86-64,x86-64-v3", "wheel": wheel.TARGETS_OF.get(machine(), "native"),
           "tvm-ffi": wheel.TARGETS_OF.get(machine(), "native")}
#: Systems whose packages have the weights in a separate file.
BESIDE = {"wheel"}


def embedding(system: str, asked: str | None) -> bool | str:
    """Returns how a model for the system is embedded (`codegen.bundle`), by default or as asked for."""
    if system in BESIDE:
        return False
    return asked or (TEXT if system in (*sources.TEXT_ONLY, "npm", "mlperf-tiny") else AUTO)


def export(folder: Path, system: str, output: str | Path | None, version: str = "1.0.0", url: str = "",
           force: bool = False, name: str | None = None, cc: str | None = None) -> dict:
    """Writes the package (`codegen.package.package`, `npm.package`) and returns what it is.

    Args:
        output: its folder, by default the models' names and the system's.
        force: replace an existing folder whatever is in it.
        name: name of the package, by default the models'.
        cc: the compiler, where something is built.

    Raises:
        MegccError: if the folder cannot be packed, or something else stands where it should be written.
        ToolError: if there is no compiler, or it fails.
    """
    bound = [model["name"] for model in read_manifest(folder)["models"] if model["options"].get("caller_inputs")]
    if bound:
        raise MegccError(f"{', '.join(bound)}: examples of packages write inputs into a session's memory; compile "
                         "without --caller-inputs, or take the folder as it is")
    split = [model["name"] for model in read_manifest(folder)["models"] if "regions" in model["options"]]
    if split:
        raise MegccError(f"{', '.join(split)}: examples of packages have one block of memory; compile without "
                         "--region, or take the folder as it is")
    names = [model["name"] for model in read_manifest(folder)["models"]]
    output = Path(output or "_".join([*names, system.replace("-", "_")]))
    folders.refuse_precious(output)
    place = output.resolve().name
    if system == "npm":
        files = npm.package(folder, name, version, url, cc, place=place)
    elif system in BUILT:
        files = {"wheel": wheel, "tvm-ffi": tvm_ffi}[system].package(folder, name, version, cc)
    else:
        files = sources.package(folder, system, version, url, name, place)
    if output.exists() and not force and not (output.is_dir() and not any(output.iterdir())):
        raise MegccError(f"{output} exists already; choose another --output, or replace it with --force")
    try:
        folders.replace(output, files, keep="build")
    except OSError as error:
        raise refused_by_system(error, f"{output} cannot be written") from None
    return {"package": str(output), "system": system, "what": SYSTEMS[system], "version": version,
            "files": len(files), "bytes": sum(map(len, files.values()))}


def text(report: dict) -> str:
    return (f"{report['package']}: {report['what']}, {report['files']} files, {report['bytes']:,} bytes; "
            f"{report['package']}/README.md says how to use it\n")
