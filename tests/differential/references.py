# SPDX-License-Identifier: Apache-2.0
"""Answers to compare with: of ONNX Runtime unoptimised, of ONNX's reference evaluator, of ONNX Runtime in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import helper, numpy_helper

from .cases import RANDOM, Case
from .specified import of_specification, with_pads

Outputs = dict[str, np.ndarray]
#: Largest error, relative to the largest magnitude of an output, or to 1.
TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}


def names_of(case: Case) -> list[str]:
    return [value.name for value in case.model.graph.output]


def of_onnxruntime(case: Case) -> Outputs:
    return _run(case.model, case.feeds)


def of_onnx(case: Case) -> Outputs:
    found = onnx.reference.ReferenceEvaluator(case.model).run(None, case.feeds)
    return dict(zip(names_of(case), map(np.asarray, found), strict=True))


def of_opset_21(case: Case) -> Outputs:
    """ONNX Runtime on an operator as it was before version 22 of the operator set let bfloat16 in.

    Raises:
        ValueError: it is not newer, or something else has changed.
    """
    new, old = (onnx.defs.get_schema(case.kind, opset, "") for opset in (case.opset, 21))
    if old.since_version == new.since_version or set(old.attributes) != set(new.attributes) \
            or [formal.name for formal in old.inputs] != [formal.name for formal in new.inputs]:
        raise ValueError("is not what it was")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.opset_import[0].version = 21
    return _run(model, case.feeds)


def of_declared(case: Case) -> Outputs:
    """Zeros of the types that ONNX infers: random numbers are compared by these alone.

    Raises:
        ValueError: they are not random, or an extent is not known.
    """
    types = [value.type.tensor_type for value in case.model.graph.output]
    if case.kind not in RANDOM or not all(dim.HasField("dim_value") for type_ in types for dim in type_.shape.dim):
        raise ValueError("has numbers of its own")
    return {value.name: np.zeros([dim.dim_value for dim in type_.shape.dim], _dtype(value))
            for value, type_ in zip(case.model.graph.output, types, strict=True)}


def of_float32(case: Case) -> Outputs:
    """ONNX Runtime on the same numbers in float32, which more of its operators take.

    Raises:
        ValueError: nothing in the case can be made float32, or results are of a type with integers that no float32 is.
    """
    model, feeds = onnx.ModelProto(), dict(case.feeds)
    model.CopyFrom(case.model)
    (node,) = model.graph.node
    variables = _widened(case)
    if not variables:
        raise ValueError("is in float32 already")
    schema = onnx.defs.get_schema(case.kind, case.opset, "")
    formals = schema.inputs
    wide = {name: formals[min(place, len(formals) - 1)].type_str for place, name in enumerate(node.input)
            if name and formals[min(place, len(formals) - 1)].type_str in variables}
    exact = {formal.type_str for formal in schema.outputs}
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | feeds
    if any(variable in exact and _beyond_float32(known[name]) for name, variable in wide.items()):
        raise ValueError("has results of integers that no float32 is")
    for value in model.graph.input:
        if value.name in wide:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            feeds[value.name] = feeds[value.name].astype(np.float32)
    for tensor in model.graph.initializer:
        if tensor.name in wide:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for attribute in node.attribute:
        if attribute.name == "output_datatype":
            attribute.i = onnx.TensorProto.FLOAT
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.ClearField("type")
    dtypes = [_dtype(value) for value in case.model.graph.output]
    formals = schema.outputs
    dtypes = [np.dtype(case.dtypes.get(formals[min(place, len(formals) - 1)].type_str, dtype))
              if dtype.kind == "O" else dtype for place, dtype in enumerate(dtypes)]
    return {name: array.astype(dtype) if array.dtype == np.float32 else array
            for (name, array), dtype in zip(_run(model, feeds).items(), dtypes, strict=True)}


def _beyond_float32(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and bool((np.abs(array.astype(np.float64)) > 2**24).any())


def of_explicit_pads(case: Case) -> Outputs:
    """ONNX Runtime on a window's pads as numbers."""
    explicit = replace(case, model=with_pads(case))
    try:
        return of_onnxruntime(explicit)
    except Exception:
        return of_float32(explicit)


def _widened(case: Case) -> set[str]:
    """Type variables of numbers that the case has in another type than float32, which the schema allows too."""
    schema = onnx.defs.get_schema(case.kind, case.opset, "")
    rows = {row.type_param_str for row in schema.type_constraints if "tensor(float)" in row.allowed_type_strs}
    return {name for name in rows
            if np.dtype(case.dtypes.get(name, "float32")).kind in "fui" and case.dtypes.get(name) != "float32"}


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Outputs:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([value.name for value in model.graph.output], session.run(None, feeds), strict=True))


#: Answers, the best first, with the tolerance where it is not that of the output's type.
ANSWERS: tuple[tuple[Callable[[Case], Outputs], float], ...] = (
    (of_onnxruntime, 0), (of_onnx, 0), (of_float32, 2e-5), (of_specification, 0),
    (of_explicit_pads, 2e-5), (of_declared, 0),
    (of_opset_21, 0))


def references(case: Case) -> Iterator[tuple[Outputs, float]]:
    """Answers and their tolerances, 0 for that of the type. One of another type than ONNX infers is none, nor is one
    of ONNX's evaluator of another shape."""
    for answer, tolerance in ANSWERS:
        try:
            with np.errstate(all="ignore"):
                found = answer(case)
        except Exception:  # each has cases that it does not know, and says so in many ways
            continue
        if all(_fits(found[value.name], value, answer is of_onnx) for value in case.model.graph.output
               if value.name in found):
            yield found, tolerance


def _dtype(value: onnx.ValueInfoProto) -> np.dtype:
    element = value.type.tensor_type.elem_type
    unnamed = (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED)
    return np.dtype(object) if element in unnamed else helper.tensor_dtype_to_np_dtype(element)


def _fits(array: np.ndarray, value: onnx.ValueInfoProto, shape: bool) -> bool:
    type_ = value.type.tensor_type
    if not isinstance(array, np.ndarray) or (type_.elem_type and _dtype(value) not in (array.dtype, np.dtype(object))):
        return False
    if type_.elem_type == onnx.TensorProto.STRING and not all(isinstance(text, str | bytes) for text in array.flat):
        return False  # the evaluator pads strings with the number 0
    return not shape or not type_.HasField("shape") or (len(type_.shape.dim) == array.ndim and all(
        not dim.HasField("dim_value") or dim.dim_value == extent
        for dim, extent in zip(type_.shape.dim, array.shape, strict=True)))


def differs(found: Outputs, wanted: Outputs, tolerance: float = 0) -> str:
    """How, "" where it does not. tolerance: the least; from 1 on it is a difference of integers too."""
    return next(filter(None, (_differs(found[name], array, tolerance) for name, array in wanted.items())), "")


def _differs(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> str:
    if wanted.dtype.kind == "U":
        wanted = wanted.astype(object)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "ui" and tolerance >= 1:
        where = np.abs(found.astype(np.int64) - wanted.astype(np.int64)) > tolerance
        return f"{int(where.sum())} of {where.size} differ" if where.any() else ""
    if wanted.dtype.kind != "f":
        where = found != wanted
        return f"{int(where.sum())} of {where.size} differ" if where.any() else ""
    with np.errstate(all="ignore"):
        real, other = wanted.astype(np.float64), found.astype(np.float64)
        same = (real == other) | (np.isnan(real) & np.isnan(other))
        apart = np.where(same, 0, np.abs(real - other))
        limit = max(tolerance, TOLERANCE[wanted.dtype.name]) * np.abs(real[np.isfinite(real)]).max(initial=1)
        where = ~(apart <= limit)
    return f"{int(where.sum())} of {where.size} differ, by up to {apart.max():.4g}" if where.any() else ""
