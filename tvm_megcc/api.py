# SPDX-License-Identifier: Apache-2.0
"""What `tvm_megcc` offers to Python: compile a model, load what was compiled."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from . import folders
from .codegen.artifact import Artifact
from .compiler import Dump, compile_graph
from .context import Regions
from .dispatch import Dispatcher, Intervals, parse_run_shapes
from .errors import MegccError, MegccWarning, quoted
from .ir.graph import Graph
from .ir.streams import Stream
from .ir.types import ORDINARY
from .named_dims import Size
from .passes.canonicalize.preprocess import LAYOUTS, Input, convert_inputs
from .target import Target, parse_targets
from .tuning_log import TuningLog

if TYPE_CHECKING:
    import onnx

    from .extern import Externs
    from .frontends._tvm import Module
    from .frontends.models import Shapes
    from .runtime.session import Session

logger = logging.getLogger(__name__)

Inputs = Mapping[str, Union[Input, str]]


def compile(model: str | Path | bytes | onnx.ModelProto | Module | object,
            target: str | Target | Sequence[Target] = "native", *, params: Mapping[str, object] | None = None,
            example_inputs: object = None, input_shapes: str | Shapes | Sequence[Shapes] | None = None,
            dispatch: str | Dispatcher | Intervals | None = None,
            dims: str | Sequence[str] | Mapping[str, Size] | None = None, optimize: str = "speed", name: str = "",
            threads: int = 1, keep_inputs: bool = False, states: str | Mapping[str, str] | None = None,
            constants: str | Mapping[str, object] | None = None, output_names: str | Sequence[str] | None = None,
            bounds: str | Mapping[str, int] | None = None, inputs: str | Inputs | None = None,
            extern: Externs | None = None, log: str | Path | None = None, ram: int | None = None,
            flash: int | None = None, caller_inputs: bool = False, regions: str | None = None,
            reproducible: bool = False, half: bool = False, stream: str | Stream | None = None,
            signature: str = "", dump: str | Path | None = None) -> Artifact:
    """Compiles a model ahead of time.

    Args:
        model: path of an ONNX file, its bytes, a `ModelProto`, path of a TFLite file (.tflite), or a module of TVM, of
            Relax or Relay. Through TVM's importer, or as ONNX where that does not take it: path of a saved program of
            torch.export (.pt2), or the program. What torch.onnx.export(…, dynamo=True) gives, or a module of PyTorch
            with `example_inputs`.
        target: names as `megcc list targets` shows them, separated by commas ("native,arm64").
        params: weights of a module of TVM, as its importers give them.
        example_inputs: what a module of PyTorch is called with when it is exported: a tuple, a dictionary, a tensor.
        input_shapes: for inputs with dimensions that the model leaves open: a dictionary, or text such as
            "data=(1,3,224,224)" or "data:[1,3,224,224]", several inputs separated by ";". Several sets of shapes,
            as a list or separated by ":", are compiled into one model; a call takes the one it has the shapes of.
        dispatch: ranges of shapes to compile for: text such as "data[0]=log(1,64);data[2,3]=uniform(64,64,512)", a
            dispatcher of `tvm_megcc.dispatch`, or `{input: {axis: [(lo, hi), …]}}` with half-open intervals. The axes
            here and in input_shapes are those of the model, also where `inputs` gives another order.
        dims: dimensions by the names that the model has for them, wherever they stand: {"batch": 1, "sequence":
            "1..128"} or {"sequence": range(1, 129)}; a size, ranges as in `dispatch`, a range, or half-open intervals.
        optimize: "speed" prints known extents as constants; "size" shares kernels between layers.
        name: prefix of everything that is generated; default is the file's name.
        threads: workers that workspace is planned for.
        keep_inputs: inputs in the arena keep their values during a run.
        states: output -> input, the pairs of a streaming model: the session keeps the output's value as the input of
            the next run. A "*" in both names stands for the same text: {"present.*": "past_key_values.*"}.
        constants: values of some inputs, which are no inputs any more: numbers or arrays.
        bounds: largest values of extents that a run computes, by the name of the value that is counted (the output of
            a NonZero) or read as a shape: memory is planned for them. What has no bound is allocated. Also how many
            rows there is room for in states that grow, by the name of their extent (docs/streaming.md).
        output_names: compile only what these values need.
        inputs: what is given instead of the model's own inputs, which are made from it: text such as
            "data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4", several inputs separated by ";", or a
            dictionary of `Input` or the text after the "=".
        extern: operators of your own: a file that declares some (`tvm_megcc.extern`), an `Operator`, or several.
        log: tuning log (`megcc tune`): kernels are chosen by the times in it.
        ram: most bytes of memory that a session may need; layers are computed by rows where that is what it takes.
        flash: most bytes that the model's data may have.
        caller_inputs: inputs have no place in the session's memory: they are bound to the caller's own before a run.
        regions: memories of a microcontroller, the one that is preferred first, in place of `ram` and `flash`:
            "dtcm=64K,sram=256K,flash=1M" (docs/microcontrollers.md).
        reproducible: floats have the same bits on every CPU, with every compiler and for any number of threads.
        half: floats are computed in half precision, and lie so in memory, where the CPU has it (docs/half.md).
        stream: makes a network of a whole sequence into one that takes it in blocks along one axis and keeps what it
            needs of earlier ones: text such as "axis=2,block=64", or a `Stream` (docs/streaming.md).
        signature: which of a TFLite file's, where it has several.
        dump: folder that gets every stage as text.

    `states`, `constants`, `bounds`, `dims` and `output_names` are also taken as the command has them: "a=b;c=d", "a,b".

    Returns:
        The artifact; `.save(folder)` writes the generated folder.

    Raises:
        MegccError: saying what of the model cannot be compiled, where, and what to do.
    """
    from .frontends.models import import_model, is_tflite
    from .frontends.torch_models import of_torch

    measured = TuningLog.read(log) if log else None
    states = parse_states(states or {})
    model = of_torch(model, example_inputs)
    graph, buckets = import_model(model, params=params, input_shapes=input_shapes, dispatch=dispatch,
                                  constants=parse_constants(constants or {}),
                                  output_names=parse_output_names(output_names or ()), extern=extern,
                                  states=states, bounds=parse_bounds(bounds or {}), dims=dims, stream=stream,
                                  signature=signature)
    if is_tflite(model):
        _note_restarts(model, graph, signature)
    given = parse_inputs([inputs]) if isinstance(inputs, str) else inputs_of(inputs or {})
    graph = convert_inputs(graph, given)
    path = Path(model) if isinstance(model, (str, Path)) else None
    if isinstance(target, Target):
        targets: tuple[Target, ...] = (target,)
    else:
        targets = parse_targets(target) if isinstance(target, str) else tuple(target)
    if half and not any(each.isa.halves for each in targets):
        warnings.warn(f"--half changes nothing: {', '.join(each.name for each in targets)} has no vectors of half "
                      "precision (docs/half.md)", MegccWarning, stacklevel=2)
    return compile_graph(graph, targets, optimize=optimize, threads=threads, keep_inputs=keep_inputs, states=states,
                         name=name or (path.stem if path else graph.name), buckets=buckets, log=measured, ram=ram,
                         flash=flash, caller_inputs=caller_inputs,
                         regions=None if regions is None else Regions.parse(regions),
                         reproducible=reproducible, half=half,
                         model={**(_model_facts(path) if path else {}), **facts_of(given)},
                         **({"dump": dump_into(dump)} if dump else {}))


def _note_restarts(model: str | Path, graph: Graph, signature: str) -> None:
    """Says which recurrent layers of a TFLite file forget what was before a run."""
    from .frontends.tflite import restarting

    names = [name for name in restarting(model, graph.inputs, signature) if name]
    if names:
        shown = ", ".join(map(quoted, names[:4])) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        logger.warning("%s: recurrent layers begin every run with states of zeros (%s). To go on where the last run "
                       "ended: --state h.next=NAME for each (docs/other-models.md)", Path(model).name, shown)


def _model_facts(path: Path) -> dict:
    """File name and digest of a model file, for the manifest."""
    return {"file": path.name, "sha256": folders.sha256(path)}


def load(path: str | Path | Artifact, target: str | None = None, model: str | None = None,
         threads: int | None = None) -> Session:
    """A session on a generated folder, or on a .megcc file in it. The folder is built first if it is not yet.

    Args:
        path: the folder that `Artifact.save` or `megcc compile` wrote, or the .megcc file in it; or the artifact, which
            is saved in the cache.
        target: one of the folder's; by default one that this machine runs, else the first, in an emulator.
        model: which one, of a folder with several.
        threads: workers of a run, at most as many as it was compiled for; by default so many.

    Raises:
        MegccError: for a path that is no such folder, and for another target, model or more threads than it has;
            `ToolError` if a compiler or emulator is missing.
    """
    from .runtime.load import load as load_session

    return load_session(path.save_in_cache() if isinstance(path, Artifact) else path, target, model=model,
                        threads=threads)


def dump_into(folder: str | Path) -> Dump:
    """A dump that writes `<folder>/<stage>.txt`, and pictures under their own names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def dump(stage: str, text: str) -> None:
        (folder / (stage if stage.endswith(".svg") else f"{stage}.txt")).write_text(text)

    return dump


def parse_states(texts: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """`["h_out=h_in"]` as a dictionary; a dictionary is copied.

    Raises:
        MegccError: for a text that is no pair, and an output that is in two.
    """
    if isinstance(texts, Mapping):
        return dict(texts)
    texts = texts.split(";") if isinstance(texts, str) else texts
    states: dict[str, str] = {}
    for text in texts:
        output, equals, target = (part.strip() for part in text.partition("="))
        if not (output and equals and target):
            raise MegccError(f"state '{text}': expected OUTPUT=INPUT, such as h_out=h_in")
        if output in states:
            raise MegccError(f"state '{text}': output '{output}' is in another state too")
        states[output] = target
    return states


def parse_constants(texts: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """`["sr=16000", "scales=1,0.5"]` as a dictionary of numbers and lists of them; one stays what it is.

    Raises:
        MegccError: for a text that is no such pair.
    """
    if isinstance(texts, Mapping):
        return dict(texts)
    texts = texts.split(";") if isinstance(texts, str) else texts
    constants: dict[str, object] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            numbers = [_number(part.strip()) for part in value.split(",")]
        except ValueError:
            raise MegccError(f"constant '{text}': expected INPUT=NUMBER or INPUT=NUMBER,NUMBER") from None
        constants[name] = numbers if "," in value else numbers[0]
    return constants


def parse_bounds(texts: str | Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    """`["boxes=1000"]` as a dictionary; one stays what it is.

    Raises:
        MegccError: for a text that is no such pair.
    """
    if isinstance(texts, Mapping):
        return dict(texts)
    texts = texts.split(";") if isinstance(texts, str) else texts
    bounds: dict[str, int] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.rpartition("="))
        if not name or not value.isdecimal() or int(value) >= 2**31:
            raise MegccError(f"bound '{text}': expected NAME=NUMBER, such as boxes=1000")
        bounds[name] = int(value)
    return bounds


def _number(text: str) -> float | int | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


INPUT_GRAMMAR = (f"expected INPUT=WORD,… of: an element type ({', '.join(ORDINARY)}); NHWC or NCHW; BGR; mean=M, "
                 "std=S or scale=S with one number or one a channel (1:2:3); network=NHWC or NCHW; for example "
                 "data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4")
#: Words that say by themselves which attribute of an `Input` they are.
_INPUT_WORDS = {**dict.fromkeys(ORDINARY, "dtype"), **dict.fromkeys(LAYOUTS, "layout"), "BGR": "order"}
_INPUT_KEYS = ("mean", "std", "scale", "network")


def parse_inputs(texts: Sequence[str] | Inputs) -> dict[str, Input]:
    """`["data=uint8,NHWC,mean=127.5;mask=uint8"]` as a dictionary; ";" separates inputs of one text.

    A dictionary of inputs, or of texts for them, is one already.

    Raises:
        MegccError: for a text that does not follow the grammar, and an input that is in two.
    """
    if isinstance(texts, Mapping):
        return inputs_of(texts)
    inputs: dict[str, Input] = {}
    for text in (part.strip() for line in texts for part in line.split(";")):
        name, equals, words = (part.strip() for part in text.partition("="))
        if not text:
            continue
        if not (name and equals and words):
            raise MegccError(f"input '{text}': {INPUT_GRAMMAR}")
        if name in inputs:
            raise MegccError(f"input '{text}': '{name}' is given in another text too")
        inputs[name] = parse_input(words, text)
    return inputs


def parse_input(words: str, text: str = "") -> Input:
    """`"uint8,NHWC,mean=127.5"` as an `Input`; `text` is what messages show."""
    found: dict[str, object] = {}
    for word in (word.strip() for word in words.split(",")):
        key, equals, value = (part.strip() for part in word.partition("="))
        attribute = key if equals else _INPUT_WORDS.get(word)
        if attribute is None or (equals and key not in _INPUT_KEYS):
            raise MegccError(f"input '{text or words}': '{word}' is not understood; {INPUT_GRAMMAR}")
        if attribute in found:
            raise MegccError(f"input '{text or words}': '{word}' is a second {attribute}; {INPUT_GRAMMAR}")
        try:
            found[attribute] = word if not equals else value if key == "network" else \
                tuple(float(number) for number in value.split(":"))
        except ValueError:
            raise MegccError(f"input '{text or words}': '{word}' is no number, or several with ':' between them; "
                             f"{INPUT_GRAMMAR}") from None
    try:
        return Input(**found)
    except MegccError as error:
        raise MegccError(f"input '{text or words}': {error}") from None


def inputs_of(inputs: Inputs) -> dict[str, Input]:
    """Inputs, each as an `Input` or as text."""
    return {name: given if isinstance(given, Input) else parse_input(given) for name, given in inputs.items()}


def facts_of(inputs: Mapping[str, Input]) -> dict:
    """What is given as the inputs, for the manifest."""
    return {"inputs": {name: str(given) for name, given in inputs.items()}} if inputs else {}


def parse_output_names(texts: str | Sequence[str]) -> list[str]:
    """`["a,b", "c"]` as a list, each name once."""
    names = (name.strip() for text in ([texts] if isinstance(texts, str) else texts) for name in text.split(","))
    return list(dict.fromkeys(filter(None, names)))


def parse_shapes(text: str | Mapping[str, Sequence[int] | int]) -> dict[str, tuple[int, ...] | int]:
    """`"data=(1,3,224,224);ids:[1,128];past=3"` as a dictionary of shapes and, by name, sizes of dimensions; one stays
    what it is.

    Raises:
        MegccError: showing the part that is neither.
    """
    if isinstance(text, Mapping):
        return {name: size if isinstance(size, int) else tuple(size) for name, size in text.items()}
    return parse_run_shapes(text)
