# SPDX-License-Identifier: Apache-2.0
"""`megcc quantize`: quantises a float ONNX model to int8, by calibration with ONNX Runtime's quantiser. Reports the
loss of accuracy, and the gain in time and bytes, for each layer."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import MegccError, MissingTool, shortened
from ...folders import require_other_file
from ...frontends.contents import kind_of
from ...frontends.formats import require_model_file
from ...passes.canonicalize.preprocess import Input, with_network
from . import timing
from .calibration import Arrays, Samples, read_samples

METHODS = ("minmax", "percentile", "entropy")
#: Operators that are quantised: those that are cheaper in integers, and those between them.
KINDS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Mul", "AveragePool", "GlobalAveragePool", "MaxPool",
         "Concat", "Relu", "Clip", "LeakyRelu", "Sigmoid", "Resize", "Reshape", "Transpose", "Squeeze", "Unsqueeze",
         "Flatten", "Pad", "Split", "Slice", "ReduceMean")
#: Operators with weights, which may stay float for accuracy.
LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
#: The sufficient signal-to-noise ratio of the outputs in dB, and the largest share of layers that may stay float for
#: it.
MIN_SNR, SHARE = 20.0, 0.25
#: The gain in dB that this share of layers must bring, if it does not reach the sufficient ratio.
_GAIN = 1.0
#: The largest signal-to-noise ratio that is reported, in dB: an error of 1e-6 of the signal counts as none.
NO_NOISE = 120.0
#: The suffix of the quantiser's names for dequantised values.
_DEQUANTIZED = "_DequantizeLinear_Output"
#: The most samples on which layers are compared one by one.
WATCHED = 16


def _signal_to_noise(signal: float, noise: float) -> float:
    """Returns the signal-to-noise ratio in dB, at most `NO_NOISE`, and `-NO_NOISE` for NaN and infinite noise."""
    if not np.isfinite(noise):
        return -NO_NOISE
    return min(NO_NOISE, 10 * float(np.log10(max(signal, 1e-30) / max(noise, 1e-30))))


def require_onnxruntime() -> None:
    try:
        import onnxruntime.quantization  # noqa: F401
    except ImportError:
        raise MegccError("quantising needs ONNX Runtime: pip install tvm_megcc[quantize]") from None


@dataclass
class _Network:
    """A model in memory that ONNX Runtime runs."""

    proto: onnx.ModelProto
    outputs: list[str] = field(default_factory=list)

    def run(self, feeds: Sequence[Arrays], values: Sequence[str] = ()) -> list[list[np.ndarray]]:
        """Returns the outputs, or these values, for each sample."""
        import onnxruntime

        proto = self.proto
        if values:
            proto = onnx.ModelProto()
            proto.CopyFrom(self.proto)
            del proto.graph.output[:]
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                                   providers=["CPUExecutionProvider"])
            return [session.run(None, feed) for feed in feeds]
        except Exception as error:  # ONNX Runtime's exceptions have no other common base
            raise MegccError(f"ONNX Runtime does not run the model: {shortened(str(error), 300)}") from None


class _Quantiser:
    """The prepared float model, with the ranges that each calibration method finds."""

    def __init__(self, model: Path, samples: Samples, folder: Path):
        from onnxruntime.quantization.shape_inference import quant_pre_process

        self.folder, self.samples, self.ranges = folder, samples, {}
        self.path = folder / "float.onnx"
        proto = onnx.load(model)
        version = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
        if version < 13:  # the first operator set in which a scale may belong to each channel
            proto = onnx.version_converter.convert_version(proto, 13)
        # First, so that their layers have constant weights for the quantiser.
        _fold_weights(proto.graph)
        onnx.save(proto, self.path)
        quant_pre_process(str(self.path), str(self.path), skip_symbolic_shape=True)
        self.proto = onnx.load(self.path)
        # The quantiser and the report tell nodes by name.
        for index, node in enumerate(self.proto.graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        _bias_per_channel(self.proto.graph)
        onnx.save(self.proto, self.path)
        self.layers = [node.name for node in self.proto.graph.node
                       if node.op_type in LAYERS and self._has_weights(node)]
        self.nodes = [node.name for node in self.proto.graph.node
                      if node.op_type in KINDS and (node.op_type not in LAYERS or node.name in self.layers)]

    def _has_weights(self, node: onnx.NodeProto) -> bool:
        return node.input[1] in {tensor.name for tensor in self.proto.graph.initializer}

    def calibrate(self, method: str) -> None:
        """Finds the ranges of all values by a calibration method, and keeps them.

        Raises:
            MegccError: if a value is infinite or NaN.
        """
        from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
        from onnxruntime.quantization.calibrate import create_calibrator

        class Reader(CalibrationDataReader):
            def __init__(self, feeds):
                self.left = iter(feeds)

            def get_next(self):
                return next(self.left, None)

        if method not in self.ranges:
            kinds = {"minmax": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile,
                     "entropy": CalibrationMethod.Entropy}
            calibrator = create_calibrator(self.path, list(KINDS), str(self.folder / "watched.onnx"), kinds[method])
            not_finite = MegccError("a value in the network is infinite or NaN for these samples: check the samples, "
                                    "and the results of the float network for them")
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
                    calibrator.collect_data(Reader(self.samples.feeds))
                    ranges = calibrator.compute_data()
            except (ValueError, AssertionError):  # its histograms have no range for infinite values
                raise not_finite from None
            if not all(np.isfinite(end).all() for _, found in ranges.items() for end in found.range_value):
                raise not_finite
            self.ranges[method] = ranges

    def quantised(self, method: str, nodes: Sequence[str]) -> _Network:
        """Returns the model with these nodes in integers."""
        from onnxruntime.quantization import QuantType
        from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

        self.calibrate(method)
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        quantiser = QDQQuantizer(
            proto, per_channel=True, reduce_range=False, weight_qType=QuantType.QInt8, activation_qType=QuantType.QInt8,
            tensors_range=self.ranges[method], nodes_to_quantize=list(nodes), nodes_to_exclude=[],
            op_types_to_quantize=list(KINDS),
            extra_options={"WeightSymmetric": True, "ActivationSymmetric": False})
        quantiser.quantize_model()
        return _Network(quantiser.model.model)


def _fold_weights(graph: onnx.GraphProto) -> None:
    """Dequantises weights that are stored as integers in a model with float arithmetic; they are quantised again with
    the rest."""
    from onnx.reference import ReferenceEvaluator

    known = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    for node in [node for node in graph.node if node.op_type == "DequantizeLinear"]:
        if set(node.input) <= {*known, ""} and not outputs.intersection(node.output):
            (floats,) = ReferenceEvaluator(node).run(None, {name: onnx.numpy_helper.to_array(known[name])
                                                          for name in node.input if name})
            graph.initializer.append(onnx.numpy_helper.from_array(floats, node.output[0]))
            graph.node.remove(node)
    _without_unread(graph)


def _without_unread(graph: onnx.GraphProto) -> None:
    """Removes constants that nothing reads, since ONNX Runtime would warn of each."""
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    unread = {tensor.name for tensor in graph.initializer} - read
    for rows in (graph.initializer, graph.input):  # files of old versions list constants among the inputs
        for row in [row for row in rows if row.name in unread]:
            rows.remove(row)


def _bias_per_channel(graph: onnx.GraphProto) -> None:
    """Converts the operand C of each Gemm to one number per column, which ONNX Runtime's quantiser requires, if it is
    constant along the rows; any other C becomes an Add after the Gemm."""
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for index, node in reversed(list(enumerate(graph.node))):
        weights = known.get(node.input[1]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        bias = known.get(node.input[2]) if weights is not None else None
        if weights is None or bias is None:
            continue
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        columns = weights.shape[0 if attributes.get("transB") else 1]
        if bias.shape == (columns,):
            continue
        factor = np.array(attributes.get("beta", 1.0), bias.dtype)
        by_row = bias.ndim == 2 and bias.shape[0] > 1
        name = f"{node.name}.bias"
        per_channel = bias * factor if by_row else np.broadcast_to(bias.reshape(-1), (columns,))
        graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(per_channel), name))
        if by_row:
            output, node.output[0] = node.output[0], f"{node.name}.product"
            del node.input[2]
            graph.node.insert(index + 1, onnx.helper.make_node("Add", [node.output[0], name], [output], f"{name}.add"))
        else:
            node.input[2] = name
    _without_unread(graph)


@dataclass(frozen=True)
class _Judge:
    """Compares results of quantised models with those of the float model, on the samples."""

    expected: list[list[np.ndarray]]
    feeds: Sequence[Arrays]

    def signal_to_noise(self, network: _Network) -> float:
        """Returns the signal-to-noise ratio of the worst output in dB."""
        return _worst_ratio(self.expected, network.run(self.feeds))


def _worst_ratio(expected: list[list[np.ndarray]], actual: list[list[np.ndarray]]) -> float:
    """Returns the lowest signal-to-noise ratio in dB of the float outputs. expected, actual: outputs by sample."""
    worst = NO_NOISE
    for wanted, found in zip(zip(*expected, strict=True), zip(*actual, strict=True), strict=True):
        if wanted[0].dtype.kind == "f":
            signal = sum(float((array.astype(np.float64) ** 2).sum()) for array in wanted)
            noise = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(wanted, found, strict=True))
            worst = min(worst, _signal_to_noise(signal, noise))
    return worst


def quantize(model: str | Path, samples: str | Path | Mapping[str, np.ndarray], output: str | Path, *,
             method: str = "auto", keep_float: Sequence[str] = (), min_snr: float = MIN_SNR,
             inputs: Mapping[str, Input] | None = None, evaluate: str | Path | Mapping[str, np.ndarray] | None = None,
             max_samples: int = 128, target: str = "native", time: bool = True, dims: Mapping[str, Any] | None = None,
             say: Callable[[str], None] = lambda text: None) -> dict:
    """Writes the quantised model, and reports.

    Args:
        samples: as `calibration.read_samples` reads them; `labels` among the arrays are classes.
        method: one of METHODS, or "auto": the one whose outputs have the least noise on the samples.
        keep_float: names of nodes, or kinds of operators, that always stay float.
        min_snr: signal-to-noise ratio of the outputs in dB; below it, the layers with the most noise stay float, at
            most a quarter of them.
        inputs: the form in which samples are given, by input.
        evaluate: other samples, for accuracy.
        max_samples: the most samples to use.
        time: whether to compile both models for the target and time them.
        say: called with what is done next, in words.
        dims: values of symbolic extents, as for `compile`, if samples do not tell them.

    Returns:
        A report of JSON's types: method and signal-to-noise ratio reached, layers that stayed float, bytes, accuracy,
        seconds, and a row for each layer (`_rows`).

    Raises:
        MegccError: if the quantiser is not installed, or the model or samples are invalid.
    """
    path = Path(model)
    _require_arguments(path, output, method, min_snr, max_samples)
    require_onnxruntime()
    shapes, given, dtypes = _facts_of(path, inputs or {}, dims or {})
    found = read_samples(samples, shapes, given, dtypes, max_samples)
    with tempfile.TemporaryDirectory(prefix="megcc-") as folder:
        quantiser = _Quantiser(path, found, Path(folder))
        nodes = _integer_nodes(quantiser, path, keep_float)
        before = _Network(quantiser.proto)
        judge = _Judge(before.run(found.feeds), found.feeds)
        tried, best = _calibrated(quantiser, METHODS if method == "auto" else (method,), nodes, judge, say)
        say("looking for the layers with the largest error")
        alone = _alone(quantiser, best, [name for name in nodes if name in quantiser.layers], judge)
        float_layers, reached = _with_float_layers(quantiser, best, nodes, alone, judge, tried[best], min_snr)
        after = quantiser.quantised(best, [name for name in nodes if name not in float_layers])
        _save(after, output)
        rows = _rows(quantiser, before, after, alone, {*nodes} - {*float_layers}, found.feeds[:WATCHED])
        report: dict[str, Any] = {
            "model": str(path), "output": str(output), "samples": len(found.feeds), "method": best,
            "methods": tried, "signal_to_noise": reached, "enough": min_snr, "kept_float": float_layers,
            "bytes": {"before": path.stat().st_size, "after": Path(output).stat().st_size}, "layers": rows,
            "times": None}
        test = found if evaluate is None else read_samples(evaluate, shapes, given, dtypes, 10**9)
        report["accuracy"] = _accuracy(before.run(test.feeds), after.run(test.feeds), test.labels)
        if time:
            say(f"timing both models on {target}")
            report |= _times(path, Path(output), found.feeds[0], target, rows)
    return report


def _times(before: Path, after: Path, feeds: Arrays, target: str, rows: list[dict]) -> dict:
    """Returns `times` (`timing.times`) for the report, or in `not_timed` the tool that is missing."""
    try:
        return {"times": timing.times(before, after, feeds, target, rows)}
    except MissingTool as missing:
        return {"times": None, "not_timed": str(missing)}


def _calibrated(quantiser: _Quantiser, methods: Sequence[str], nodes: Sequence[str], judge: _Judge,
                say: Callable[[str], None]) -> tuple[dict[str, float], str]:
    """Returns the signal-to-noise ratio in dB that each method of calibration reaches, and the best method: of those
    that are equal to a tenth of a dB, the first of METHODS."""
    tried = {}
    for method in methods:
        say(f"calibrating by {method}")
        tried[method] = judge.signal_to_noise(quantiser.quantised(method, nodes))
    return tried, max(tried, key=lambda method: (round(tried[method], 1), -METHODS.index(method)))


def _require_arguments(path: Path, output: str | Path, method: str, min_snr: float, max_samples: int) -> None:
    """Raises MegccError for invalid arguments of `quantize`, before minutes of calibration."""
    require_model_file(path)
    if kind_of(path):
        raise MegccError(f"{path}: only ONNX files are quantised; TFLite files come quantised by their converter")
    if method not in ("auto", *METHODS):
        raise MegccError(f"calibration method '{method}': expected auto, {' or '.join(METHODS)}")
    if not Path(output).absolute().parent.is_dir():
        raise MegccError(f"cannot write {output}: {Path(output).parent} is no folder")
    require_other_file(output, path)
    if isinstance(max_samples, bool) or not isinstance(max_samples, (int, np.integer)) or max_samples < 1:
        raise MegccError(f"max_samples is a number of at least 1, not {max_samples!r}")
    if isinstance(min_snr, bool) or not isinstance(min_snr, (int, float)) or min_snr != min_snr:
        raise MegccError(f"min_snr is a number of dB, not {min_snr!r}")


def _integer_nodes(quantiser: _Quantiser, path: Path, keep_float: Sequence[str]) -> list[str]:
    """Returns the names of the nodes to quantise: all that can be, except those of `keep_float`.

    Raises:
        MegccError: if `keep_float` names no node or operator of the model, and if no layer is left.
    """
    kinds = {node.name: node.op_type for node in quantiser.proto.graph.node}
    unknown = sorted({*keep_float} - {*kinds} - {*KINDS})
    if unknown:
        raise MegccError(f"--keep-float {', '.join(unknown)}: no node and no operator of the model is called so; "
                         f"it has {shortened(', '.join(quantiser.nodes), 400)}")
    nodes = [name for name in quantiser.nodes if name not in keep_float and kinds[name] not in keep_float]
    if not set(nodes) & set(quantiser.layers):
        raise MegccError(f"{path} has no convolution or product with weights to quantise")
    return nodes


def _save(network: _Network, output: str | Path) -> None:
    network.proto.producer_name = "tvm_megcc"
    try:
        onnx.save(network.proto, output)
    except OSError as error:
        raise MegccError(f"cannot write {output}: {error.strerror}") from None


def _facts_of(path: Path, inputs: Mapping[str, Input], dims: Mapping[str, Any]) \
        -> tuple[dict, dict[str, Input], dict[str, str]]:
    """Returns the shapes of the model's inputs, the form in which samples are given, and their dtypes."""
    from ...frontends.models import import_model

    graph, _ = import_model(path, dims=dims)
    shapes = {name: graph.types[name].shape for name in graph.inputs}
    unknown = {*inputs} - {*graph.inputs}
    if unknown:
        raise MegccError(f"--input {', '.join(sorted(unknown))}: the inputs are {', '.join(graph.inputs)}")
    given = {name: with_network(graph, name, options) for name, options in inputs.items()}
    return (shapes, given, {name: graph.types[name].dtype for name in graph.inputs})


def _alone(quantiser: _Quantiser, method: str, layers: Sequence[str], judge: _Judge) -> dict[str, float]:
    """Returns for each layer the signal-to-noise ratio of the outputs if only this layer is quantised, on few
    samples."""
    few = _Judge(judge.expected[:WATCHED], judge.feeds[:WATCHED])
    return {name: few.signal_to_noise(quantiser.quantised(method, [name])) for name in layers}


def _with_float_layers(quantiser: _Quantiser, method: str, nodes: Sequence[str], alone: Mapping[str, float],
                       judge: _Judge, reached: float, min_snr: float) -> tuple[list[str], float]:
    """Returns the fewest layers, those with the most noise first, that must stay float for a sufficient signal-to-noise
    ratio, and that ratio; none if a quarter of the layers is not enough and gains less than a dB."""
    if reached >= min_snr:
        return [], reached
    order = sorted(alone, key=alone.__getitem__)[:max(1, int(SHARE * len(alone)))]
    for count in range(1, len(order) + 1):
        ratio = judge.signal_to_noise(quantiser.quantised(method, [n for n in nodes if n not in order[:count]]))
        if round(ratio, 1) >= min_snr or (count == len(order) and ratio >= reached + _GAIN):
            return order[:count], ratio
    return [], reached


def _rows(quantiser: _Quantiser, before: _Network, after: _Network, alone: Mapping[str, float], integers: set[str],
          feeds: Sequence[Arrays]) -> list[dict]:
    """Returns a row for each layer, in the order of execution."""
    sizes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in quantiser.proto.graph.initializer}
    outputs = {name for node in after.proto.graph.node for name in node.output}
    nodes = [node for node in quantiser.proto.graph.node if node.name in quantiser.layers]
    # The quantiser removes an activation that the quantised range includes; its result is then the layer's.
    activation_results = {node.input[0]: node.output[0] for node in quantiser.proto.graph.node
                          if node.op_type in ("Relu", "Clip")}
    results = {node.name: node.output[0] if node.output[0] in outputs else activation_results.get(node.output[0], "")
               for node in nodes}
    watched = {name: value for name, value in results.items() if value in outputs}
    quantised_values = [f"{value}{_DEQUANTIZED}" if f"{value}{_DEQUANTIZED}" in outputs else value
                        for value in watched.values()]
    expected, actual = before.run(feeds, [*watched.values()]), after.run(feeds, quantised_values)
    ratios = {name: _worst_ratio([[run[i]] for run in expected], [[run[i]] for run in actual])
             for i, name in enumerate(watched)}
    rows = []
    for node in nodes:
        weights = [sizes[name] for name in node.input if name in sizes]
        weight_bytes = 1 if node.name in integers else 4  # the bias, after the weights, has 4 bytes as float and int32
        rows.append({"name": node.name, "kind": node.op_type, "integers": node.name in integers,
                     "signal_to_noise": ratios.get(node.name), "alone": alone.get(node.name),
                     "bytes": {"before": sum(array.nbytes for array in weights),
                               "after": sum(array.size * (weight_bytes if index == 0 else 4)
                                            for index, array in enumerate(weights))}})
    return rows


def _accuracy(before: list[list[np.ndarray]], after: list[list[np.ndarray]], labels: np.ndarray | None) -> dict | None:
    """Returns how often both models predict the same class and, with labels, the right one; None if the model is not a
    classifier."""
    if before[0][0].ndim != 2 or before[0][0].shape[1] < 2 or before[0][0].dtype.kind != "f":
        return None
    first, second = (np.concatenate([run[0].argmax(1) for run in runs]) for runs in (before, after))
    facts: dict[str, Any] = {"samples": len(first), "agreement": float((first == second).mean())}
    if labels is not None and labels.size == len(first):
        facts |= {name: float((found == labels.reshape(-1)).mean())
                  for name, found in (("before", first), ("after", second))}
    return facts


def text(report: dict) -> str:
    """Returns the report of `quantize` for people: sums, and a table of the layers."""
    size, reached = report["bytes"], report["signal_to_noise"]
    lines = [f"{report['model']} → {report['output']}: {size['before']:,} → {size['after']:,} bytes",
             f"  calibrated by {report['method']} on {report['samples']} samples ("
             + ", ".join(f"{name} {noise:.1f} dB" for name, noise in report["methods"].items()) + ")",
             f"  outputs have {reached:.1f} dB of signal to noise"
             + (f", less than the {report['enough']:g} dB wanted" if round(reached, 1) < report["enough"] else "")]
    if report["kept_float"]:
        lines.append(f"  float stayed: {', '.join(report['kept_float'])}")
    accuracy = report["accuracy"]
    if accuracy:
        lines.append(f"  of {accuracy['samples']} samples {accuracy['agreement']:.2%} have the class that the float "
                     "model gives them" + (f"; accuracy {accuracy['before']:.2%} → {accuracy['after']:.2%}"
                                     if "before" in accuracy else ""))
    lines += timing.text(report)
    lines.append(f"  {'layer':32} {'kind':8} {'dB':>6} {'alone':>6} {'bytes':>19} {'µs':>15}")
    for row in report["layers"]:
        ratio, alone = (f"{row[key]:6.1f}" if row[key] is not None else "     -"
                        for key in ("signal_to_noise", "alone"))
        times = row.get("seconds") or {}
        spent = "→".join(f"{1e6 * times[when]:.1f}" for when in ("before", "after")) if times else ""
        kind = row["kind"] if row["integers"] else "float"
        lines.append(f"  {shortened(row['name'], 32):32} {kind:8} {ratio} {alone} "
                     f"{row['bytes']['before']:>9,}→{row['bytes']['after']:<9,} {spent:>14}")
    return "\n".join(lines) + "\n"
