# SPDX-License-Identifier: Apache-2.0
"""`megcc compare`: compares the compiled C with ONNX Runtime without optimisation, LiteRT, or the numpy reference."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..compiler import context_of, lower
from ..errors import MegccError, shortened
from ..extern import Externs
from ..frontends.contents import is_tflite, kind_of
from ..frontends.formats import require_model_file
from ..frontends.models import import_model
from ..ir.dims import Symbol, substitute
from ..ir.types import TensorType, from_layout
from ..ops.quantized.dynamic_quantize_linear import DynamicQuantize
from ..ops.random.philox import Draw
from ..option_values import parse_constants, parse_shapes
from ..passes.canonicalize.check import checked
from ..passes.canonicalize.preprocess import convert_inputs, with_network
from ..runtime import reference
from ..runtime.build import generated_folder
from ..runtime.session import Port
from ..runtime.strings import StringTable
from . import in_subprocess, judge, references, run, source

#: The least cosine between outputs and reference of float32, which also sees errors of small elements.
COSINE = 0.99999

#: Why ONNX Runtime may differ although both are right.
QUANTISED_AT_RUN_TIME = ("The model quantises activations at run time, so a float that differs in its last bit can "
                         "change an activation by one quantum. --reference numpy rounds as the C code does.")

Arrays = dict[str, np.ndarray]


def compare(model: str | Path, args) -> dict:
    """Compares every output, and with `args.layers` the result of every kernel call, in order.

    Raises:
        MegccError: if `model` does not exist or is compiled already, if `args.folder` is not a generated folder, or if
            the reference does not read a model of this format.
    """
    model = Path(model)
    _require_comparable(model, args)
    session = source.session_of(args.folder or model, args)
    feeds = _feeds(model, session, args)
    against, expected_of = REFERENCES[args.reference or _usual_reference(model, session, args)]
    model_inputs = {**network_inputs(model, feeds, args), **session.states,
                    **constant_inputs(model, args.options.constants)}
    with run.asking_for_inputs(session.inputs, args.inputs):
        results = session.run(feeds)
    states = {name: session.states[state] for name, state in session.state_of.items()}
    expected = expected_of(model, model_inputs, [*results, *states], args.options.output_names,
                           args.options.extern, signature=args.options.signature)
    results |= {name: value for name, value in states.items() if name in expected}
    limits = Limits.of(args, session.outputs)
    outputs = [judged(name, results[name], expected[name], limits) for name in results]
    for row in outputs:
        if reason := judge.uninformative(expected[row["name"]]):
            row["uninformative"] = reason
    report = {"model": str(model), "target": str(session.target), "reference": against,
              "tolerance": limits.tolerance, "equal": all(row["equal"] for row in outputs), "outputs": outputs}
    if expected_of is onnxruntime_values and not report["equal"]:
        _note_its_own_differences(outputs, expected, onnxruntime_values(
            model, model_inputs, list(results), args.options.output_names, optimised=True))
        if any(call["kind"] == DynamicQuantize.kind for call in session.calls):
            report["advice"] = QUANTISED_AT_RUN_TIME
    if args.layers:
        session.reset()     # the run above replaced the states
        report["layers"] = compare_layers(model, session, feeds, model_inputs, expected_of, args)
        report["first_difference"] = next((row for row in report["layers"] if not row["equal"]), None)
    return report


def _usual_reference(model: Path, session, args) -> str:
    """Returns the name of the reference that is used if none is chosen. Only numpy's draws the same random numbers as
    the C code."""
    is_random = any(call["kind"] == Draw.kind for call in session.calls)
    return "numpy" if is_random else default_reference(model, args.options.extern, args.options.signature)


def _require_comparable(model: Path, args) -> None:
    """Raises MegccError if there is no such model or folder, or if two options contradict each other."""
    require_model_file(model)
    if args.folder:
        generated_folder(Path(args.folder))
    if args.options.stream:
        raise MegccError("compare gives a model and its reference one input, and a stream is several blocks: leave out "
                         "--stream; blocks have the values of the whole (docs/streaming.md)")
    if args.folder and args.layers:
        raise MegccError("--layers compiles the model for itself: leave out --folder")
    if args.inputs and args.value:
        raise MegccError("--inputs has the values of all inputs: leave out --value")


def _feeds(model: Path, session, args) -> Arrays:
    """Returns the inputs of the session: those of the file `args.inputs`, else seeded random ones.

    Raises:
        MegccError: if the session needs a state that compare cannot give, or the file lacks an input.
    """
    if session.counters:
        raise MegccError(f"compare gives all inputs to the model and its reference, but the KV cache whose rows "
                         f"'{session.counters[0]}' counts is empty in a first run: leave out --state and --bound, and "
                         "give the shapes of keys and values with --input-shapes")
    names = [port.name for port in session.inputs]
    if args.folder:
        _require_its_inputs(model, names, args)
    if args.inputs:
        feeds = run.read_npz(args.inputs, names)
    else:
        random = run.seeded(session.inputs, args.seed, parse_shapes(args.shape or ""))
        feeds = run.with_values(random, parse_constants(args.value))
    return feeds | {port.name: port.strings.strings(feeds[port.name], {}) for port in session.inputs
                    if port.strings and not port.strings.are(feeds[port.name])}


def _require_its_inputs(model: Path, names: Sequence[str], args) -> None:
    """Raises MegccError if the folder's model has other inputs, since it was compiled from another file."""
    graph, _ = import_model(model, args.options)
    if missing := sorted(set(names) - set(graph.inputs)):
        raise MegccError(f"{args.folder} has the inputs {', '.join(names)}, but {model} has no {', '.join(missing)}; "
                         f"its inputs are {', '.join(graph.inputs)}. Was the folder compiled from another model?")


def _note_its_own_differences(rows: Sequence[dict], plain: Arrays, optimised: Arrays) -> None:
    """Adds to rows of outputs that differ the difference between ONNX Runtime's results with and without optimisation.
    A difference in the last bit can change a quantised intermediate value by one quantum."""
    for row in rows:
        if not row["equal"] and row["name"] in optimised:
            row["reference_itself"] = judge.difference(optimised[row["name"]], plain[row["name"]], tolerance=0.0)


def network_inputs(model: Path, feeds: Arrays, args) -> Arrays:
    """Returns the model's own inputs, converted from the inputs of the session (`CompileOptions.inputs`)."""
    inputs = args.options.inputs
    if not inputs:
        return feeds
    graph, _ = import_model(model, args.options)
    return feeds | {name: run.network_input(name, feeds[name], with_network(graph, name, given),
                                            graph.types[name].dtype) for name, given in inputs.items()}


def constant_inputs(model: Path, constants: Mapping[str, object]) -> Arrays:
    """Returns the model's inputs that were compiled as constants, since the reference needs all inputs."""
    if not constants:
        return {}
    types = {value.name: value.type.tensor_type for value in onnx.load(model, load_external_data=False).graph.input}
    # The input `seed` of random operators is not in the file: the import adds it.
    seed = onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, []).tensor_type
    types = {name: types.get(name, seed) for name in constants}
    dtypes = {name: onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type) for name, type_ in types.items()}
    shapes = {name: tuple(dim.dim_value for dim in type_.shape.dim) for name, type_ in types.items()}
    return {name: np.broadcast_to(np.asarray(value, dtypes[name]), shapes[name])
            for name, value in constants.items()}


def compare_layers(model: Path, session, feeds: Arrays, model_inputs: Arrays, expected_of, args) -> list[dict]:
    """Returns a row for each kernel call whose result has a name of the source model.

    feeds: the inputs of the session. model_inputs: those of the source model, with states and constants. expected_of: a
    function of `REFERENCES`.
    """
    graph, buckets = import_model(model, args.options)
    named = {name for op in graph.ops for name in op.outputs}
    graph = checked(convert_inputs(graph, args.options.inputs), buckets, args.options.states)
    context = context_of(graph, session.target, args.options)
    plan = lower(graph, context, args.options.threads).plan
    sizes = {dim.name: size for name, array in model_inputs.items() if name in graph.types
             for dim, size in zip(graph.types[name].shape, array.shape, strict=True) if isinstance(dim, Symbol)}
    types = {name: type_.with_shape(substitute(dim, sizes) for dim in type_.shape)
             for name, type_ in plan.graph.types.items()}
    calls = session.calls
    # A pass removes channels that nothing reads: the value then has the same name but another shape.
    complete = {name for name in named & plan.graph.types.keys()
             if plan.graph.types[name].shape == graph.types[name].shape}
    wanted = [call["output"] for call in calls if call["output"] in complete]
    expected = expected_of(model, model_inputs, list(dict.fromkeys(wanted)), args.options.output_names,
                           args.options.extern, signature=args.options.signature)
    rows = []
    for call, raw in zip(calls, session.trace(feeds), strict=True):
        name = call["output"]
        # Strings are codes here, objects in the reference.
        if raw is not None and name in expected and expected[name].dtype != object:
            value = _logical(np.frombuffer(raw, np.dtype(types[name].dtype)), types[name], expected[name].shape)
            rows.append({"kernel": call["kernel"], "origin": call["origin"],
                         **judged(name, value, expected[name], Limits.of(args, session.outputs))})
    return rows


def _logical(flat: np.ndarray, type_: TensorType, expected: tuple[int, ...]) -> np.ndarray:
    """Returns the logical array of a call's result. Extents that the run computed are those of the expected array; if
    these are not as many elements, the flat array, which is of another shape then."""
    known = type_ if type_.is_static else type_.with_shape(expected)
    return from_layout(flat, known) if flat.size == known.stored else flat


def says_something(report: Mapping) -> bool:
    """Whether no output is empty, all NaN or constant."""
    return not any("uninformative" in row for row in report["outputs"])


def text(report: dict) -> str:
    lines = [f"{report['model']} on {report['target']} against {report['reference']}"]
    for row in report["outputs"]:
        lines.append(f"  {_row(row)}")
        if row["equal"] and "uninformative" in row:
            lines.append(f"      warning: this output {row['uninformative']}, which says nothing about the model")
        if "reference_itself" in row:
            lines.append(f"      ONNX Runtime, optimiser on: {judge.text(row['reference_itself'])}")
    if "layers" in report:
        lines.append(f"layers ({len(report['layers'])} that the model names):")
        lines += [f"  {_row(row)}  {row['kernel']}" for row in report["layers"]]
        first = report["first_difference"]
        lines.append(f"first difference: {first['name']}, {first['kernel']}, from {first['origin']}" if first
                     else "no layer differs")
    lines.append("equal" if report["equal"] else f"DIFFERENT (tolerance {report['tolerance']:g})")
    if "advice" in report:
        lines.append(report["advice"])
    if report["equal"] and not says_something(report):
        lines[-1] += ("; not all of it says something: give inputs that the model is made for, with --inputs or "
                      "--value, or --allow it")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Limits:
    """The limits for equal results: the largest error relative to the largest magnitude, and the least cosine."""

    tolerance: float
    cosine: float = COSINE

    @staticmethod
    def of(args: Any, outputs: Iterable[Port]) -> Limits:
        """Returns the limits for a comparison with these options. A result of float16 is rounded to 11 bits, so it may
        be off by 2^-10 of the largest; with `half` all intermediate values are, whose errors add up."""
        if args.options.half:
            limits = Limits(tolerance=2.0**-5, cosine=0.999)
        else:
            limits = Limits(tolerance=2.0**-10 if any(port.dtype == "float16" for port in outputs) else 1e-4)
        return limits if args.tolerance is None else replace(limits, tolerance=float(args.tolerance))


def judged(name: str, value: np.ndarray, expected: np.ndarray, limits: Limits) -> dict:
    return {"name": name, **judge.difference(value, expected, limits.tolerance, limits.cosine)}


def _row(row: Mapping) -> str:
    return f"{'  ' if row['equal'] else '✗ '}{row['name']}: {judge.text(row)}"


def default_reference(model: Path, extern: Externs | None = None, signature: str = "") -> str:
    """Returns ONNX Runtime or LiteRT if it is installed and can read the model, else the numpy reference."""
    if is_tflite(model):
        from ..frontends.tflite import missing_in_litert

        runs = not extern and importlib.util.find_spec("ai_edge_litert") and not missing_in_litert(model, signature)
        return "litert" if runs else "numpy"
    reads = is_onnx(model) and not extern
    return "onnxruntime" if reads and importlib.util.find_spec("onnxruntime") else "numpy"


def is_onnx(model: Path) -> bool:
    return not kind_of(model)


def onnxruntime_values(model: Path, feeds: Arrays, names: Sequence[str], outputs: Sequence[str] = (),
                       extern: Externs | None = None, optimised: bool = False, signature: str = "") -> Arrays:
    """Returns values of these names by ONNX Runtime on one thread, which always runs the whole model."""
    if not is_onnx(model):
        raise MegccError(f"{model} is no ONNX file: compare it with --reference numpy")
    if extern:
        raise MegccError("ONNX Runtime does not know the operators of --extern: compare with --reference numpy")
    if not importlib.util.find_spec("onnxruntime"):
        raise MegccError("onnxruntime is not installed: 'pip install onnxruntime', or --reference numpy")
    return _in_subprocess("ONNX Runtime", "onnxruntime_values", model, feeds, names, optimised)


def litert_values(model: Path, feeds: Arrays, names: Sequence[str], outputs: Sequence[str] = (),
                  extern: Externs | None = None, signature: str = "") -> Arrays:
    """Returns values of these names by LiteRT's reference kernels; with a signature only its outputs."""
    if not is_tflite(model):
        raise MegccError(f"{model} is no TFLite file: compare it with --reference onnxruntime or numpy")
    if extern:
        raise MegccError("LiteRT does not know the operators of --extern: compare with --reference numpy")
    if not importlib.util.find_spec("ai_edge_litert"):
        raise MegccError("LiteRT is not installed: 'pip install ai-edge-litert', or --reference numpy")
    from ..frontends.tflite import missing_in_litert, port_names

    if operator := missing_in_litert(model, signature):
        raise MegccError(f"{model}: LiteRT's reference kernels lack {operator}: compare with --reference numpy")
    return _in_subprocess("LiteRT", "litert_values", model, feeds, names, port_names(model, signature), signature)


def _in_subprocess(engine: str, function: str, model: Path, *given: Any) -> Arrays:
    """Runs an engine in a subprocess, since it may crash."""
    try:
        found: Arrays = in_subprocess.call(references.__name__, function, model.resolve(), *given)
    except in_subprocess.Refused as error:
        raise MegccError(f"{error.engine or engine} does not run {model}: {shortened(str(error), 300)}\n"
                         "  Compare with --reference numpy, or install a newer one.") from None
    except in_subprocess.Ended as error:
        raise MegccError(f"{engine} ended its process on {model}: {error}\n"
                         "  Compare with --reference numpy, or install a newer one.") from None
    return found


def numpy_values(model: Path, feeds: Arrays, names: Sequence[str], outputs: Sequence[str] = (),
                 extern: Externs | None = None, signature: str = "") -> Arrays:
    """Returns values of these names by the numpy reference interpreter. outputs: values at which the model is cut;
    operators after them need not be supported."""
    shapes = {name: value.shape for name, value in feeds.items()}
    if is_tflite(model):  # states are not inputs of the file
        from ..frontends.tflite import input_dims

        shapes = {name: shapes[name] for name in input_dims(model, signature) if name in shapes}
    graph, _ = import_model(model, input_shapes=shapes, output_names=outputs, extern=extern, signature=signature)
    table, others = StringTable(graph.strings), {}
    values = reference.run(graph, {name: table.codes(value, others) if name in graph.string_ports else value
                                   for name, value in feeds.items()}, names)
    return {name: table.strings(values[name], others) if name in graph.string_ports else values[name] for name in names}


#: Values of --reference -> a reference's name in the report, and the function that returns its values of these names.
REFERENCES: dict[str, tuple[str, Callable[..., Arrays]]] = {
    "onnxruntime": ("ONNX Runtime, optimiser off", onnxruntime_values),
    "litert": ("LiteRT's reference kernels", litert_values),
    "numpy": ("the numpy reference", numpy_values),
}
