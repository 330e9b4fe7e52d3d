# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for wheel`: a generated folder as a Python package with the network compiled in, for any Linux."""

from __future__ import annotations

import base64
import hashlib
import keyword
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from ...codegen.c_source.render import environment
from ...codegen.embedding import read_container
from ...codegen.machines import static_profile
from ...codegen.manifest import read_manifest
from ...codegen.packages.base import model_view, package_version, zipped
from ...codegen.packages.language_model import LanguageModel, templates
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

#: Machines -> the platform tags of the wheel. The library needs only memcpy and similar functions of the C library, in
#: any version, so it works with the oldest glibc and with musl.
_TAGS = {"x86_64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
         "aarch64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
         "arm": "manylinux_2_17_armv7l.manylinux2014_armv7l.musllinux_1_1_armv7l",
         "riscv64": "manylinux_2_31_riscv64.linux_riscv64"}
#: The least alignment of a session's memory in bytes: a cache line, so that its vectors do not cross two lines.
CACHE_LINE = 64
#: The default target of a package, on the machine that we run on.
TARGETS_OF = {"x86_64": "x86-64,x86-64-v3,x86-64-v4", "aarch64": "arm64,arm64-v82"}


class WheelVariables(TypedDict):
    """The context of export/wheel.c.j2 and of the templates in `templates/export/wheel/` and
    `templates/export/language_model/wheel/`, which `package` renders.

    package: name of the Python package and of its module.
    version: version of the package, three numbers such as "1.0.0".
    file: name of the wheel, such as "resnet-1.0.0-py3-none-manylinux_2_17_x86_64….whl".
    generator: name and version of the compiler, such as "tvm_megcc 1.4.0".
    targets: the names of the CPUs that the package has kernels for, such as "x86-64-v3".
    model: the only model.
    lm: the language model that it is; None: it is another network.
    inputs: the inputs of the model in their order, states included.
    outputs: the outputs of the model in their order, states included.
    embedded: false, since the weights are a file of their own in the package.
    align: the alignment of the memory of a session, in bytes.
    statuses: status of the C runtime -> its error text.
    """

    package: str
    version: str
    file: str
    generator: str
    targets: Sequence[str]
    model: Model
    lm: LanguageModel | None
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    embedded: bool
    align: int
    statuses: Mapping[int, str]


def package(folder: Path, name: str | None = None, version: str = "1.0.0", cc: str | None = None) -> dict[str, bytes]:
    """Returns the wheel, and a README.md.

    Args:
        folder: as `megcc compile` writes it, for levels of one machine that runs Linux.
        name: name of the package and its module, by default the model's.
        cc: the compiler, by default one that is found.

    Raises:
        MegccError: if the folder is not for exactly one of these machines; if it has several models, or shapes without
            an upper bound; if the name or the version is invalid.
        ToolError: if there is no compiler, or it fails.
    """
    manifest = read_manifest(folder)
    program = packaged(folder, manifest)
    row = program or model_of(manifest, None, folder)
    targets = [TARGETS[target] for target in row["targets"]]
    machines = {target.machine for target in targets if target.machine != "any"}
    if len(machines) != 1 or not machines <= set(_TAGS):
        raise MegccError(f"{folder} is for {', '.join(row['targets'])}, but a wheel is for levels of one machine that "
                         f"runs Linux: {', '.join(_TAGS)}. Compile for one, such as --target x86-64,x86-64-v3; each "
                         "machine has a wheel of its own")
    package_version(version)
    name = name or row["name"]
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,199}", name, re.ASCII) or keyword.iskeyword(name) \
            or name in sys.stdlib_module_names | {"numpy"}:
        raise MegccError(f"'{printable(name)}' is no name of a Python package of its own: give another with --name")
    inputs, outputs = ports(row)
    for port in (*inputs, *outputs):
        try:
            np.dtype(port.dtype)
        except TypeError:
            raise MegccError(f"'{printable(port.name)}' is {port.dtype}, which numpy does not have") from None
    (machine,) = machines
    file = f"{name}-{version}-py3-none-{_TAGS[machine]}.whl"
    context: WheelVariables = {
        "statuses": statuses(), "generator": f"tvm_megcc {VERSION}", "package": name, "version": version, "file": file,
        "model": model_view(row), "inputs": inputs, "outputs": outputs, "embedded": False,
        "align": max(row["alignment"], CACHE_LINE), "targets": row["targets"],
        "lm": LanguageModel.of(folder, manifest)}
    chosen = next(target for target in targets if target.machine == machine)
    info = f"{name}-{version}.dist-info"
    written = {path: environment().get_template(template).render(context).encode()
               for path, template in templates("wheel", bool(context["lm"]), bool(program)).items()}
    shim = environment().get_template("export/wheel.c.j2").render(context)
    files = {f"{name}/__init__.py": written["__init__.py"], f"{name}/py.typed": b"",
             f"{name}/network.megcc": read_container(folder, row["name"], chosen),
             f"{name}/_network.so": _library(folder, manifest, chosen, cc, shim),
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tvm_megcc {VERSION}\nRoot-Is-Purelib: false\n".encode()
             + b"".join(f"Tag: py3-none-{tag}\n".encode() for tag in _TAGS[machine].split(".")),
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: The "
                                 f"{context['model'].noun} {row['name']}, compiled\nRequires-Python: >=3.9\n"
                                 "Requires-Dist: numpy\n".encode()}
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    return {file: zipped(files), "README.md": written["README.md"]}


def _library(folder: Path, manifest: Mapping, target: Target, cc: str | None, source: str) -> bytes:
    """Compiles the folder's C code and `source` to a shared library. It does not link a C library, since the loading
    process has one."""
    with building_in(folder), tempfile.TemporaryDirectory() as aside:
        compiler = find_compiler(target, cc)
        shim = Path(aside) / "wheel.c"
        shim.write_text(source)
        objects = Objects(folder, folder / "build" / target.name / "wheel", compiler)
        # The container is a separate file next to the library, and as trusted as the library: `trusted_data` leaves out
        # the checks of its structure.
        data = {f"{model['name']}_data.c" for model in manifest["models"]}
        sources = [path for path in c_sources(folder) if path.name not in data]
        profile_flags = static_profile(manifest["models"], trusted_data=True, program="program" in manifest)
        compiled = objects.compile_all([*sources, shim], (*CFLAGS, *target.cflags, *profile_flags, "-fPIC"))
        output = Path(aside) / "network.so"
        link(compiler, ("-shared", "-nostdlib", "-Wl,--gc-sections", "-s", *target.cflags), compiled, output)
        return output.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
