# SPDX-License-Identifier: Apache-2.0
"""Makes a package for a build system or a programming language of a generated folder (`megcc export`).

All packages have the same layout of C sources. The other files of a system are the templates in
`templates/export/<system>/`, whose variables are `PackageVariables` (variables.py); a test in
tests/compiled/packages/test_export.py builds the example as the system would. Another system needs its templates, a row
in `SYSTEMS` of systems.py, and one in docs/packages.md.

The sources have one include folder, `src`, and need no flags: the macros that leave out parts of the runtime are in
`src/megcc_config.h`. So they also build where flags cannot be given, as in an Arduino library.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ...errors import MegccError
from ...foreign import c_name, printable
from ...ir.types import DTYPES
from ...target import TARGETS, Target
from ...version import VERSION
from ..boards import boards_of
from ..c_source.render import environment
from ..embedding import read_container
from ..headers import FIRST, with_settings
from ..machines import static_profile
from ..manifest import read_manifest
from ..quantised import Quantisation
from .language_model import LanguageModel, including, templates
from .languages import (
    Memory,
    check_bounds,
    go_module,
    in_one_folder,
    initial_shapes,
    ports,
    ranges,
    statuses,
    words,
)
from .mobile import abis, check_parameters, slices
from .program import Sizes, packaged
from .systems import SYSTEMS
from .variables import Benchmark, Model, PackageVariables, Tensor

#: Files of the runtime that packages do not have: they need an operating system, or verify signatures of containers.
_LEFT_OUT = ("runtime/src/pool.c", "runtime/src/host.c", "runtime/signed/")
#: The least alignment of a session's memory in bytes (MEGCC_MEMORY_ALIGN in megcc.h).
MIN_ALIGNMENT = 8
#: Upper bounds in pointers: of the size of `struct block` (export/block.c.j2), and of MEGCC_SESSION_BYTES (megcc.h).
_BLOCK_POINTERS, _SESSION_POINTERS = 80, 48
#: The path of the configuration, and the line of the first header that includes it.
_CONFIG, _INCLUDE_CONFIG = "src/megcc_config.h", '\n#include "megcc_config.h"\n'


#: The networks of MLPerf Tiny; the number of input elements tells which one it is.
_BENCHMARKS = {benchmark.elements: benchmark for benchmark in (
    Benchmark("keyword spotting", "KWS01", 49 * 10, "The runner sends the features as the network's own int8."),
    Benchmark("image classification", "IC01", 32 * 32 * 3, "The runner sends pixels from 0 to 255.", is_pixels=True),
    Benchmark("visual wake words", "VWW01", 96 * 96 * 3, "The runner sends pixels from 0 to 255.", is_pixels=True),
    Benchmark("anomaly detection", "AD01", 640, "The runner sends float32.", is_float=True))}


def package(folder: Path, system: str, version: str = "1.0.0", url: str = "",
            name: str | None = None, folder_name: str = "") -> dict[str, bytes]:
    """Returns the files of the package: name below its folder -> bytes.

    Args:
        folder: as `megcc compile --embed` writes it, for targets that the system has.
        system: one of `SYSTEMS`.
        version: version of the package, three numbers.
        url: where the package will be; registries ask for it.
        name: name of the package, by default those of the models.
        folder_name: name of the folder that the package will be in, which README.md says; by default that of the
            package.

    Raises:
        MegccError: if it is not a generated folder, was edited, is for other targets, has a separate container or
            shapes without an upper bound, or if the name, the version or the address is invalid.
    """
    package_version(version)
    web = package_address(url)
    manifest = read_manifest(folder)
    targets = _targets(folder, manifest, system)
    lm, program = LanguageModel.of(folder, manifest), packaged(folder, manifest)
    rows = [program] if program else manifest["models"]
    # Whether the weights are a file that the language includes.
    separate = bool(lm or program) and bool(SYSTEMS[system].text_only)
    sources = _sources(folder, manifest, system, rows[0] if (lm or program) else None)
    name = package_name(name or "_".join(row["name"] for row in rows), system)
    context = _context(folder, manifest["models"], rows, targets, sources, system, name, lm)
    context["embedded"] = not separate
    context |= {"version": version, "web": web, "url": bool(url), "place": printable(folder_name or name)}
    if system == "go":
        context["module"] = go_module(name, web[1].rstrip("/") if url else "")
    files = {**sources, _CONFIG: _render("config.h", context)}
    for path, template in templates(system, bool(lm), bool(program)).items():
        # A template that the package does not need, such as a cross file for this machine, prints nothing.
        if text := _render(template.removeprefix("export/").removesuffix(".j2"), context):
            files[path.replace("NAME", name)] = text
    if separate:
        files[f"{'Sources/' + name + '/' if system == 'swift' else ''}{rows[0]['name']}.megcc"] = read_container(
            folder, rows[0]["name"], targets[0])
    if system == "go":
        return in_one_folder(files)
    if system == "cmsis-pack":
        files[f"tvm_megcc.{name}.{version}.pack"] = zipped(files)
    return files


def _context(folder: Path, models: Sequence[dict], rows: Sequence[dict], targets: Sequence[Target],
             sources: Mapping[str, bytes], system: str, name: str, lm: LanguageModel | None) -> PackageVariables:
    """Returns the variables of the templates that follow from the folder. rows: the models that callers see, which are
    `models`, the networks, except that a program is one."""
    context: PackageVariables = {
        "name": name, "macro": c_name(name).upper(), "generator": f"tvm_megcc {VERSION}",
        "models": [model_view(row) for row in rows], "model": model_view(rows[0]), "lm": lm,
        "benchmark": _benchmark(folder, models) if system == "mlperf-tiny" else None,
        "targets": targets, "target": targets[0], "sources": sorted(sources),
        "profile": [flag[2:] for flag in static_profile(models, trusted_data=True, shared=SYSTEMS[system].shares,
                                                        program=rows[0].get("is_program", False))],
        "folders": sorted({str(PurePosixPath(path).parent) for path in sources if path.endswith(".c")}),
        "boards": boards_of(targets), "helium": any(target.isa.helium for target in targets)}
    if SYSTEMS[system].language:
        context |= _language(folder, models, rows, sources, system)
    if system == "android":
        if not lm:
            check_parameters(len(context["inputs"]) + len(context["outputs"])
                             + sum(port.dynamic for port in context["inputs"]))
        context |= {"abis": abis(targets), "jni": name.replace("_", "_1")}
    elif system == "swift":
        context["slices"] = slices(targets)
    return context


def package_name(name: str, system: str) -> str:
    """Checks a package's name, from which file names and identifiers of C and Kconfig are made, and returns it."""
    if name in SYSTEMS[system].reserved or (SYSTEMS[system].language and name in words(system)):
        raise MegccError(f"'{name}' is no name of a package, but a word of {system} itself: give another with --name")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,199}", name, re.ASCII):
        raise MegccError(f"'{printable(name)}' is no name of a package: small letters, digits and '_', a letter first")
    return name


def package_version(version: str) -> None:
    """Raises MegccError if a version is invalid."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}", version, re.ASCII):
        raise MegccError(f"'{printable(version)}' is no version of a package: three numbers, such as 1.0.0")


def package_address(url: str) -> tuple[str, str]:
    """Returns scheme and rest of an address; raises MegccError if it is invalid."""
    word = "[A-Za-z0-9._~:?#@!$()+,;=%-]+"
    web = re.fullmatch(f"(https?)://({word}(?:/{word})*/?)", url or "http://localhost", re.ASCII)
    if not web or len(url) > 200:
        raise MegccError(f"'{printable(url)}' is no address of a web page, such as https://example.com/network")
    return web[1], web[2]


def _targets(folder: Path, manifest: dict, system: str) -> list[Target]:
    """Returns the targets of the folder that the system has; raises MegccError if there are none."""
    targets = [TARGETS[name] for name in manifest["models"][0]["targets"]]
    if SYSTEMS[system].hosted:
        return targets
    if only := SYSTEMS[system].only:
        fitting = [target for target in targets if target.name in only]
        if not fitting:
            raise MegccError(f"{folder} is for {', '.join(map(str, targets))}, none of which {system} has: compile the "
                             f"model again, with --target {' or '.join(only)} (any of its CPUs)")
        return fitting
    fitting = [target for target in targets if target.bare_metal or target.machine == "any"]
    if not fitting:
        other = ". A folder of 'megcc compile' is a project of CMake by itself" if system == "cmake" else ""
        raise MegccError(f"{folder} is for {', '.join(map(str, targets))}, none of which is a microcontroller: compile "
                         f"the model again, with --target cortex-m4 for example, or --target c for any CPU{other}")
    return fitting


def _language(folder: Path, models: Sequence[dict], rows: Sequence[dict], sources: Mapping[str, bytes],
              language: str) -> PackageVariables:
    """Returns the variables that only templates of languages need: ports, and the memory of a session."""
    if len(rows) != 1:
        raise MegccError(f"{folder} has {len(rows)} models, of which each is a package of its own: compile them into "
                         "folders of their own")
    (row,) = rows
    inputs, outputs = ports(row, language)
    headers = {model["name"]: sources[f"src/{model['name']}.h"].decode() for model in models}
    if row.get("is_program"):
        sizes = Sizes.of(sources[f"src/{row['name']}.h"].decode(), row["name"], headers, [*inputs, *outputs])
    else:
        sizes = Sizes((Memory.of(headers[row["name"]], row["name"]),), ())
    return {"inputs": inputs, "outputs": outputs, "strings": known_strings(row),
            # lengths of a program are integers of 4 bytes, those of its inputs and outputs of 8
            "head": _BLOCK_POINTERS * len(models) + row.get("lengths", 0) + 2 * len([*inputs, *outputs]),
            "session_pointers": _SESSION_POINTERS, "statuses": statuses(),
            "align": max(row["alignment"], MIN_ALIGNMENT), "sizes": sizes}


def known_strings(row: Mapping) -> list[str] | None:
    """Returns the list of strings of a model in a manifest; None if it has no string ports."""
    return list(row["texts"]) if any(port.get("text") for port in (*row["inputs"], *row["outputs"])) else None


def _benchmark(folder: Path, models: Sequence[dict]) -> Benchmark:
    """Returns the network of MLPerf Tiny that the folder has; raises MegccError if it has another."""
    ports = [*models[0]["inputs"], *models[0]["outputs"]]
    dynamic = any(isinstance(extent, str) for port in ports for extent in port["shape"])
    found = None if dynamic else _BENCHMARKS.get(math.prod(ports[0]["shape"]))
    if found is None or len(ports) != 2 or len(models) != 1 or any(
            port["dtype"] != "int8" or "quant" not in port for port in ports):
        raise MegccError(f"{folder} is not a network of MLPerf Tiny. Those have one int8 input of "
                         + ", ".join(f"{row.elements} elements ({row.name})" for row in _BENCHMARKS.values())
                         + ", and one int8 output")
    return found


def _sources(folder: Path, manifest: dict, system: str, separate: Mapping | None) -> dict[str, bytes]:
    """Returns the C files, headers and included data by their paths in the package. separate: the language model or
    program whose container is a file of the folder; None: containers are in C files."""
    found: dict[str, bytes] = {}
    if separate and not SYSTEMS[system].text_only:
        found |= {f"src/{name}": data for name, data in including(folder, separate).items()}
    for model in () if separate else manifest["models"]:
        if f"{model['name']}_data.c" not in manifest["files"]:
            raise MegccError(f"{folder} has its model in a file, {model['name']}.megcc, but a package of {system} "
                             "needs it in the code: compile it again with --weights text")
        check_bounds(model)
        reason = SYSTEMS[system].text_only
        if reason and any(name.startswith(f"{model['name']}_data") and name.endswith(".bin")
                          for name in manifest["files"]):
            raise MegccError(f"{folder} includes its model with the assembler (.incbin), which {reason}: "
                             "compile it again with --weights text")
    for name in manifest["files"]:
        if name.endswith((".c", ".h", ".bin")) and name != "main.c" and not name.startswith(_LEFT_OUT):
            try:
                data = (folder / name).read_bytes()
            except OSError as error:
                raise MegccError(f"{folder} is damaged: {name}: {error.strerror}; compile the model again") from None
            if name == FIRST:
                data = with_settings(data, _INCLUDE_CONFIG)
            found[_path_in_package(name)] = data
    return found


def _path_in_package(name: str) -> str:
    """Returns the path in the package of a file of the generated folder: headers in one folder, C files in
    subfolders."""
    for old, new in (("runtime/include/", "src/"), ("runtime/src/", "src/runtime/")):
        if name.startswith(old):
            return new + name.removeprefix(old)
    return f"src/{name}"


def model_view(row: Mapping) -> Model:
    """Returns the view of a manifest's model for the templates."""
    macro = c_name(row["name"]).upper()
    names = [port["name"] for port in row["inputs"]]
    outputs = tuple(Tensor(index=index, dtype=port["dtype"], c_type=DTYPES[port["dtype"]].c_type,
                           is_float=np.dtype(port["dtype"]).kind == "f",
                           is_bits=bool(DTYPES[port["dtype"]].carrier), quant=_quant(port))
                    for index, port in enumerate(row["outputs"]))
    state_outputs = {state["output"] for state in row["states"]}
    # A model all of whose outputs are states shows them. A model with a KV cache, whose rows are counted, keeps its
    # states when shapes change.
    shown = tuple(out for out, port in zip(outputs, row["outputs"], strict=True) if port["name"] not in state_outputs)
    return Model(name=row["name"], macro=macro, shapes=initial_shapes(row), ranges=ranges(row),
                 keeps_states=bool(row.get("counters")), outputs=shown or outputs,
                 is_program=row.get("is_program", False), has_states=bool(row["states"] or row.get("keeps")),
                 states=tuple(names.index(state["input"]) for state in row["states"] if state["input"] in names),
                 input_quant=_quant(row["inputs"][0]) if row["inputs"] else None)


def _quant(port: Mapping) -> Quantisation | None:
    return Quantisation(port["quant"]["scale"], port["quant"]["zero_point"]) if "quant" in port else None


def _render(name: str, context: Mapping) -> bytes:
    return environment().get_template(f"export/{name}.j2").render(context).encode()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Returns the files as a reproducible ZIP archive."""
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED)
    return result.getvalue()
