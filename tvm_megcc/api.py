# SPDX-License-Identifier: Apache-2.0
"""The functions that `tvm_megcc` offers to Python: compile a model, load a compiled one."""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import folders
from .errors import MegccWarning
from .target import Target, parse_targets

if TYPE_CHECKING:
    import onnx
    from typing_extensions import Unpack

    from .codegen.artifact import Artifact
    from .compiler import Dump
    from .frontends._tvm import Module
    from .ir.graph import Graph
    from .options import CompileKeywords, CompileOptions
    from .passes.canonicalize.preprocess import Input
    from .runtime.session import Session

logger = logging.getLogger(__name__)


def compile(model: str | Path | bytes | onnx.ModelProto | Module | object,
            target: str | Target | Sequence[str | Target] = "native", options: CompileOptions | None = None, *,
            params: Mapping[str, object] | None = None, example_inputs: object = None, name: str = "",
            dump: str | Path | None = None, **changes: Unpack[CompileKeywords]) -> Artifact:
    """Compiles a model ahead of time.

    Args:
        model: the path of an ONNX file, its bytes, or a `ModelProto`; the path of a TFLite file (.tflite); a Relax or
            Relay module of TVM; a program of torch.export, or the path of a saved one (.pt2), which TVM's importer
            reads, or which is converted to ONNX; the result of torch.onnx.export(…, dynamo=True); or a module of
            PyTorch with `example_inputs`.
        target: names as `megcc list targets` shows them, separated by commas ("native,arm64"), or a list of them.
        options: how it is compiled; by default as `CompileOptions()` says.
        params: weights of a module of TVM, as its importers give them.
        example_inputs: what a module of PyTorch is called with when it is exported: a tuple, a dictionary, a tensor.
        name: prefix of everything that is generated; default is the file's name.
        dump: folder that gets every stage as text.
        changes: options by name, in place of those in `options`: `compile(model, dims={"batch": 1}, threads=2)`.
            `help(tvm_megcc.CompileOptions)` lists them.

    Returns:
        The artifact; `.save(folder)` writes the generated folder.

    Raises:
        MegccError: for a model that cannot be compiled; the message names its operators and says what to do.
    """
    from .options import CompileOptions

    return compile_changed(model, target, CompileOptions.of(options, changes), lambda graph: graph, params=params,
                           example_inputs=example_inputs, name=name, dump=dump)


def compile_changed(model: str | Path | bytes | onnx.ModelProto | Module | object,
                    target: str | Target | Sequence[str | Target], options: CompileOptions,
                    change: Callable[[Graph], Graph], *, params: Mapping[str, object] | None = None,
                    example_inputs: object = None, name: str = "", dump: str | Path | None = None) -> Artifact:
    """Compiles a model as `compile` does, after `change` of the imported graph."""
    from .compiler import compile_graph
    from .frontends.contents import is_tflite
    from .frontends.models import import_model
    from .frontends.onnx.load import LoadedModel
    from .frontends.torch_models import to_onnx_if_torch
    from .passes.canonicalize.preprocess import convert_inputs

    model = to_onnx_if_torch(model, example_inputs)
    graph, buckets = import_model(model, options, params=params)
    if is_tflite(model):
        _note_restarts(model, graph, options.signature)
    graph = convert_inputs(change(graph), options.inputs)
    path = model.file if isinstance(model, LoadedModel) else Path(model) if isinstance(model, (str, Path)) else None
    targets = _targets((target,) if isinstance(target, (str, Target)) else tuple(target))
    if options.half and not any(item.isa.float16_isa for item in targets):
        warnings.warn(f"--half changes nothing: {', '.join(item.name for item in targets)} has no vectors of half "
                      "precision (docs/half.md)", MegccWarning, stacklevel=2)
    return compile_graph(graph, targets, options, name=name or (path.stem if path else graph.name), buckets=buckets,
                         model={**(_model_facts(path) if path else {}), **_input_facts(options.inputs)},
                         **({"dump": dump_into(dump)} if dump else {}))


def _targets(given: Sequence[str | Target]) -> tuple[Target, ...]:
    """Returns targets; if some are given by name, all are parsed, which sorts them."""
    if all(isinstance(target, Target) for target in given):
        return tuple(given)
    return parse_targets(",".join(map(str, given)))


def _input_facts(inputs: Mapping[str, Input]) -> dict[str, object]:
    """Describes the formats of inputs that the caller chose, for the manifest."""
    return {"inputs": {name: str(given) for name, given in inputs.items()}} if inputs else {}


def _note_restarts(model: str | Path, graph: Graph, signature: str) -> None:
    """Warns of recurrent layers of a TFLite file whose states are reset in every run."""
    from .frontends.tflite import states_not_kept

    # A state without a name cannot be given to --state.
    names = [name for name in states_not_kept(model, graph.inputs, signature) if name]
    if names:
        shown = " ".join(f"--state {shlex.quote(f'{name}.next={name}')}" for name in names[:4])
        others = f", and {len(names) - 4} more" if len(names) > 4 else ""
        logger.warning("%s: recurrent layers begin every run with states of zeros. To go on where the last run "
                       "ended: %s%s (docs/other-models.md)", Path(model).name, shown, others)


def _model_facts(path: Path) -> dict:
    """Returns the file name and digest of a model file, for the manifest."""
    return {"file": path.name, "sha256": folders.sha256(path)}


def load(path: str | Path | Artifact, target: str | None = None, model: str | None = None,
         threads: int | None = None) -> Session:
    """Returns a session on a generated folder, or on a .megcc file in it. The folder is built first if it is not yet.
    For the folder of a language model (`megcc lm compile`) it is a `LanguageModel` (tools/lm/model.py), a session that
    generates text as well; with `model`, or for the .megcc file in that folder, it is a session of the network alone.

    Args:
        path: the folder that `Artifact.save` or `megcc compile` wrote, or the .megcc file in it; or the artifact, which
            is saved in the cache; or the folder of a program (`Program.compile`).
        target: one of the folder's; by default one that this machine runs, else the first, in an emulator.
        model: name of the model, if the folder has several.
        threads: workers of a run, at most as many as the model was compiled for; by default that number.

    Raises:
        MegccError: for a path that is no such folder, and for another target, model or more threads than it has;
            ToolError: if a compiler or emulator is missing.
    """
    from .frontends.decoder_names import SETTINGS
    from .runtime.load import load as load_session

    folder = path if isinstance(path, (str, Path)) else path.save_in_cache()
    if model is None and (Path(folder) / SETTINGS).is_file():
        from .tools.lm.model import LanguageModel

        return LanguageModel(folder, target, threads)
    return load_session(folder, target, model=model, threads=threads)


def dump_into(folder: str | Path) -> Dump:
    """Returns a dump that writes `<folder>/<stage>.txt`, and pictures under their own names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def dump(stage: str, text: str) -> None:
        (folder / (stage if stage.endswith(".svg") else f"{stage}.txt")).write_text(text)

    return dump
