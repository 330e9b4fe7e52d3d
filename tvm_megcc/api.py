# SPDX-License-Identifier: Apache-2.0
"""What `tvm_megcc` offers to Python: compile a model, load what was compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .codegen.artifact import Artifact
from .codegen.tuning_log import TuningLog
from .compiler import Dump, compile_graph, model_facts
from .errors import MegccError
from .target import Target, parse_targets

if TYPE_CHECKING:
    import onnx

    from .runtime.session import Session

Shapes = Mapping[str, Sequence[int]]


def compile(model: str | Path | bytes | onnx.ModelProto, target: str | Target | Sequence[Target] = "native", *,
            input_shapes: str | Shapes | None = None, optimize: str = "speed", name: str = "", threads: int = 1,
            keep_inputs: bool = False, output_names: Sequence[str] | None = None, log: str | Path | None = None,
            dump: str | Path | None = None) -> Artifact:
    """Compiles an ONNX model ahead of time.

    Args:
        model: path of an ONNX file, its bytes, or a `ModelProto`.
        target: names as `megcc list targets` shows them, separated by commas ("native,arm64").
        input_shapes: for inputs with dimensions that the model leaves open: a dictionary, or text such as
            "data=(1,3,224,224)" or "data:[1,3,224,224]", several inputs separated by ";".
        optimize: "speed" prints known extents as constants; "size" shares kernels between layers.
        name: prefix of everything that is generated; default is the file's name.
        threads: workers that workspace is planned for.
        keep_inputs: inputs in the arena keep their values during a run.
        output_names: compile only what these values need.
        log: tuning log (`megcc tune`): kernels are chosen by the times in it.
        dump: folder that gets every stage as text.

    Returns:
        The artifact; `.save(folder)` writes the generated folder.

    Raises:
        MegccError: saying what of the model cannot be compiled, where, and what to do.
    """
    from .frontends.onnx import import_onnx

    measured = TuningLog.read(log) if log else None
    shapes = parse_shapes(input_shapes) if isinstance(input_shapes, str) else input_shapes
    graph = import_onnx(model, input_shapes=dict(shapes or {}), output_names=output_names)
    path = Path(model) if isinstance(model, (str, Path)) else None
    if isinstance(target, Target):
        targets: tuple[Target, ...] = (target,)
    else:
        targets = parse_targets(target) if isinstance(target, str) else tuple(target)
    return compile_graph(graph, targets, optimize=optimize, threads=threads, keep_inputs=keep_inputs,
                         name=name or (path.stem if path else graph.name), log=measured,
                         model=model_facts(path) if path else {}, **({"dump": dump_into(dump)} if dump else {}))


def load(path: str | Path, target: str = "native") -> Session:
    """A session on a generated folder; builds it first where that has not been done."""
    from .runtime.session import load as load_session

    return load_session(path, target)


def dump_into(folder: str | Path) -> Dump:
    """A dump that writes `<folder>/<stage>.txt`, and pictures under their own names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def dump(stage: str, text: str) -> None:
        (folder / (stage if stage.endswith(".svg") else f"{stage}.txt")).write_text(text)

    return dump


_SHAPE = re.compile(r"\s*(?P<name>.+?)\s*(?:=\s*\((?P<round>[^()]*)\)|:\s*\[(?P<square>[^\[\]]*)\])\s*")


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """`"data=(1,3,224,224);ids:[1,128]"` as a dictionary.

    Raises:
        MegccError: showing the part that is no shape.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _SHAPE.fullmatch(part)
        dims = (match["round"] if match["round"] is not None else match["square"]) if match else ""
        try:
            shapes[match["name"]] = tuple(int(d) for d in filter(None, (d.strip() for d in dims.split(","))))
        except (TypeError, ValueError):
            raise MegccError(f"input shape '{part}': expected NAME=(1,3,224,224) or NAME:[1,3,224,224]") from None
    return shapes
