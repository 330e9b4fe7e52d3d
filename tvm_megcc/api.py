# SPDX-License-Identifier: Apache-2.0
"""What `tvm_megcc` offers to Python: compile a model, load what was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .codegen.artifact import Artifact
from .codegen.tuning_log import TuningLog
from .compiler import Dump, compile_graph, model_facts
from .dispatch import Dispatcher, Intervals, buckets_of, parse_dispatch, parse_shape_sets
from .errors import MegccError
from .target import Target, parse_targets

if TYPE_CHECKING:
    import onnx

    from .runtime.session import Session

Shapes = Mapping[str, Sequence[int]]


def compile(model: str | Path | bytes | onnx.ModelProto, target: str | Target | Sequence[Target] = "native", *,
            input_shapes: str | Shapes | Sequence[Shapes] | None = None,
            dispatch: str | Dispatcher | Intervals | None = None, optimize: str = "speed", name: str = "",
            threads: int = 1, keep_inputs: bool = False, states: Mapping[str, str] | None = None,
            constants: Mapping[str, object] | None = None, output_names: Sequence[str] | None = None,
            log: str | Path | None = None, dump: str | Path | None = None) -> Artifact:
    """Compiles an ONNX model ahead of time.

    Args:
        model: path of an ONNX file, its bytes, or a `ModelProto`.
        target: names as `megcc list targets` shows them, separated by commas ("native,arm64").
        input_shapes: for inputs with dimensions that the model leaves open: a dictionary, or text such as
            "data=(1,3,224,224)" or "data:[1,3,224,224]", several inputs separated by ";". Several sets of shapes,
            as a list or separated by ":", are compiled into one model; a call takes the one it has the shapes of.
        dispatch: ranges of shapes to compile for: text such as "data[0]=log(1,64);data[2,3]=uniform(64,64,512)", a
            dispatcher of `tvm_megcc.dispatch`, or `{input: {axis: [(lo, hi), …]}}` with half-open intervals.
        optimize: "speed" prints known extents as constants; "size" shares kernels between layers.
        name: prefix of everything that is generated; default is the file's name.
        threads: workers that workspace is planned for.
        keep_inputs: inputs in the arena keep their values during a run.
        states: output -> input, the pairs of a streaming model: the session keeps the output's value as the input of
            the next run.
        constants: value of some inputs, which are none then: numbers or arrays.
        output_names: compile only what these values need.
        log: tuning log (`megcc tune`): kernels are chosen by the times in it.
        dump: folder that gets every stage as text.

    Returns:
        The artifact; `.save(folder)` writes the generated folder.

    Raises:
        MegccError: saying what of the model cannot be compiled, where, and what to do.
    """
    from .frontends.onnx import import_onnx, input_dims

    measured = TuningLog.read(log) if log else None
    shapes, buckets = buckets_of(input_dims(model), shape_sets(input_shapes),
                                 parse_dispatch(dispatch) if isinstance(dispatch, str) else dispatch)
    graph = import_onnx(model, input_shapes=shapes, output_names=output_names, constants=constants)
    path = Path(model) if isinstance(model, (str, Path)) else None
    if isinstance(target, Target):
        targets: tuple[Target, ...] = (target,)
    else:
        targets = parse_targets(target) if isinstance(target, str) else tuple(target)
    return compile_graph(graph, targets, optimize=optimize, threads=threads, keep_inputs=keep_inputs, states=states,
                         name=name or (path.stem if path else graph.name), buckets=buckets, log=measured,
                         model=model_facts(path) if path else {}, **({"dump": dump_into(dump)} if dump else {}))


def load(path: str | Path, target: str = "native") -> Session:
    """A session on a generated folder; builds it first where that has not been done."""
    from .runtime.session import load as load_session

    return load_session(path, target)


def shape_sets(input_shapes: str | Shapes | Sequence[Shapes] | None) -> list[Shapes]:
    """Sets of input shapes, in whichever form they were given."""
    if isinstance(input_shapes, str):
        return parse_shape_sets(input_shapes)
    if input_shapes is None or isinstance(input_shapes, Mapping):
        return [dict(input_shapes or {})]
    return list(input_shapes)


def dump_into(folder: str | Path) -> Dump:
    """A dump that writes `<folder>/<stage>.txt`, and pictures under their own names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def dump(stage: str, text: str) -> None:
        (folder / (stage if stage.endswith(".svg") else f"{stage}.txt")).write_text(text)

    return dump


def parse_states(texts: Sequence[str]) -> dict[str, str]:
    """`["h_out=h_in"]` as a dictionary.

    Raises:
        MegccError: for a text that is no pair, and an output that is in two.
    """
    states: dict[str, str] = {}
    for text in texts:
        output, equals, target = (part.strip() for part in text.partition("="))
        if not (output and equals and target):
            raise MegccError(f"state '{text}': expected OUTPUT=INPUT, such as h_out=h_in")
        if output in states:
            raise MegccError(f"state '{text}': output '{output}' is in another state too")
        states[output] = target
    return states


def parse_constants(texts: Sequence[str]) -> dict[str, object]:
    """`["sr=16000", "scales=1,0.5"]` as a dictionary of numbers and lists of them.

    Raises:
        MegccError: for a text that is no such pair.
    """
    constants: dict[str, object] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            numbers = [_number(part.strip()) for part in value.split(",")]
        except ValueError:
            raise MegccError(f"constant '{text}': expected INPUT=NUMBER or INPUT=NUMBER,NUMBER") from None
        constants[name] = numbers if "," in value else numbers[0]
    return constants


def _number(text: str) -> float | int | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """`"data=(1,3,224,224);ids:[1,128]"` as a dictionary.

    Raises:
        MegccError: showing the part that is no shape.
    """
    sets = parse_shape_sets(text)
    if len(sets) > 1:
        raise MegccError(f"one set of input shapes is wanted here, not {len(sets)}: {text}")
    return sets[0] if sets else {}
