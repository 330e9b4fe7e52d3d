# SPDX-License-Identifier: Apache-2.0
"""The generated folder: everything that a C compiler needs for one or more models, and the words around it.

Several models in one folder share the runtime and, by symbol, the kernels.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from ..errors import InternalError, MegccError
from ..ir.types import DTYPES
from ..version import VERSION
from . import container
from .artifact import Artifact
from .render import environment
from .symbols import identifier

MANIFEST = "manifest.json"
#: Names that an example cannot give to a variable.
C_WORDS = {"block", "memory", "model", "session", "tensor", "error", "file", "failed", "main", "i", "int", "float",
           "double", "char", "short", "long", "signed", "unsigned", "void", "const", "static", "return", "if", "else",
           "for", "while", "do", "switch", "case", "default", "break", "continue", "new", "delete", "class", "this",
           "template", "union", "struct", "enum", "register", "auto", "inline", "extern", "goto", "sizeof", "bool"}
#: Names a model cannot have: its header would stand before one of the runtime's or of C's.
HEADERS = {"megcc", "megcc_kernel", "megcc_simd", "megcc_math", "assert", "complex", "ctype", "errno", "fenv", "float",
           "inttypes", "limits", "locale", "math", "pthread", "setjmp", "signal", "stdarg", "stdbool", "stddef",
           "stdint", "stdio", "stdlib", "string", "tgmath", "threads", "time", "unistd", "wchar", "wctype", "windows"}
#: What a build puts into the folder; not ours, kept when the folder is replaced.
BUILD = "build"


def write(artifacts: Sequence[Artifact], folder: str | Path, embed: bool = False, force: bool = False) -> Path:
    """Writes the folder for these models and returns its path. It appears whole or not at all.

    Args:
        embed: the containers become constant arrays in C instead of files.
        force: replace an existing folder whatever is in it.

    Raises:
        MegccError: if something stands there that we did not make, or that was edited since.
    """
    folder = Path(folder)
    if folder.exists() and not force:
        _refuse_if_not_ours(folder)
    files = contents(artifacts, embed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new = aside / "new"
        for name, data in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if folder.exists():
            if (folder / BUILD).is_dir():
                (folder / BUILD).rename(new / BUILD)
            folder.rename(aside / "old")
        new.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def contents(artifacts: Sequence[Artifact], embed: bool = False) -> dict[str, bytes]:
    """The files of the folder: name below it -> bytes, the manifest with the hashes of all others last."""
    if len({a.name for a in artifacts}) != len(artifacts):
        raise MegccError("two models have the same name; give one another with --name")
    for artifact in artifacts:
        if artifact.name in HEADERS:
            raise MegccError(f"a model cannot be called '{artifact.name}': that is a C header; "
                             "give it another name with --name")
    texts = sources(artifacts)
    models = [_View.of(a) for a in artifacts]
    context = {"models": models, "model": models[0], "embed": embed, "version": VERSION,
               "library": "_".join(m.name for m in models), "kernels": sorted(k for k in texts if "/" in k),
               "several": len(models) > 1, "targets": list(dict.fromkeys(t for a in artifacts for t in a.targets))}
    for model in models:
        texts[f"{model.name}.h"] = _render("name.h", {**context, "model": model})
        if embed:
            texts[f"{model.name}_data.c"] = data_source(model.name, model.container)
    for name in ("main.c", "README.md", "CMakeLists.txt", "config.cmake.in", "Makefile"):
        texts[name] = _render(name, context)
    for artifact in artifacts:
        prefix = f"{artifact.name}_" if len(models) > 1 else ""
        texts[f"{prefix}report.txt"] = artifact.report
        texts[f"{prefix}memory.svg"] = artifact.memory
    files = {name: text.encode() for name, text in texts.items()}
    files |= _runtime_files()
    if not embed:
        files |= {f"{a.name}.megcc": a.container for a in artifacts}
    manifest = {"generator": f"tvm_megcc {VERSION}",
                "models": [{"name": a.name, "targets": [t.name for t in a.targets],
                            "container_bytes": len(a.container), **a.manifest} for a in artifacts],
                "files": {name: _sha256(files[name]) for name in sorted(files)}}
    return {**files, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


def data_source(name: str, container_bytes: bytes) -> str:
    """A container as C: an array of little-endian 64-bit words, zeros behind its end."""
    padded = container_bytes + bytes(-len(container_bytes) % 8)
    words = [f"0x{word:x}" for (word,) in struct.iter_unpack("<Q", padded)]
    return _render("data.c", {"name": name, "words": words, "version": VERSION})


def read_container(folder: Path, name: str) -> bytes:
    """The container of a model in a generated folder, be it a file or embedded in C."""
    path = folder / f"{name}.megcc"
    if path.exists():
        return path.read_bytes()
    size = next(m["container_bytes"] for m in read_manifest(folder)["models"] if m["name"] == name)
    source = (folder / f"{name}_data.c").read_text()
    words = re.findall(r"\b0x[0-9a-f]+\b", source[source.index("= {"):])
    return b"".join(int(word, 16).to_bytes(8, "little") for word in words)[:size]


def read_manifest(folder: Path) -> dict:
    """The manifest of a generated folder.

    Raises:
        MegccError: if the folder is none of ours.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["generator"].startswith("tvm_megcc "):
            return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise MegccError(f"{folder} was not made by 'megcc compile': it has no {MANIFEST} of ours")


def _refuse_if_not_ours(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    advice = "; choose another --output, or replace it with --force"
    try:
        recorded = read_manifest(folder)["files"]
    except MegccError as error:
        raise MegccError(f"{error}{advice}") from None
    present = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    edited = [name for name, digest in recorded.items()
              if name in present and _sha256(present[name].read_bytes()) != digest]
    added = [name for name in present
             if name not in recorded and name != MANIFEST and not name.startswith(BUILD + "/")]
    if edited or added:
        found = [f"'{name}' was edited" for name in edited] + [f"'{name}' was added" for name in added]
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise MegccError(f"{folder} has changed since it was made ({', '.join(found[:3])}{more}){advice}")


def sources(artifacts: Sequence[Artifact]) -> dict[str, str]:
    """All generated C files; `kernels.c` gets its model's name where there are several."""
    texts: dict[str, str] = {}
    for artifact in artifacts:
        for name, text in artifact.sources.items():
            if "/" not in name and len(artifacts) > 1:
                name = f"{artifact.name}_{name}"
            if name in texts and _code(texts[name]) != _code(text):
                raise InternalError(f"two models have different code in {name}")
            texts.setdefault(name, text)
    return texts


def _code(text: str) -> str:
    """A source without its first comment, which says what it was generated from."""
    return re.sub(r"^/\*.*?\*/\s*", "", text, count=1, flags=re.DOTALL)


def _runtime_files() -> dict[str, bytes]:
    root = paths.c_runtime()
    found = [*(root / "include").rglob("*.h"), *(root / "src").rglob("*.[ch]")]
    return {f"runtime/{path.relative_to(root).as_posix()}": path.read_bytes() for path in sorted(found)}


def _render(name: str, context: Mapping) -> str:
    return environment().get_template(f"bundle/{name}.j2").render(context)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class _Port:
    """An input or output as the templates see it. macro: `<MODEL>_IN_<NAME>`; state: what it is kept as or from;
    given: how an input is given that the model converts itself."""

    name: str
    macro: str
    index: int
    dtype: str
    shape: tuple
    direction: str
    state: str = ""
    given: str = ""

    @property
    def note(self) -> str:
        """What is to be said of a state or of a conversion, behind the type."""
        if self.given:
            return f", given as {self.given}; the model converts it"
        if not self.state:
            return ""
        return f", a state: {self.state} of the last run" if self.direction == "input" else f", becomes {self.state}"

    @property
    def text(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def variable(self) -> str:
        """A name for it in C."""
        return identifier(self.name) + "_"[:identifier(self.name) in C_WORDS]

    @property
    def c_type(self) -> str:
        return DTYPES[self.dtype][0]

    @property
    def size(self) -> int | None:
        """Number of elements; None if it is not known."""
        total = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            total *= dim
        return total


@dataclass(frozen=True)
class _View:
    """A model as the templates see it."""

    artifact: Artifact
    name: str
    macro: str
    inputs: tuple[_Port, ...]
    outputs: tuple[_Port, ...]

    @classmethod
    def of(cls, artifact: Artifact) -> _View:
        macro = artifact.name.upper()
        ports = {}
        states, given = artifact.manifest["states"], artifact.manifest["model"].get("inputs", {})
        partners = {"inputs": {row["input"]: row["output"] for row in states},
                    "outputs": {row["output"]: row["input"] for row in states}}
        for direction, short in (("inputs", "IN"), ("outputs", "OUT")):
            taken: set[str] = set()
            ports[direction] = tuple(
                _Port(row["name"], f"{macro}_{short}_{_unique(identifier(row['name']).upper(), taken)}", index,
                      row["dtype"], tuple(row["shape"]), direction[:-1], partners[direction].get(row["name"], ""),
                      given.get(row["name"], "") if direction == "inputs" else "")
                for index, row in enumerate(artifact.manifest[direction]))
        return cls(artifact, artifact.name, macro, ports["inputs"], ports["outputs"])

    @property
    def manifest(self) -> Mapping:
        return self.artifact.manifest

    @property
    def container(self) -> bytes:
        return self.artifact.container

    @property
    def shapes(self) -> str:
        """Shapes of the inputs that fit, as an initialiser of megcc_shape[]; empty where they never change."""
        if not any(isinstance(dim, str) for port in self.inputs for dim in port.shape):
            return ""
        least = {symbol: low for symbol, (low, _) in self.manifest["buckets"][0].items()}
        rows = (", ".join(str(least.get(dim, dim)) for dim in port.shape) for port in self.inputs)
        return ", ".join(f"{{ {len(port.shape)}, {{ {row} }} }}" for port, row in zip(self.inputs, rows, strict=True))

    @property
    def unbounded(self) -> bool:
        """Whether some shape has no limit, so that tensors are allocated while it runs."""
        return any(high is None for bucket in self.manifest["buckets"] for _, high in bucket.values())

    @property
    def ranges(self) -> list[str]:
        """The shapes it was compiled for, a text a bucket."""
        return [", ".join(f"{symbol} {low}" if low == high else f"{symbol} from {low}" + (f" to {high}" if high else "")
                          for symbol, (low, high) in bucket.items()) for bucket in self.manifest["buckets"]]

    @property
    def states(self) -> tuple[_Port, ...]:
        """The inputs that a session keeps."""
        return tuple(port for port in self.inputs if port.state)

    @property
    def given(self) -> tuple[_Port, ...]:
        """The inputs that the caller gives."""
        return tuple(port for port in self.inputs if not port.state)

    @property
    def results(self) -> tuple[_Port, ...]:
        """The outputs that the caller fetches."""
        return tuple(port for port in self.outputs if not port.state) or self.outputs

    @property
    def memory(self) -> str:
        """The bytes that a session needs, as a C expression."""
        return container.memory_expression(container.read(self.container))


def _unique(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate
