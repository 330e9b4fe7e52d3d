# SPDX-License-Identifier: Apache-2.0
"""Writes the generated folder: everything that a C compiler needs for one or more models, and its documentation.

Several models in one folder share the runtime and, by symbol, the kernels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np

from .. import folders, paths
from ..context import Regions
from ..errors import InternalError, MegccError, refused_by_system
from ..foreign import c_name, identifier, printable
from ..ir.types import DTYPES
from ..target import Target
from ..version import VERSION
from . import container
from .c_source.render import environment
from .compiled import Compiled
from .container import Image
from .device_model import part_of
from .embedding import AUTO, AUTO_TEXT_BYTES, INCBIN, TEXT, MemoryRegion, data_source, including_source, part_files
from .headers import HEADER, kernels_header, without_unneeded
from .machines import by_machine, machines, make_commands, static_profile
from .manifest import BUILD, MANIFEST, read_manifest
from .quantised import Quantisation
from .safety import is_safe, with_switches
from .strings import strings_context

#: Names, without `.h`, of headers of C and POSIX, and of headers that C libraries include from these.
_HEADERS = frozenset(
    "alloca assert availability complex ctype dlfcn endian errno fcntl features fenv float inttypes iso646 limits "
    "locale math newlib pthread reent runetype sched setjmp signal stdalign stdarg stdatomic stdbool stddef stdint "
    "stdio stdlib stdnoreturn string strings syslimits tgmath threads time uchar unistd wchar wctype windows xlocale "
    "arm_acle arm_bf16 arm_fp16 arm_mve arm_neon arm_sve cpuid intrin mm_malloc riscv_vector wasm_simd128 "
    "megcc_cv".split())
#: The ends of macros that an input or output has besides that of its index, such as RESNET_IN_X_SCALE; in lower case.
MACRO_SUFFIXES = ("_elements", "_scale", "_zero_point")


@dataclass(frozen=True)
class Program:
    """A program that the folder has instead of the example.

    name: the name of the executable.
    sources: its files by their names in the folder, among them main.c, and further files that it needs.
    container: the containers of all models in one file, NAME.megcc; empty: each model has a file of its own.
    facts: the facts about a program of several networks, for the manifest.
    """

    name: str
    sources: Mapping[str, bytes]
    container: bytes = b""
    facts: Mapping | None = None


def write(artifacts: Sequence[Compiled], folder: str | Path, embed: bool | str = False, force: bool = False,
          others: Mapping[str, bytes] | None = None, program: Program | None = None) -> Path:
    """Writes the folder for these models and returns its path. It appears whole or not at all (`folders.replace`).

    Args:
        embed: the containers become constant arrays in C instead of files that a program opens: `TEXT` (or True),
            `INCBIN`, or `AUTO`.
        force: replace an existing folder whatever it contains.
        others: further files of the folder, by their names in it. A folder with such files is not replaced by one
            without them.
        program: the program that is built instead of the example that runs the first model.

    Raises:
        MegccError: if the path exists and is not a folder of ours or was edited, or cannot be written; for another
            value of `embed`; as `folders.refuse_precious`, even with `force`.
    """
    folder = Path(folder)
    folders.refuse_precious(folder)
    try:
        if not force:
            require_replaceable(folder, others or {})
        folders.replace(folder, contents(artifacts, embed, others, program), keep=BUILD)
    except OSError as error:
        raise refused_by_system(error, f"{folder} cannot be written") from None
    return folder


def require_replaceable(folder: Path, others: Iterable[str] = ()) -> None:
    """Raises MegccError if the path exists and is not a folder of ours, was edited, or has files besides those of
    models that are not among `others`; OSError if it cannot be read."""
    if folder.exists():
        with folders.locked(folder):  # so that manifest and files belong together
            _refuse_if_not_ours(folder, others)


def is_header(name: str) -> bool:
    """Whether `NAME.h` would shadow a header of C or of the runtime, so that neither a model nor a program has the
    name."""
    return name in _HEADERS or name.endswith("intrin") or (paths.c_runtime() / "include" / f"{name}.h").exists()


def _require_valid(artifacts: Sequence[Compiled], embed: bool | str) -> None:
    """Raises MegccError for names of models that collide with each other or with a C header, for an unknown value of
    `embed`, and for weights too large to embed."""
    if embed not in (False, True, TEXT, INCBIN, AUTO):
        raise MegccError(f"'{printable(embed)}' is no way to embed a model: {TEXT}, {INCBIN} or {AUTO}")
    if len({a.name for a in artifacts}) != len(artifacts):
        raise MegccError("two models have the same name; give one another with --name")
    for artifact in artifacts:
        if any(f"{other.name}_strings" == artifact.name for other in artifacts):
            raise MegccError(f"'{artifact.name}.h' declares the strings of another model; give the model another name "
                             "with --name")
        if is_header(artifact.name):
            raise MegccError(f"a model cannot be called '{artifact.name}': that is a C header; "
                             "give it another name with --name")
        if embed and container.is_large(artifact.image.model.weights):
            raise MegccError(f"{artifact.name} has {len(artifact.image.model.weights):,} bytes of weights, too many "
                             "for an array in C; leave out --embed")


def _is_safe(artifacts: Sequence[Compiled], program: Program | None) -> bool:
    """Returns whether the folder has the safety profile. Raises MegccError if only a part of it would have it."""
    safe = {is_safe(artifact.manifest) for artifact in artifacts}
    if len(safe) > 1:
        raise MegccError("the models of a folder share a runtime: give all of them the same --profile")
    if safe == {True} and program:
        raise MegccError(f"{program.name}: a program has no safety profile; compile its networks one by one")
    return safe == {True}


def contents(artifacts: Sequence[Compiled], embed: bool | str = False, others: Mapping[str, bytes] | None = None,
             program: Program | None = None) -> dict[str, bytes | Image]:
    """Returns the files of the folder: name -> bytes, with containers in pieces. The last one is the manifest, which
    has the hashes of all others."""
    _require_valid(artifacts, embed)
    if program and is_header(program.name):
        raise MegccError(f"a program cannot be called '{program.name}': that is a C header; give it another name")
    safe = _is_safe(artifacts, program)
    embed = embed or (TEXT if safe else False)
    written = sources(artifacts)
    models = [_ModelView.of(a) for a in artifacts]
    if embed == AUTO:
        embed = INCBIN if sum(len(part) for model in models for part in model.parts) > AUTO_TEXT_BYTES else TEXT
    targets = list(dict.fromkeys(t for a in artifacts for t in a.targets))
    profile_flags = static_profile((model.manifest for model in models), embed)
    context: FolderVariables = {
        "models": models, "model": models[0], "embed": embed, "incbin": embed == INCBIN, "version": VERSION,
        "library": identifier("_".join(m.name for m in models)), "program": program.name if program else "main",
        "several": len(models) > 1, "targets": targets, "makes": make_commands(targets, profile_flags),
        "profile_flags": profile_flags, "hosted": not all(target.bare_metal for target in targets)}
    for model in models:
        written |= _model_sources(model, context)
    for name in ("main.c", "README.md", "CMakeLists.txt", "config.cmake.in", "Makefile"):
        written[name] = _render(name, context)
    for artifact in artifacts:
        prefix = f"{artifact.name}_" if len(models) > 1 else ""
        written[f"{prefix}report.txt"] = artifact.report
        written[f"{prefix}memory.svg"] = artifact.memory
    files = {name: text.encode() for name, text in written.items()}
    files |= (program.sources if program else {}) | (others or {})
    runtime = _runtime_files()
    if safe:
        runtime = with_switches(runtime, [artifact.manifest for artifact in artifacts])
    files = without_unneeded(files | runtime, {target.isa for target in targets})
    if program and program.container:
        files[f"{program.name}.megcc"] = program.container
    elif not embed:
        files |= {f"{a.name}.megcc": a.image for a in artifacts}
    elif embed == INCBIN:
        files |= {name: part for model in models for name, part in zip(part_files(model.name, len(model.parts)),
                                                                       model.parts, strict=True)}
    manifest = {"generator": f"tvm_megcc {VERSION}",
                "models": [{"name": m.name, "targets": [t.name for t in m.artifact.targets],
                            "container_bytes": len(m.image),
                            **({"embedded_bytes": list(map(len, m.parts))} if embed else {}), **m.manifest}
                           for m in models],
                **({"program": program.facts} if program and program.facts else {}),
                **({"others": sorted(others)} if others else {}),
                "files": {name: sha256(files[name]) for name in sorted(files)}}
    return {**files, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


def _model_sources(model: _ModelView, context: FolderVariables) -> dict[str, str]:
    """Returns the header of a model and, if its container is part of the program, the file that has its bytes."""
    written = {f"{model.name}.h": _render("name.h", {**context, "model": model})}
    if known := model.manifest.get("texts"):
        written[f"{model.name}_strings.h"] = _render("strings.h", strings_context(model.name, known))
    if context["incbin"]:
        written[f"{model.name}_data.c"] = including_source(model.name, model.artifact.targets, model.parts,
                                                         model.regions)
    elif context["embed"]:
        written[f"{model.name}_data.c"] = data_source(
            model.name, model.artifact.targets, model.parts, declared=True, regions=model.regions)
    return written


def port_macros(artifact: Compiled) -> tuple[list[str], list[str]]:
    """Returns the macros of the model's header with the indices of its inputs, and of its outputs."""
    view = _ModelView.of(artifact)
    return [port.macro for port in view.inputs], [port.macro for port in view.outputs]


def _refuse_if_not_ours(folder: Path, others: Iterable[str]) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    advice = "; choose another --output, or replace it with --force"
    try:
        manifest = read_manifest(folder)
        recorded = manifest["files"]
    except MegccError as error:
        raise MegccError(f"{error}{advice}") from None
    lost = [name for name in manifest.get("others", ()) if name not in others]
    if lost:
        raise MegccError(f"{folder} is of another command: this one does not write its {', '.join(lost)}{advice}")
    present = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    edited = [name for name, digest in recorded.items()
              if name in present and folders.sha256(present[name]) != digest]
    added = [name for name in present
             if name not in recorded and name != MANIFEST and not name.startswith(BUILD + "/")]
    if edited or added:
        found = [f"'{name}' was edited" for name in edited] + [f"'{name}' was added" for name in added]
        further = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise MegccError(f"{folder} has changed since it was made ({', '.join(found[:3])}{further}){advice}")


def sources(artifacts: Sequence[Compiled]) -> dict[str, str]:
    """Returns all generated C files and the header of their kernels. If there are several models, each `kernels.c` gets
    its model's name."""
    written: dict[str, str] = {}
    for artifact in artifacts:
        for name, text in artifact.sources.items():
            if "/" not in name and len(artifacts) > 1:
                name = f"{artifact.name}_{name}"
            if name in written and _code(written[name]) != _code(text):
                raise InternalError(f"two models have different code in {name}")
            written.setdefault(name, text)
    calls = [call for artifact in artifacts for row in artifact.manifest["programs"] for call in row["calls"]]
    return {**written, HEADER: kernels_header(call["kernel"] for call in calls)}


def _code(text: str) -> str:
    """Returns a source without its first comment, which names its origins, to compare sources."""
    return re.sub(r"^/\*.*?\*/\s*", "", text, count=1, flags=re.DOTALL)


def _runtime_files() -> dict[str, bytes]:
    root = paths.c_runtime()
    found = [*(root / "include").rglob("*.h"), *(root / "src").rglob("*.[ch]"), *(root / "signed").glob("*.[ch]"),
             *(root / "signed" / "monocypher").iterdir()]
    return {f"runtime/{path.relative_to(root).as_posix()}": path.read_bytes() for path in sorted(found)}


def _render(name: str, context: Mapping) -> str:
    return environment().get_template(f"bundle/{name}.j2").render(context)


def sha256(data: bytes | Image) -> str:
    """Returns the digest of a file of `contents`, in hexadecimal digits."""
    digest = hashlib.sha256()
    for piece in folders.pieces(data):
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Port:
    """An input or output as the templates see it, with printable strings.

    name: its name in the model.
    macro: the macro with its index, `<MODEL>_IN_<NAME>` or `<MODEL>_OUT_<NAME>`.
    variable: its name in C, `in_<name>` or `out_<name>`.
    index: its number among the inputs, or among the outputs.
    dtype: its type, such as "float32".
    shape: its extents; a text is the name of one that changes from run to run.
    least: its smallest shape.
    direction: "input" or "output".
    quant: its scale and zero point; None: it is not quantised.
    state: of a state's input, the output that it comes from; of a state's output, the input that it becomes.
    caller_format: the type and layout in which the caller gives an input that the model converts.
    strings: of a port of strings, the header with the table that its numbers index, or that there is none.
    """

    name: str
    macro: str
    variable: str
    index: int
    dtype: str
    shape: tuple
    least: tuple[int, ...]
    direction: str
    state: str = ""
    caller_format: str = ""
    quant: Quantisation | None = None
    strings: str = ""

    @property
    def note(self) -> str:
        """The remark after the type: on quantisation, a state or a conversion; "" if there is none."""
        if self.strings:
            return f", indices of strings: {self.strings}"
        text = f", real = {np.float32(self.quant.scale)} * (x - {self.quant.zero_point})" if self.quant else ""
        if self.caller_format:
            return f"{text}, given as {self.caller_format}; the model converts it"
        if not self.state:
            return text
        return text + (f", a state: {self.state} of the last run" if self.direction == "input"
                       else f", becomes {self.state}")

    @property
    def scale(self) -> str:
        """The scale of a quantised port, as a C literal."""
        return f"{np.float32(self.quant.scale)}f"

    @property
    def text(self) -> str:
        """Its type for comments and README.md, such as `float32[1,3,N]`."""
        return f"{self.dtype}[{','.join(map(printable, self.shape))}]"

    @property
    def c_type(self) -> str:
        """C's type of an element, such as `float`; of float16 an integer with the same bits."""
        return DTYPES[self.dtype].c_type

    @property
    def is_bits(self) -> bool:
        """Whether C has no numbers of the type, such as float16."""
        return bool(DTYPES[self.dtype].carrier)

    @property
    def size(self) -> int | None:
        """Number of elements; None if it is not known."""
        total = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            total *= dim
        return total


class FolderVariables(TypedDict):
    """The context of the templates in `templates/bundle/` that `contents` renders for a generated folder.

    version: version of tvm_megcc, such as "1.4.0".
    models: the models of the folder.
    model: the first model; in `<model>.h` the model of the header.
    several: whether there are several models.
    library: name of the C library, the models' names with "_" between them.
    program: name of the program that `main.c` becomes; "main" for a folder of models only.
    embed: how containers are embedded in C: as text ("text" or true) or as files that the assembler includes
        ("incbin"); false: they are files that the program opens, `<model>.megcc`.
    incbin: whether the assembler or the compiler includes the containers.
    targets: the CPUs that the folder has kernels for; each prints as its name, such as "cortex-m4".
    makes: (`make` command, its purpose in words) for each machine.
    profile_flags: the flags of the static profile, which leave out parts of the runtime, such as "-DMEGCC_NO_STDIO".
    hosted: whether some target has an operating system.
    """

    version: str
    models: Sequence[_ModelView]
    model: _ModelView
    several: bool
    library: str
    program: str
    embed: bool | str
    incbin: bool
    targets: Sequence[Target]
    makes: Sequence[tuple[str, str]]
    profile_flags: Sequence[str]
    hosted: bool


@dataclass(frozen=True)
class _ModelView:
    """A model as the templates see it.

    artifact: the compiled model.
    name: a C identifier, such as "resnet": the prefix of its functions and of its header `resnet.h`.
    macro: the prefix of its macros, such as "RESNET".
    inputs: all inputs in their order, states included.
    outputs: all outputs in their order, states included.
    """

    artifact: Compiled
    name: str
    macro: str
    inputs: tuple[_Port, ...]
    outputs: tuple[_Port, ...]

    @classmethod
    def of(cls, artifact: Compiled) -> _ModelView:
        states = artifact.manifest["states"]
        inputs = _ports(artifact, "inputs", {row["input"]: row["output"] for row in states},
                        artifact.manifest["model"].get("inputs", {}))
        outputs = _ports(artifact, "outputs", {row["output"]: row["input"] for row in states}, {})
        return cls(artifact, artifact.name, c_name(artifact.name).upper(), inputs, outputs)

    @property
    def manifest(self) -> Mapping:
        return self.artifact.manifest

    @property
    def alignment(self) -> int:
        """The alignment of the container and of a session's memory, in bytes."""
        return int(self.manifest["alignment"])

    @property
    def regions_option(self) -> str:
        """The value of the option --region, such as `dtcm=64K,sram=256K`."""
        return str(self.manifest["options"]["regions"])

    @property
    def image(self) -> Image:
        return self.artifact.image

    @property
    def shapes(self) -> str:
        """The smallest shapes of the inputs, as an initialiser of megcc_shape[]; empty if shapes are static."""
        if not any(isinstance(dim, str) for port in self.inputs for dim in port.shape):
            return ""
        rows = (", ".join(map(str, port.least)) or "0" for port in self.inputs)
        return ", ".join(f"{{ {len(port.shape)}, {{ {row} }} }}" for port, row in zip(self.inputs, rows, strict=True))

    @property
    def unbounded(self) -> bool:
        """Whether some extent has no limit, so that tensors are allocated during a run."""
        return any(high is None for bucket in self.manifest["buckets"] for _, high in bucket.values())

    @property
    def ranges(self) -> list[str]:
        """The shapes that the model was compiled for, a text for each bucket."""
        return [", ".join(f"{printable(symbol)} {low}" if low == high else
                          f"{printable(symbol)} from {low}" + (f" to {high}" if high else "")
                          for symbol, (low, high) in bucket.items()) for bucket in self.manifest["buckets"]]

    @property
    def caller_inputs(self) -> bool:
        """Whether inputs must be bound to the caller's memory."""
        return self.manifest["options"].get("caller_inputs", False)

    @property
    def states(self) -> tuple[_Port, ...]:
        """The inputs that a session keeps from run to run."""
        return tuple(port for port in self.inputs if port.state)

    @property
    def given(self) -> tuple[_Port, ...]:
        """The inputs that the caller gives."""
        return tuple(port for port in self.inputs if not port.state)

    @property
    def results(self) -> tuple[_Port, ...]:
        """The outputs that the caller fetches."""
        return tuple(port for port in self.outputs if not port.state) or self.outputs

    @cached_property
    def parts(self) -> tuple[bytes, ...]:
        """The containers for each machine that the model can be built for."""
        return tuple(bytes(Image(part_of(self.image.model, machine.codes)))
                     for machine in machines(self.artifact.targets))

    @property
    def memory(self) -> str:
        """C that defines the macro with the bytes that a session needs."""
        model = self.image.model
        return self._macro("MEMORY_BYTES", [
            container.memory_expression(replace(model, programs=tuple(
                row for row in model.programs if row.isa in machine.codes)))
            for machine in machines(self.artifact.targets)])

    @property
    def regions(self) -> tuple[MemoryRegion, ...]:
        """The regions of memory, if there are several or one has a name."""
        if "regions" not in self.manifest["options"]:
            return ()
        model, found = self.image.model, machines(self.artifact.targets)
        names = [name for name, _ in Regions.parse(self.manifest["options"]["regions"]).ram]
        blocks = [[max(row.device_models[0].regions[index] for row in model.programs if row.isa in machine.codes)
                   for machine in found] for index in range(len(names))]
        # The header gives the size of the first region as MEMORY_BYTES, so `bytes` only says that there is one.
        return tuple(MemoryRegion(name, max(sizes) if index else 1, self._macro(f"MEMORY_BYTES_{name.upper()}", [
            f"{size}u" for size in sizes])) for index, (name, sizes) in enumerate(zip(names, blocks, strict=True)))

    @property
    def container_size(self) -> str:
        """C that defines the macro with the size of the container's file."""
        return self._macro("CONTAINER_BYTES", [f"{len(self.image)}u"])

    @property
    def embedded_size(self) -> str:
        """C that defines the macro with the size of the embedded container."""
        return self._macro("CONTAINER_BYTES", [f"{len(part)}u" for part in self.parts])

    def _macro(self, what: str, values: Sequence[str]) -> str:
        return by_machine(self.artifact.targets, [f"#define {self.macro}_{what} {value}" for value in values])


def _ports(artifact: Compiled, direction: str, partners: Mapping[str, str],
           caller_formats: Mapping[str, str]) -> tuple[_Port, ...]:
    """Returns the inputs or outputs of a model, in their order.

    Args:
        direction: "inputs" or "outputs".
        partners: the input of a state -> its output; of outputs the reverse.
        caller_formats: name -> `_Port.caller_format`.
    """
    prefix = {"inputs": "in", "outputs": "out"}[direction]
    model = c_name(artifact.name).upper()
    taken: set[str] = set()
    ports = []
    for index, row in enumerate(artifact.manifest[direction]):
        name, word = row["name"], _unique(identifier(row["name"]), taken)
        ports.append(_Port(
            name=printable(name), macro=f"{model}_{prefix.upper()}_{word.upper()}", variable=f"{prefix}_{word}",
            index=index, dtype=row["dtype"], shape=tuple(row["shape"]), least=tuple(row.get("least", row["shape"])),
            direction=direction[:-1], state=printable(partners[name]) if partners.get(name) else "",
            caller_format=printable(caller_formats[name]) if caller_formats.get(name) else "",
            quant=Quantisation(**row["quant"]) if "quant" in row else None,
            strings=_strings_of(artifact) if row.get("text") else ""))
    return tuple(ports)


def _strings_of(artifact: Compiled) -> str:
    """Returns `_Port.strings`. A model whose inputs are strings need not compare them with any that it knows."""
    return f"{artifact.name}_strings.h" if artifact.manifest["texts"] else "the model knows none"


def _unique(name: str, taken: set[str]) -> str:
    """Returns a name that is not taken, neither itself nor with a suffix of `MACRO_SUFFIXES`."""
    candidate, count = name, 1
    while not taken.isdisjoint(spellings := {candidate + ending for ending in ("", *MACRO_SUFFIXES)}):
        count += 1
        candidate = f"{name}_{count}"
    taken |= spellings
    return candidate
