# SPDX-License-Identifier: Apache-2.0
"""Small models of every family of operators, and what a seeded generator makes of them: wrong types and ranks,
attributes out of range, operands that are missing, constants that lie, bytes that are cut.

    python -m tests.unit.frontends.malformed FIRST COUNT        # a line of JSON for each model, within 4 GB
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import warnings

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

#: Address space of the process in bytes, seconds of CPU time for one model.
MEMORY, SECONDS = 4 << 30, 30

F, I = np.float32, np.int64  # noqa: E741
Q = (F(0.05), np.uint8(3))


def _ones(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=F).reshape(shape) % 7 - 3) / 4


#: operator -> shape of the input, attributes, operands behind it (arrays are constants), number of outputs.
SEEDS = {
    "Conv": ((1, 4, 6, 6), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, [_ones(8, 4, 3, 3), _ones(8)]),
    "ConvTranspose": ((1, 4, 5, 5), {"strides": [2, 2], "output_padding": [1, 1]}, [_ones(4, 2, 3, 3)]),
    "MaxPool": ((1, 4, 6, 6), {"kernel_shape": [2, 2], "ceil_mode": 1}, []),
    "AveragePool": ((1, 4, 6, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, []),
    "GlobalAveragePool": ((1, 4, 6, 6), {}, []), "LpPool": ((1, 4, 6, 6), {"kernel_shape": [2, 2], "p": 2}, []),
    "MatMul": ((2, 3, 4), {}, [_ones(4, 5)]), "Gemm": ((3, 4), {"alpha": 0.5, "transB": 1}, [_ones(5, 4), _ones(5)]),
    "Einsum": ((2, 3), {"equation": "ij,jk->ik"}, [_ones(3, 4)]),
    "Add": ((2, 3), {}, [_ones(3)]), "Div": ((2, 3), {}, [_ones(3) + 2]), "Pow": ((2, 3), {}, [F(2)]),
    "Clip": ((2, 3), {}, [F(-1), F(1)]), "Where": ((2, 3), {}, [_ones(3)]), "Erf": ((2, 3), {}, []),
    "LeakyRelu": ((2, 3), {"alpha": 0.1}, []), "PRelu": ((2, 3), {}, [_ones(3)]), "Gelu": ((2, 3), {}, []),
    "BatchNormalization": ((1, 4, 3, 3), {"epsilon": 1e-3}, [_ones(4), _ones(4), _ones(4), _ones(4) + 2]),
    "LayerNormalization": ((2, 3, 4), {"axis": -1}, [_ones(4), _ones(4)]),
    "InstanceNormalization": ((1, 4, 3, 3), {}, [_ones(4), _ones(4)]),
    "GroupNormalization": ((1, 4, 3, 3), {"num_groups": 2}, [_ones(4), _ones(4)]),
    "LRN": ((1, 4, 3, 3), {"size": 3}, []), "Softmax": ((2, 3, 4), {"axis": 1}, []),
    "Hardmax": ((2, 3), {"axis": 1}, []),
    "ReduceMean": ((2, 3, 4), {"keepdims": 0}, [I([1])]), "ReduceMax": ((2, 3, 4), {}, [I([0, 2])]),
    "ArgMax": ((2, 3, 4), {"axis": 1, "select_last_index": 1}, []), "CumSum": ((2, 3), {"reverse": 1}, [I(1)]),
    "TopK": ((2, 5), {"axis": 1, "largest": 0}, [I([3])], 2),
    "Reshape": ((2, 3, 4), {"allowzero": 0}, [I([0, -1])]), "Transpose": ((2, 3, 4), {"perm": [2, 0, 1]}, []),
    "Squeeze": ((2, 1, 4), {}, [I([1])]), "Unsqueeze": ((2, 4), {}, [I([0, 3])]),
    "Flatten": ((2, 3, 4), {"axis": 2}, []),
    "Slice": ((4, 5), {}, [I([1, 0]), I([4, 5]), I([0, 1]), I([1, 2])]), "Split": ((6, 2), {"axis": 0}, [I([2, 4])], 2),
    "Concat": ((2, 3), {"axis": 1}, [_ones(2, 2)]), "Expand": ((1, 3), {}, [I([2, 1, 3])]),
    "Tile": ((2, 3), {}, [I([2, 1])]), "Pad": ((2, 3), {"mode": "reflect"}, [I([1, 0, 0, 2])]),
    "Gather": ((4, 3), {"axis": 0}, [I([[0, 3], [-1, 1]])]),
    "GatherElements": ((2, 3), {"axis": 1}, [I([[0, 2], [1, 0]])]),
    "GatherND": ((2, 3, 4), {"batch_dims": 1}, [I([[1, 2], [0, 3]])]),
    "ScatterElements": ((3, 3), {"axis": 1, "reduction": "add"}, [I([[0, 1]]), _ones(1, 2)]),
    "ScatterND": ((4, 2), {}, [I([[1], [3]]), _ones(2, 2)]),
    "ReverseSequence": ((4, 3), {"time_axis": 0}, [I([1, 4, 2])]),
    "OneHot": ((2, 3), {"axis": 1}, [I(4), F([0, 1])]),
    "Trilu": ((3, 4), {"upper": 0}, [I(1)]),
    "DepthToSpace": ((1, 8, 2, 2), {"blocksize": 2, "mode": "CRD"}, []),
    "SpaceToDepth": ((1, 2, 4, 4), {"blocksize": 2}, []),
    "Resize": ((1, 2, 3, 3), {"mode": "linear"}, ["", F([1, 1, 2, 1.5])]),
    "GridSample": ((1, 2, 4, 4), {"mode": "linear"}, [_ones(1, 3, 3, 2)]),
    "RoiAlign": ((1, 2, 6, 6), {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
                 [_ones(2, 4) + 2, I([0, 0])]),
    "LSTM": ((3, 2, 4), {"hidden_size": 5}, [_ones(1, 20, 4), _ones(1, 20, 5), _ones(1, 40)], 3),
    "GRU": ((3, 2, 4), {"hidden_size": 5, "linear_before_reset": 1}, [_ones(1, 15, 4), _ones(1, 15, 5)], 2),
    "RNN": ((3, 2, 4), {"hidden_size": 5, "direction": "reverse"}, [_ones(1, 5, 4), _ones(1, 5, 5)], 2),
    "QuantizeLinear": ((2, 3), {"axis": 1}, list(Q)), "DFT": ((1, 8, 1), {"onesided": 1}, [I(8), I(1)]),
    "Range": ((2,), {}, [F(0), F(5), F(1)]), "Det": ((2, 3, 3), {}, []), "Cast": ((2, 3), {"to": TensorProto.INT8}, []),
    "Col2Im": ((1, 4, 9), {}, [I([4, 4]), I([2, 2])]), "Attention": ((1, 2, 3, 4), {}, [_ones(1, 2, 3, 4)] * 2),
    "NonMaxSuppression": ((1, 5, 4), {}, [_ones(1, 1, 5), I(3), F(0.5), F(0.0)]), "Shape": ((2, 3), {"start": 1}, []),
    "STFT": ((1, 16, 1), {}, [I(4), _ones(8) + 1]), "If": ((), {}, []), "Loop": ((2,), {}, []),
}
NUMBERS = (0, 1, -1, 2, 3, 7, -2, 100, 1 << 20, 2**31 - 1, 2**31, -2**31, 2**62, -2**63, 2**63 - 1)
#: Bytes of a value from which on the meaning is not computed: a million steps of a GRU take Python minutes.
LARGEST = 1 << 16
#: ONNX's evaluator has the meaning of some older operators wrong (Softmax, BatchNormalization), and that of numbers
#: that are none differs between all implementations.
NEWEST_MEANING = 14
DTYPES = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL,
          TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.STRING, TensorProto.BFLOAT16,
          TensorProto.COMPLEX64, TensorProto.UINT64, 0, 99)


def seed_model(kind: str) -> onnx.ModelProto:
    """A model of one operator between an elementwise one before and one behind it."""
    shape, attributes, operands, *more = SEEDS[kind]
    names, constants = ["h"], []
    for index, operand in enumerate(operands):
        names.append("" if isinstance(operand, str) else f"c{index}")
        if names[-1]:
            constants.append(numpy_helper.from_array(np.asarray(operand), names[-1]))
    if kind == "Where":
        names = ["b", *names]
        constants.append(numpy_helper.from_array(np.array([True, False, True]), "b"))
    names = names[1:] if kind == "Range" else names
    outputs = [f"r{index}" for index in range(more[0] if more else 1)]
    nodes = [helper.make_node("Abs", ["x"], ["h"])]
    if kind in ("If", "Loop"):
        nodes.append(_nested(kind))
        constants += [helper.make_tensor("c", TensorProto.BOOL, [], [True]),
                      helper.make_tensor("n", TensorProto.INT64, [], [2])]
    elif kind == "OneHot":
        nodes += [helper.make_node("Cast", ["h"], ["i"], to=TensorProto.INT64),
                  helper.make_node(kind, ["i", *names[1:]], outputs, **attributes)]
    else:
        nodes.append(helper.make_node(kind, names, outputs, kind.lower(), **attributes))
    nodes.append(helper.make_node("Identity", [outputs[0]], ["y"]))
    graph = helper.make_graph(
        nodes, "seed", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)], constants)
    graph.output[0].ClearField("type")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24 if kind == "Attention" else 22)],
                             ir_version=10)


def _nested(kind: str) -> onnx.NodeProto:
    one = helper.make_tensor("one", TensorProto.BOOL, [], [True])
    value = helper.make_tensor_value_info
    if kind == "If":
        branches = {f"{name}_branch": helper.make_graph([helper.make_node(op, ["h"], ["b"])], name, [],
                                                        [value("b", TensorProto.FLOAT, None)])
                    for name, op in (("then", "Sin"), ("else", "Cos"))}
        return helper.make_node("If", ["c"], ["r0"], "if", **branches)
    body = helper.make_graph([helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Identity", ["k"], ["l"])],
                             "body", [value("i", TensorProto.INT64, []), value("k", TensorProto.BOOL, []),
                                      value("s", TensorProto.FLOAT, None)],
                             [value("l", TensorProto.BOOL, []), value("t", TensorProto.FLOAT, None)], [one])
    return helper.make_node("Loop", ["n", "", "h"], ["r0"], "loop", body=body)


class Mutator:
    """Changes a model in place, by what the generator says."""

    def __init__(self, generator: random.Random):
        self.random = generator

    def mutate(self, model: onnx.ModelProto) -> None:
        getattr(self, self.random.choice(MUTATIONS))(model.graph, model)

    def node(self, graph) -> onnx.NodeProto:
        return graph.node[self.random.choice([1, 1, 1, 0, len(graph.node) - 1])]

    def number(self, graph, _model) -> None:
        """An attribute's number, or one of its numbers, out of range."""
        attributes = [a for a in self.node(graph).attribute if a.type in (AttributeProto.INT, AttributeProto.INTS)]
        for attribute in self.random.sample(attributes, min(1, len(attributes))):
            if attribute.type == AttributeProto.INT:
                attribute.i = self.random.choice(NUMBERS)
            elif attribute.ints:
                attribute.ints[self.random.randrange(len(attribute.ints))] = self.random.choice(NUMBERS)

    def length(self, graph, _model) -> None:
        """A list that is too long, too short or empty."""
        for attribute in self.node(graph).attribute:
            if attribute.type == AttributeProto.INTS:
                values = list(attribute.ints)
                del attribute.ints[:]
                attribute.ints.extend(self.random.choice([[], values[:-1], values * 2, [*values, 1], values * 5000]))

    def attribute(self, graph, _model) -> None:
        """An attribute of another type, or none, or one that nobody knows."""
        node = self.node(graph)
        names = [a.name for a in node.attribute] or ["axis", "to", "mode", "surprise"]
        name = self.random.choice(names)
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        value = self.random.choice([None, 1.5, float("nan"), "text", b"\xff", [1.5], ["a"], 3, [3], np.ones(2, F),
                                    np.array("s"), self.random.choice(NUMBERS)])
        if value is not None:
            value = numpy_helper.from_array(value.astype(object) if value.dtype.kind == "U" else value) \
                if isinstance(value, np.ndarray) else value
            node.attribute.append(helper.make_attribute(name, value))

    def operand(self, graph, _model) -> None:
        """An operand that is missing, in another's place, its own result, or there too often."""
        node = self.node(graph)
        names = list(node.input)
        what = self.random.randrange(6)
        if what == 0 and names:
            names[self.random.randrange(len(names))] = ""
        elif what == 1 and names:
            names.pop(self.random.randrange(len(names)))
        elif what == 2:
            self.random.shuffle(names)
        elif what == 3 and names:
            names[self.random.randrange(len(names))] = self.random.choice(["x", "y", "r0", "nothing", "h"])
        elif what == 4:
            names += names + [names[0] if names else "x"] * 3
        else:
            names = []
        del node.input[:]
        node.input.extend(names)

    def results(self, graph, _model) -> None:
        """Too many, too few, or twice the same results."""
        node = self.node(graph)
        names = self.random.choice([[], [""], [*node.output, "more", "most"], [*node.output] * 2, ["x"], ["c0"]])
        del node.output[:]
        node.output.extend(names)

    def constant(self, graph, _model) -> None:
        """A constant of other values."""
        if graph.initializer:
            tensor = self.random.choice(graph.initializer)
            array = np.array(numpy_helper.to_array(tensor))
            if array.size and array.dtype.kind in "iu":
                limits = np.iinfo(array.dtype)
                array.flat[self.random.randrange(array.size)] = min(max(self.random.choice(NUMBERS), limits.min),
                                                                    limits.max)
            elif array.size and array.dtype.kind == "f":
                array.flat[self.random.randrange(array.size)] = self.random.choice(
                    [np.nan, np.inf, -np.inf, 0, 1e30, -1, 1e-40])
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    def shape_of_constant(self, graph, _model) -> None:
        """A constant of another shape or type."""
        if graph.initializer:
            tensor = self.random.choice(graph.initializer)
            array = np.array(numpy_helper.to_array(tensor))
            changes = [lambda: array[None], lambda: array.reshape(-1), lambda: array[..., None], lambda: array[:0],
                       lambda: array.astype(F), lambda: array.astype(I), lambda: array.astype(np.int8),
                       lambda: array.astype(bool), lambda: np.concatenate([array.reshape(-1)] * 2),
                       lambda: array.reshape(-1)[:1], lambda: array.reshape((1,) * 9 + array.shape)]
            try:
                array = self.random.choice(changes)()
            except IndexError:
                array = array.reshape(1, 1)
            with np.errstate(all="ignore"):
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))

    def lie(self, graph, _model) -> None:
        """A constant whose extents, type and data say different things."""
        if graph.initializer:
            tensor = self.random.choice(graph.initializer)
            what = self.random.randrange(5)
            if what == 0:
                tensor.dims.append(self.random.choice(NUMBERS))
            elif what == 1 and tensor.dims:
                tensor.dims[0] = self.random.choice(NUMBERS)
            elif what == 2:
                tensor.data_type = self.random.choice(DTYPES)
            elif what == 3:
                tensor.raw_data = tensor.raw_data[:-1]
            else:
                tensor.data_location = TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value=self.random.choice(["/dev/zero", "../x", "", "gone"]))

    def given(self, graph, _model) -> None:
        """An input of another type, rank or extent."""
        if graph.input:
            tensor = graph.input[0].type.tensor_type
            dims = tensor.shape.dim
            what = self.random.randrange(6)
            if what == 0:
                tensor.elem_type = self.random.choice(DTYPES)
            elif what == 1 and dims:
                del dims[self.random.randrange(len(dims))]
            elif what == 2:
                dims.add(dim_value=self.random.choice([1, 2, 3]))
            elif what == 3 and dims:
                dims[self.random.randrange(len(dims))].dim_value = self.random.choice((*NUMBERS, 1, 2, 3, 5))
            elif what == 4 and dims:
                dims[self.random.randrange(len(dims))].dim_param = self.random.choice(["n", "*/", ""])
            else:
                tensor.ClearField("shape")

    def operator(self, graph, _model) -> None:
        """Another operator on these operands."""
        self.node(graph).op_type = self.random.choice([*SEEDS, "Relu", "Sum", "Constant", "ConstantOfShape", "Identity",
                                                       "Dropout", "Compress", "NonZero", "SequenceAt", "Optional"])

    def opset(self, _graph, model) -> None:
        model.opset_import[0].version = self.random.choice([*range(1, 26), 0, -1, 99, 2**31])

    def order(self, graph, _model) -> None:
        """Nodes backwards, or twice, or left out."""
        nodes = list(graph.node)
        nodes = self.random.choice([nodes[::-1], nodes * 2, nodes[1:], nodes[:-1], []])
        del graph.node[:]
        graph.node.extend(nodes)

    def outputs(self, graph, _model) -> None:
        what = self.random.randrange(4)
        if what == 0:
            graph.output.add(name=self.random.choice(["y", "x", "c0", "nothing", "h", ""]))
        elif what == 1:
            del graph.output[:]
        elif what == 2:
            graph.output[0].name = self.random.choice(["h", "x", "c0", "r0", "", "y'"])
        else:
            graph.output[0].type.tensor_type.elem_type = self.random.choice(DTYPES)
            graph.output[0].type.tensor_type.shape.dim.add(dim_value=self.random.choice(NUMBERS))


MUTATIONS = tuple(name for name in vars(Mutator) if not name.startswith("_") and name not in ("mutate", "node"))


def malformed(number: int) -> tuple[str, bytes]:
    """The model of a number, always the same: what it is made of, and its bytes."""
    generator = random.Random(number)
    kind = list(SEEDS)[number % len(SEEDS)]
    model = seed_model(kind)
    mutator = Mutator(generator)
    for _ in range(generator.choice([1, 1, 2, 3])):
        try:
            mutator.mutate(model)
        except (IndexError, ValueError, TypeError, onnx.checker.ValidationError):  # nothing is left to be changed
            continue
    data = bytearray(model.SerializeToString())
    if number % 17 == 0:
        del data[generator.randrange(len(data)):]
    elif number % 17 == 1:
        for _ in range(generator.choice([1, 2, 8])):
            data[generator.randrange(len(data))] = generator.randrange(256)
    return kind, bytes(data)


class TooSlow(BaseException):
    """Not caught by anybody but us."""


def judged(number: int) -> dict:
    """What becomes of a model: {number, kind, result, message}; result is "right", "compiled" where nobody says what is
    right, "refused", or else what is wrong."""
    from tvm_megcc.errors import InternalError, MegccError

    def expired(*_):
        raise TooSlow

    kind, data = malformed(number)
    signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result, message = _compiled(data)
    except InternalError as error:
        result, message = "bug", str(error)
    except MegccError as error:
        result, message = "refused", str(error)
    except TooSlow:
        result, message = "slow", ""
    except BaseException as error:
        result, message = "bug", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return {"number": number, "kind": kind, "result": result, "message": message}


def _compiled(data: bytes) -> tuple[str, str]:
    """Compiles for plain C, and compares the meaning of the imported graph with ONNX's."""
    from tvm_megcc.compiler import compile_graph
    from tvm_megcc.frontends.models import import_model
    from tvm_megcc.runtime.reference import run
    from tvm_megcc.target import TARGETS

    graph, buckets = import_model(data)
    compile_graph(graph, [TARGETS["c"]], buckets=buckets)
    if any(type_.is_static and type_.bytes > LARGEST for type_ in graph.types.values()):
        return "compiled", ""
    feeds = {}
    for name in graph.inputs:
        type_ = graph.types[name]
        values = np.arange(type_.size).reshape(type_.shape) % 5 - 2
        feeds[name] = (values % 2 == 0) if type_.dtype == "bool" else \
            (np.abs(values) if type_.dtype.startswith("uint") else values).astype(type_.dtype)
    try:
        model = onnx.ModelProto.FromString(data)
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True))
        results = run(graph, feeds)  # first: ONNX's evaluator may never end on data that we refuse
        wanted = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # ONNX has no answer, or data is refused when it is there
        return "compiled", ""
    finite = all(np.isfinite(array).all() for array in graph.constants.values() if array.dtype.kind == "f")
    if model.opset_import[0].version < NEWEST_MEANING or not finite:
        return "compiled", ""
    for name, value in zip(graph.outputs, wanted, strict=True):
        given = results[name]
        if given.shape != value.shape or given.dtype != value.dtype \
                or not np.allclose(given, value, rtol=1e-3, atol=1e-4, equal_nan=given.dtype.kind == "f"):
            return "wrong", f"{name} is {given.dtype}{given.shape} {given.reshape(-1)[:8]}, " \
                            f"wanted {value.dtype}{value.shape} {value.reshape(-1)[:8]}"
    return "right", ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    first, count = map(int, sys.argv[1:])
    for number in range(first, first + count):
        print(json.dumps(judged(number)), flush=True)
