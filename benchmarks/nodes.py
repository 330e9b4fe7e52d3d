# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each, cut out of real models: their shapes, attributes and weights are those of practice."""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as tflite
from onnx import TensorProto, helper, numpy_helper

#: Extents for free dimensions of a model's inputs: of the first axis, of the others of images, of all others.
BATCH, IMAGE, LENGTH = 1, 224, 64
#: Files beyond this have layers like those of smaller models, and take long to read.
LARGEST_FILE = 400 << 20
#: Operators that do no work of their own, or whose work other operators in them do.
LEFT_OUT = {"Constant", "Identity", "If", "Loop", "Scan", "SequenceMap", "CALL_ONCE", "IF", "WHILE", "CALL",
            "DELEGATE", "CUSTOM", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
TFLITE_NAMES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if not name.startswith("_")}
TFLITE_DTYPES = {value: name.lower() for name, value in vars(tflite.TensorType).items() if not name.startswith("_")}


@dataclass
class Case:
    """A model of one operator.

    operator: as ONNX or TFLite call it; `Conv (QDQ)` is one between DequantizeLinear and QuantizeLinear. dtype: of its
    first operand. signature: the types of its operands. elements: of all operands and results together. file: the
    model. models: names of those that have such an operator.
    """

    operator: str
    dtype: str
    signature: str
    elements: int
    file: bytes
    suffix: str
    models: set[str] = field(default_factory=set)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.file).hexdigest()[:16]


def cases_of(files: Iterable[Path], shapes: int, report: Callable[[str], None]) -> list[Case]:
    """Returns up to `shapes` cases of each operator and dtype, from small to large, of all these files."""
    found: dict[tuple[str, str, str], Case] = {}
    for file in files:
        if file.stat().st_size > LARGEST_FILE:
            continue
        try:
            for case in (tflite_cases if file.suffix == ".tflite" else onnx_cases)(file):
                name = file.parent.name if file.stem == "model" else file.stem
                found.setdefault((case.operator, case.dtype, case.signature), case).models.add(name)
        except Exception as error:  # a file of any origin; the benchmark goes on with the others
            report(f"{file}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in found.values():
        groups[case.operator, case.dtype].append(case)
    return [case for group in groups.values() for case in spread(sorted(group, key=lambda case: case.elements), shapes)]


def spread(cases: list[Case], count: int) -> list[Case]:
    """Returns `count` cases at equal distances, the first and the last among them."""
    if len(cases) <= count:
        return cases
    return [cases[round(index * (len(cases) - 1) / (count - 1))] for index in range(count)]


# ONNX

def onnx_cases(file: Path) -> Iterator[Case]:
    """Yields a case for each node of the main graph whose operands have known shapes."""
    model = onnx.load(file)
    graph = model.graph
    fix_free_dimensions(graph)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output) if is_static(value)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = copy.deepcopy(node.attribute[0].t)
            constants[node.output[0]].name = node.output[0]
    producers = {name: node for node in graph.node for name in node.output}
    folded: set[str] = set()
    for node in graph.node:
        if all(not name or name in folded or name in constants for name in node.input):
            folded.update(node.output)
    consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            consumers[name].append(node)
    groups = [with_quantisation(node, producers, consumers) for node in graph.node
              if node.op_type not in LEFT_OUT and not any(attribute.HasField("g") for attribute in node.attribute)]
    inside = {node.output[0] for nodes, _ in groups if len(nodes) > 1 for node in nodes}
    for nodes, label in groups:
        if len(nodes) == 1 and (nodes[0].output[0] in inside or not folded.isdisjoint(nodes[0].input)):
            continue
        case = onnx_case(model, nodes, label, types, constants)
        if case is not None:
            yield case


def fix_free_dimensions(graph: onnx.GraphProto) -> None:
    """Gives the free dimensions of inputs extents, and forgets those of all other values."""
    constants = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if not dim.HasField("dim_value") or dim.dim_value <= 0:
                dim.dim_value = BATCH if axis == 0 else IMAGE if len(dims) == 4 else LENGTH
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def is_static(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return (value.type.HasField("tensor_type") and tensor.HasField("shape") and tensor.elem_type != TensorProto.STRING
            and all(dim.HasField("dim_value") for dim in tensor.shape.dim))


def with_quantisation(node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto],
                      consumers: Mapping[str, list[onnx.NodeProto]]) -> tuple[list[onnx.NodeProto], str]:
    """Returns the node, with the DequantizeLinear before it and the QuantizeLinear behind it if it is quantised so."""
    before = [producers[name] for name in node.input if name in producers
              and producers[name].op_type == "DequantizeLinear"]
    label = node.op_type + variant(node)
    if not before or node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return [node], label
    nodes = [*{each.output[0]: each for each in before}.values(), node]
    after = node
    while len(after.output) == 1 and len(consumers[after.output[0]]) == 1:
        (after,) = consumers[after.output[0]]
        if after.op_type not in ("Relu", "Clip", "QuantizeLinear"):
            break
        nodes.append(after)
        if after.op_type == "QuantizeLinear":
            return nodes, f"{label} (QDQ)"
    return [node], label


def variant(node: onnx.NodeProto) -> str:
    """Names the kinds of convolution that run in kernels of their own."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if "Conv" not in node.op_type:
        return ""
    if values.get("group", 1) > 1:
        return " in groups"
    return " 1x1" if set(values.get("kernel_shape", ())) == {1} else ""


def onnx_case(model: onnx.ModelProto, nodes: list[onnx.NodeProto], label: str,
              types: Mapping[str, onnx.ValueInfoProto], constants: Mapping[str, TensorProto]) -> Case | None:
    """Returns a case of these nodes, None if the type of an operand is not known or nothing is computed at a run."""
    inside = {name for node in nodes for name in node.output}
    names = list(dict.fromkeys(name for node in nodes for name in node.input if name and name not in inside))
    inputs = [name for name in names if name not in constants]
    if not inputs or not all(name in types for name in inputs):
        return None
    weights = [constants[name] for name in names if name in constants]
    outputs = [onnx.ValueInfoProto(name=name) for name in nodes[-1].output if name]
    graph = helper.make_graph(nodes, "one", [types[name] for name in inputs], outputs, weights)
    used = {node.domain for node in nodes}
    single = helper.make_model(graph, ir_version=model.ir_version, opset_imports=[
        opset for opset in model.opset_import if opset.domain in used or not opset.domain])
    written, elements = [], 0
    for name in names:
        if name in constants:
            tensor = constants[name]
            dtype, shape = tensor.data_type, list(tensor.dims)
            value = numpy_helper.to_array(tensor) if np.prod(shape) <= 8 and not tensor.external_data else None
        else:
            tensor = types[name].type.tensor_type
            dtype, shape, value = tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim], None
        elements += int(np.prod(shape))
        spelled = helper.tensor_dtype_to_np_dtype(dtype).name + str(shape).replace(" ", "")
        written.append(spelled if value is None or value.dtype.kind == "f" else f"{spelled}={value.tolist()}")
    attributes = " ".join(f"{attribute.name}={helper.get_attribute_value(attribute)}" for node in nodes
                          for attribute in node.attribute if attribute.type != onnx.AttributeProto.TENSOR)
    first = next(name for name in names if name in inputs)
    return Case(label, helper.tensor_dtype_to_np_dtype(types[first].type.tensor_type.elem_type).name,
                " ".join([*written, attributes]).strip(), elements, single.SerializeToString(), ".onnx")


# TFLite

def tflite_cases(file: Path) -> Iterator[Case]:
    """Yields a case for each operator of the first subgraph whose operands have known shapes."""
    model = tflite.ModelT.InitFromObj(tflite.Model.GetRootAs(file.read_bytes()))
    subgraph = model.subgraphs[0]
    # Weights of 16 bits that an operator widens are constants to everybody who reads them.
    folded: set[int] = set()
    for operator in subgraph.operators:
        if all(index < 0 or index in folded or has_data(model, subgraph.tensors[index]) for index in operator.inputs):
            folded.update(operator.outputs)
    for operator in subgraph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        name = TFLITE_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        tensors = [subgraph.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
        if name in LEFT_OUT or not folded.isdisjoint(operator.inputs) \
                or any(tensor.isVariable or tensor.shape is None for tensor in tensors):
            continue
        case = tflite_case(model, operator, name)
        if case is not None:
            yield case


def has_data(model, tensor) -> bool:
    """Says whether a tensor is a constant."""
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def tflite_case(model, operator, name: str) -> Case | None:
    """Returns a case of an operator, None if nothing is computed at a run."""
    old = model.subgraphs[0]
    indices = list(dict.fromkeys(index for index in (*operator.inputs, *operator.outputs) if index >= 0))
    places = {index: position for position, index in enumerate(indices)} | {-1: -1}
    single, subgraph, moved = tflite.ModelT(), tflite.SubGraphT(), copy.copy(operator)
    single.version, single.description = model.version, "one operator"
    single.buffers = [tflite.BufferT()]
    subgraph.tensors, inputs, written, elements = [], [], [], 0
    for index in indices:
        tensor = copy.copy(old.tensors[index])
        constant = has_data(model, tensor)
        tensor.buffer, tensor.shapeSignature = (len(single.buffers) if constant else 0), None
        if constant:
            single.buffers.append(model.buffers[old.tensors[index].buffer])
        elif index in operator.inputs:
            inputs.append(places[index])
        subgraph.tensors.append(tensor)
        elements += int(np.prod(tensor.shape))
        if index in operator.inputs:
            written.append(TFLITE_DTYPES[tensor.type] + str(list(map(int, tensor.shape))).replace(" ", ""))
    if not inputs:
        return None
    moved.inputs = [places[index] for index in operator.inputs]
    moved.outputs = [places[index] for index in operator.outputs]
    moved.opcodeIndex = 0
    subgraph.inputs, subgraph.outputs, subgraph.operators = inputs, list(moved.outputs), [moved]
    single.operatorCodes, single.subgraphs = [model.operatorCodes[operator.opcodeIndex]], [subgraph]
    options = vars(moved.builtinOptions) if moved.builtinOptions else {}
    attributes = " ".join(f"{key}={value}" for key, value in options.items() if np.isscalar(value))
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(single.Pack(builder), b"TFL3")
    return Case(name, TFLITE_DTYPES[subgraph.tensors[inputs[0]].type], " ".join([*written, attributes]).strip(),
                elements, bytes(builder.Output()), ".tflite")
