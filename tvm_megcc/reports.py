# SPDX-License-Identifier: Apache-2.0
"""The reports of the command, as functions: `tvm_megcc.compare`, `explain`, `bench`, `inspect` and `quantize`.

Each returns a `Report`: a dictionary with the facts that the command prints with `--json`, whose text is that of the
command:

    report = tvm_megcc.compare("model.onnx", layers=True)
    print(report)
    assert report["equal"]
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy.typing as npt

from . import notebook
from .deprecated import with_old_keywords
from .errors import MegccError, report_text
from .option_values import parse_dims, parse_inputs, parse_shapes
from .options import CompileOptions

if TYPE_CHECKING:
    from argparse import Namespace

    from typing_extensions import Unpack

    from .option_values import Inputs
    from .options import CompileKeywords

#: Arrays by input name, or a .npz file of them; None: seeded random numbers.
Feeds = Union[Mapping[str, npt.ArrayLike], str, Path, None]
Model = Union[str, Path]


class Report(dict[str, Any]):
    """A report of the command: a dictionary of facts; `str` gives the text that the command prints.

    Args:
        facts: the facts that `--json` prints.
        text: formats the facts.
    """

    def __init__(self, facts: Mapping[str, Any], text: Callable[[dict[str, Any]], str]):
        super().__init__(facts)
        self._text = text

    def __str__(self) -> str:
        return report_text(self, self._text).rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return notebook.report(self, str(self))


#: Functions that take other paths than that of a model, for messages.
_OTHER_PATHS = dict.fromkeys(("bench", "inspect"), " or of a generated folder")


def _require_feeds(verb: str, arrays: object) -> None:
    """Raises TypeError for inputs that have no names."""
    if not (arrays is None or isinstance(arrays, (str, Path, Mapping))):
        raise TypeError(f"tvm_megcc.{verb}(): arrays are a dictionary from names of inputs to arrays, or the path of a "
                        f".npz file, not {type(arrays).__name__}")


def _arguments(verb: str, models: Model | Sequence[Model], target: str, changes: Mapping[str, Any],
               **others: Any) -> Namespace:
    """Returns the arguments of a verb of the command: its defaults, with the given values.

    Args:
        verb: the name of a function of this module, which is a verb of the command.
        changes: options of compilation.
        others: other arguments of the verb.

    Raises:
        TypeError: for a model that is not a path, and for an option that does not exist.
    """
    from .cli import parsed

    for model in models if isinstance(models, (list, tuple)) else [models]:
        if not isinstance(model, (str, Path)):
            raise TypeError(f"tvm_megcc.{verb}() takes the path of a model{_OTHER_PATHS.get(verb, '')}, "
                            f"not {type(model).__name__}")
    parameters = signature(globals()[verb]).parameters
    for name in changes:
        similar = difflib.get_close_matches(name, [*parameters, *(row.name for row in fields(CompileOptions))], 1)
        if similar and similar[0] in parameters and similar[0] != name:
            raise TypeError(f"tvm_megcc.{verb}() got an unexpected keyword argument '{name}', did you mean "
                            f"'{similar[0]}'?")
    inputs = changes.get("inputs")
    if "arrays" in parameters and isinstance(inputs, Mapping) and any(hasattr(array, "__array__")
                                                                      for array in inputs.values()):
        raise TypeError(f"tvm_megcc.{verb}(): 'inputs' says what the model is given, such as \"data=uint8,NHWC\"; "
                        "arrays to run on are 'arrays'")
    _require_feeds(verb, others.get("inputs"))
    args = parsed([verb, ""])  # "" stands for the model, which the tools get as an argument of their own
    vars(args).update(others, target=target, options=CompileOptions.of(None, changes, verb))
    return args


def compare(model: Model, target: str = "native", *, arrays: Feeds = None,
            shapes: str | Mapping[str, Sequence[int] | int] | None = None, layers: bool = False,
            reference: str | None = None, tolerance: float | None = None, seed: int = 0, cc: str | None = None,
            **changes: Unpack[CompileKeywords]) -> Report:
    """Compares the built C with ONNX Runtime, its optimiser off, or with the numpy reference: `megcc compare`.

    Args:
        model: the path of a model.
        target: the CPU to compile for, as `tvm_megcc.compile` takes it.
        seed: seed of the random inputs.
        cc: the C compiler; by default the one that the target names.
        arrays: inputs by name, or a .npz file of them; by default seeded random numbers.
        shapes: of seeded inputs whose shape may change, and sizes of dimensions by name: {"batch": 2}.
        layers: compares the result of every kernel call too, and finds the first that differs.
        reference: "onnxruntime" or "numpy"; by default the first where it is installed.
        tolerance: largest error, relative to the output's largest magnitude (docs/command.md has the whole rule);
            None: 1e-4, or 2^-10 of float16, 2^-5 with `half`.

    Returns:
        {model, target, reference, tolerance, equal, outputs, layers, first_difference}; `outputs` has a row for each
        output.

    Raises:
        MegccError: as `tvm_megcc.compile`; a difference is no error.
    """
    from .tools import compare as tool

    if reference is not None and reference not in tool.REFERENCES:
        raise MegccError(f"reference is one of {', '.join(tool.REFERENCES)}, not {reference!r}")
    if tolerance is not None and not (isinstance(tolerance, numbers.Real) and tolerance >= 0):
        raise MegccError(f"tolerance is a number of at least 0, not {tolerance!r}")
    args = _arguments("compare", model, target, changes, inputs=arrays, shape=shapes, layers=layers,
                       reference=reference, tolerance=tolerance, seed=seed, cc=cc)
    return Report(tool.compare(model, args), tool.text)


def explain(model: Model, target: str = "native", **changes: Unpack[CompileKeywords]) -> Report:
    """Shows which kernel computes each operator, why, and why others were refused: `megcc explain`.

    Returns:
        {model, target, measured, supported, findings, calls, views}; `calls` has a row for each kernel call. A model
        that cannot be compiled is no error: `supported` is False then, and `findings` lists all reasons.
    """
    from .tools.report import explain as tool

    args = _arguments("explain", model, target, changes)
    return Report(tool.explain(model, target, args.options), tool.text)


def bench(model: Model | Sequence[Model], target: str = "native", *, arrays: Feeds = None, repeat: int | None = None,
          shapes: str | Mapping[str, Sequence[int] | int] | None = None, seed: int = 0, against: str = "",
          rounds: int = 9, cc: str | None = None,
          **changes: Unpack[CompileKeywords]) -> Report:
    """Times a model or a generated folder on this machine, in total and by operator: `megcc bench`.

    Args:
        model: the path of a model, or of a generated folder; of a folder with several models, the .megcc file of one.
        target: the CPU to compile for, as `tvm_megcc.compile` takes it.
        seed: seed of the random inputs.
        cc: the C compiler; by default the one that the target names.
        arrays: inputs by name, or a .npz file of them; by default seeded random numbers.
        shapes: as `compare` takes them.
        repeat: timed runs; by default what takes about a second.
        against: engines to compare with, such as "onnxruntime,openvino". Then several models may be given, which are
            ONNX files; `arrays` may only be a file; and the report is that of `megcc bench --against`.
        rounds: number of bursts of runs of each engine.

    Raises:
        MegccError: as `tvm_megcc.compile`, and for engines that are not installed.
    """
    if repeat is not None and (isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1):
        raise MegccError(f"repeat is a number of runs of at least 1, not {repeat!r}")
    args = _arguments("bench", model, target, changes, inputs=arrays, seed=seed, cc=cc, against=against,
                       rounds=rounds)
    models = [model] if isinstance(model, (str, Path)) else list(model)
    if against:
        from .tools.bench import against as peers
        from .tools.bench import against_report

        return Report(peers.against(models, args), against_report.text)
    from .tools import source
    from .tools.bench import bench as tool

    if len(models) != 1:
        raise MegccError("several models are for against=…; without it, bench one at a time")
    session = source.timed_session_of(models[0], args)
    return Report(tool.bench(session, arrays, repeat=repeat, seed=seed, shapes=parse_shapes(shapes or "")), tool.text)


def inspect(path: Model, target: str = "native", *, size: bool = False, cc: str | None = None,
            **changes: Unpack[CompileKeywords]) -> Report:
    """Describes the contents of a generated folder, or of the folder that a model is compiled to: `megcc inspect`.

    Args:
        path: a generated folder, its .megcc file, or a model to compile.
        target: the CPU to compile a model for, as `tvm_megcc.compile` takes it.
        cc: the C compiler that measures sizes; by default the one that the target names.
        size: reports bytes of code and constants instead, for a build for size.
    """
    from .tools import source
    from .tools.report import describe
    from .tools.report import size as sizes

    folder = source.folder_of(path, _arguments("inspect", path, target, changes, cc=cc))
    if size:
        return Report(sizes.size(folder, target, cc), sizes.text)
    return Report(describe.folder(folder), describe.folder_text)


@with_old_keywords
def quantize(model: Model, samples: Feeds | Model, output: Model, *, method: str = "auto",
             keep_float: Sequence[str] = (), min_snr: float = 20.0, inputs: str | Inputs | None = None,
             evaluate: Feeds | Model = None, max_samples: int = 128, target: str = "native", time: bool = True,
             dims: Any = None) -> Report:
    """Quantizes a float ONNX model to int8 by calibration, and writes it: `megcc quantize` (docs/quantize.md).

    Args:
        samples: arrays by input name, a .npz file of them, or a folder of images; `labels` among them are classes.
        method: "minmax", "percentile", "entropy", or "auto": the one with the least noise on the samples.
        keep_float: nodes, or op_types, that stay float.
        min_snr: least signal-to-noise ratio of the outputs in dB; below it, the layers with the largest error stay
            float, at most a quarter of the layers.
        inputs: formats of the samples, as `tvm_megcc.compile` takes them.
        evaluate: other samples, for the accuracy.
        max_samples: largest number of samples that are used.
        target: CPU that the float and the int8 model are compiled for.
        time: whether both models are timed.
        dims: sizes of dimensions that the model leaves open, as `tvm_megcc.compile` takes them.

    Returns:
        {model, output, samples, method, methods, signal_to_noise, enough, kept_float, bytes, accuracy, times, layers}.

    Raises:
        MegccError: if ONNX Runtime is not installed, or for an invalid model or sample.
        TypeError: for samples or names of layers of another type.
    """
    from .tools.quantize import quantize as tool

    for feeds in (samples, evaluate):
        _require_feeds("quantize", feeds)
    if samples is None:
        raise TypeError("tvm_megcc.quantize(): samples are a dictionary from names of inputs to arrays, or a path")
    keep_float = [keep_float] if isinstance(keep_float, str) else keep_float
    if not (isinstance(keep_float, (list, tuple, set)) and all(isinstance(name, str) for name in keep_float)):
        raise TypeError(f"tvm_megcc.quantize(): keep_float is a list of names, not {keep_float!r}")
    return Report(tool.quantize(model, samples, output, method=method, keep_float=keep_float, min_snr=min_snr,
                                inputs=parse_inputs(inputs or {}), evaluate=evaluate, max_samples=max_samples,
                                target=target, time=time, dims=parse_dims(dims or {})), tool.text)
