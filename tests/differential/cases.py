# SPDX-License-Identifier: Apache-2.0
"""Models of one drawn operator. The same seed and number make the same case."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .draw import Draw, Undrawn, by_schema, element_type
from .rules import RULES, sequences

OPSETS = range(7, 27)
#: Cases in a row that have one opset, so that one model can hold them.
SAME_OPSET = 100
#: Drawn by other tests (graphs within), or nothing to draw.
ELSEWHERE = {"If", "Loop", "Scan", "SequenceMap", "Constant", "ImageDecoder", "RegexFullMatch", "StringSplit",
             "StringConcat"}
#: Results are not the same twice.
RANDOM = frozenset(("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                    "RandomUniformLike"))


@dataclass(frozen=True, eq=False)
class Case:
    """model: of one operator. feeds: of its inputs. label: operator, version, dtypes, attributes, for a reader.

    dtypes: of the type variables of the schema that were drawn. attributes: of the operator. dims: ranges of dimensions
    by name, as `compile` takes them.
    """

    seed: int
    number: int
    kind: str
    opset: int
    label: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    dtypes: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, object] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)


@cache
def kinds(opset: int) -> tuple[str, ...]:
    """Operators of the opset that are drawn."""
    found = {schema.name for schema in onnx.defs.get_all_schemas_with_history()
             if schema.domain == "" and schema.since_version <= opset}
    return tuple(sorted(name for name in found - ELSEWHERE if _schema(name, opset) is not None))


def _schema(name: str, opset: int) -> onnx.defs.OpSchema | None:
    schema = onnx.defs.get_schema(name, opset, "")
    if name in sequences.RULES:
        return schema
    types = [formal.type_str for formal in (*schema.inputs, *schema.outputs)]
    whole = [row for row in schema.type_constraints if row.type_param_str in types]
    if schema.deprecated or any(text.startswith(("seq(", "optional(", "map(")) for text in types) or any(
            all(text.startswith(("seq(", "optional(", "map(")) for text in row.allowed_type_strs) for row in whole):
        return None
    return schema


def drawn(seed: int, number: int, only: str = "") -> Case:
    """only: an operator; "" for any. `SAME_OPSET` numbers in a row have one opset.

    Raises:
        Undrawn: no rule makes such a case.
    """
    opset = OPSETS[int(np.random.default_rng([seed, number // SAME_OPSET]).integers(len(OPSETS)))]
    rng = np.random.default_rng([seed, number, zlib.crc32(only.encode())])
    names = kinds(opset)
    name = only or names[int(rng.integers(len(names)))]
    if name not in names:
        raise Undrawn(f"{name} is not in opset {opset}")
    schema = onnx.defs.get_schema(name, opset, "")
    draw = Draw(rng, schema, opset)
    RULES.get(name, by_schema)(draw)
    return _case(draw, seed, number)


def _case(draw: Draw, seed: int, number: int) -> Case:
    names, inputs, constants, feeds = [], [], [], {}
    for place, operand in enumerate(draw.operands):
        if operand.array is None:
            names.append("")
        elif operand.twin >= 0:
            names.append(names[operand.twin])
        else:
            names.append(f"x{place}")
            if operand.constant:
                constants.append(numpy_helper.from_array(np.asarray(operand.array), names[-1]))
            else:
                feeds[names[-1]] = np.asarray(operand.array)
                inputs.append(helper.make_tensor_value_info(names[-1], element_type(feeds[names[-1]]),
                                                            feeds[names[-1]].shape))
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{place}" for place in range(draw.outputs)]
    nodes = draw.nodes
    if not nodes:
        node = helper.make_node(draw.schema.name, names, outputs)
        node.attribute.extend(helper.make_attribute(name, value, attr_type=draw.schema.attributes[name].type.value)
                              for name, value in draw.attributes.items())
        nodes = [node]
    values = [onnx.ValueInfoProto(name=name) for name in outputs]
    if (constants or feeds) and draw.chance(0.05):  # an initializer or an input as a result, too
        name = draw.one([tensor.name for tensor in constants] or list(feeds))
        array = feeds[name] if name in feeds else numpy_helper.to_array(
            next(tensor for tensor in constants if tensor.name == name))
        values.append(helper.make_tensor_value_info(name, element_type(array), array.shape))
    graph = helper.make_graph(nodes, "case", inputs, values, constants)
    opset = draw.opset
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:  # gives the outputs their types
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise Undrawn(str(error)) from error
    shapes = ", ".join("-" if each.array is None else
                       f"{'const ' if each.constant else ''}{each.array.dtype}{list(each.array.shape)}"
                       for each in draw.operands)
    attributes = " ".join(f"{name}={str(value)[:60]}" for name, value in draw.attributes.items())
    return Case(seed, number, draw.schema.name, opset,
                f"{seed}:{number} {draw.schema.name}-{opset} {shapes} {attributes}", model, feeds,
                draw.dtypes, draw.attributes)
