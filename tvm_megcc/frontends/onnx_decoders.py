# SPDX-License-Identifier: Apache-2.0
"""Rewrites the decoder of an ONNX file to the inputs and outputs of a language model from GGUF: tokens, keys and values
in, logits of the next token out.

The files are those of Hugging Face's exporters and of the model builder of ONNX Runtime GenAI. Their attention masks
and positions follow from the numbers of past and new tokens, so the graph computes them itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..errors import ModelError, quoted
from .decoder_names import LENGTH, LOGITS, PAST, TOKENS
from .onnx.load import DTYPES, LoadedModel, load

#: The prefix of names of values that are added to the graph.
_ADDED = "megcc."
#: Operators of one operand that compute each row alone, and operators of two whose second one may be a constant.
_UNARY, _BINARY = ("Cast", "Identity", "Tanh"), ("Add", "Div", "Mul", "Sub")
#: Products whose first operand has a row for each token.
_PRODUCTS = ("MatMul", "MatMulNBits")


@dataclass(frozen=True)
class Ports:
    """Names of inputs and outputs of a decoder; %d is the number of a layer.

    cache_branch: an input that chooses the graph with a past, in files that have both graphs in an If.
    kept_logits: an input with the number of last tokens whose logits are computed.
    head_size, kv_heads: extents of keys and values, 0 if the file has them.
    """

    tokens: str = TOKENS
    mask: str = "attention_mask"
    positions: str = "position_ids"
    cache_branch: str = "use_cache_branch"
    kept_logits: str = "num_logits_to_keep"
    logits: str = LOGITS
    past: tuple[str, ...] = ("past_key_values.%d.key", "past_key_values.%d.value")
    present: tuple[str, ...] = ("present.%d.key", "present.%d.value")
    head_size: int = 0
    kv_heads: int = 0


@dataclass(frozen=True)
class OnnxDecoder:
    """A rewritten decoder. Its inputs are `input_ids`, int64 [1, sequence_length], and keys and values of the past,
    [1, heads, past_sequence_length, size]; its outputs `logits`, float32 [1, vocabulary], and all keys and values.

    states: output -> input of keys and values.
    """

    model: LoadedModel
    states: dict[str, str]


def decoder(path: Path, ports: Ports) -> OnnxDecoder:
    """Reads the decoder of a file.

    Raises:
        ModelError: for a file that cannot be read, or has other inputs and outputs than a decoder with a past.
    """
    model = load(path)
    return _Rewriting(model, ports).run()


class _Rewriting:
    """The rewriting of one graph, which is changed in place.

    inputs: name -> declared type of the graph's inputs, without initializers.
    findings: what is wrong with the file.
    """

    def __init__(self, model: LoadedModel, ports: Ports):
        self.model, self.ports, self.graph = model, ports, model.proto.graph
        weights = {tensor.name for tensor in self.graph.initializer}
        self.inputs = {value.name: value.type.tensor_type for value in self.graph.input if value.name not in weights}
        self.findings: list[str] = []

    def run(self) -> OnnxDecoder:
        states = self._states()
        self._check_inputs(states)
        if self.findings:
            raise ModelError(self.model.name, self.findings, "A decoder has the inputs and outputs that 'optimum-cli "
                             "export onnx --task text-generation-with-past' or the model builder of ONNX Runtime GenAI "
                             "writes")
        self._inline_branch()
        added = [*self._lengths(next(iter(states.values()))), *self._tokens()]
        for name, make in ((self.ports.mask, self._mask), (self.ports.positions, self._positions)):
            if name in self.inputs:
                added += make(name)
        self._count_instead_of_sum()
        logits = self._logits_of_last_token()
        inputs = [helper.make_tensor_value_info(TOKENS, TensorProto.INT64, [1, LENGTH]),
                  *(self._past_input(name) for name in states.values())]
        outputs = [helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, None),
                   *(helper.make_tensor_value_info(output, self.inputs[name].elem_type, None)
                     for output, name in states.items())]
        nodes = [*added, *self.graph.node, *logits]
        for field, values in (("node", nodes), ("input", inputs), ("output", outputs), ("value_info", [])):
            self.graph.ClearField(field)
            getattr(self.graph, field).extend(values)
        return OnnxDecoder(self.model, states)

    def _states(self) -> dict[str, str]:
        """Returns output -> input of keys and values, by layer."""
        outputs, rows = {value.name for value in self.graph.output}, []
        for past, present in zip(self.ports.past, self.ports.present, strict=True):
            pattern = re.escape(past).replace("%d", r"(\d{1,4})")
            rows += [(int(match[1]), present.replace("%d", match[1]), name) for name in self.inputs
                     if (match := re.fullmatch(pattern, name, re.ASCII))]
        self.findings += [f"input {quoted(name)} has no output {quoted(output)}" for _, output, name in rows
                          if output not in outputs]
        if not rows:
            shown = quoted(self.ports.past[0].replace("%d", "0"))
            self.findings.append(f"has no input {shown}: it is a decoder without keys and values of the past")
        return {output: name for _, output, name in sorted(rows, key=lambda row: row[0])}

    def _check_inputs(self, states: dict[str, str]) -> None:
        """Finds inputs that a decoder does not have, and those of another rank or type than its inputs have."""
        ports, integers = self.ports, (TensorProto.INT64, TensorProto.INT32)
        ranks = {ports.tokens: 2, ports.mask: 2, ports.positions: 2, **dict.fromkeys(states.values(), 4)}
        known = {*ranks, ports.cache_branch, ports.kept_logits}
        self.findings += [f"input {quoted(name)} is none of a decoder of text" for name in self.inputs
                          if name not in known]
        for name in (ports.tokens, ports.logits):
            if name not in self.inputs and name not in {value.name for value in self.graph.output}:
                self.findings.append(f"has no {'input' if name == ports.tokens else 'output'} {quoted(name)}")
        for name, rank in ranks.items():
            type_ = self.inputs.get(name)
            if type_ is None:
                continue
            if len(type_.shape.dim) != rank:
                self.findings.append(f"input {quoted(name)} has {len(type_.shape.dim)} axes, and not {rank}")
            elif name in states.values():
                self._check_past(name, type_)
            elif type_.elem_type not in integers and (name != ports.mask or type_.elem_type not in DTYPES):
                self.findings.append(f"input {quoted(name)} is not of integers")

    def _check_past(self, name: str, type_: onnx.TypeProto.Tensor) -> None:
        if DTYPES.get(type_.elem_type) not in ("float32", "float16", "bfloat16"):
            self.findings.append(f"input {quoted(name)} is not of float32 or 16 bits")
        if not all(self._past_shape(type_)):
            self.findings.append(f"input {quoted(name)} has no known number of heads or size of a head")

    def _past_shape(self, type_: onnx.TypeProto.Tensor) -> tuple[int, int]:
        """Returns the number of heads and the size of a head, 0 for one that is not known."""
        dims = type_.shape.dim
        return dims[1].dim_value or self.ports.kv_heads, dims[3].dim_value or self.ports.head_size

    def _past_input(self, name: str) -> onnx.ValueInfoProto:
        heads, size = self._past_shape(self.inputs[name])
        return helper.make_tensor_value_info(name, self.inputs[name].elem_type, [1, heads, PAST, size])

    # Values that are computed instead of inputs.

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, f"{_ADDED}{name}"))
        return f"{_ADDED}{name}"

    def _lengths(self, past: str) -> Iterator[onnx.NodeProto]:
        """Emits the numbers of past tokens, new tokens and both, int64 [1] each."""
        for name, source, axis in (("past", past, 2), ("length", TOKENS, 1)):
            index = self._constant(f"{name}.axis", np.array([axis]))
            yield helper.make_node("Shape", [source], [f"{_ADDED}{name}.shape"])
            yield helper.make_node("Gather", [f"{_ADDED}{name}.shape", index], [f"{_ADDED}{name}"])
        yield helper.make_node("Add", [f"{_ADDED}past", f"{_ADDED}length"], [f"{_ADDED}total"])

    def _tokens(self) -> Iterator[onnx.NodeProto]:
        """Emits the tokens under the name and in the type of the file."""
        type_ = self.inputs[self.ports.tokens].elem_type
        if self.ports.tokens != TOKENS:
            yield helper.make_node("Cast", [TOKENS], [self.ports.tokens], to=type_)
        elif type_ != TensorProto.INT64:
            self._rename_reads(TOKENS, f"{_ADDED}tokens")
            yield helper.make_node("Cast", [TOKENS], [f"{_ADDED}tokens"], to=type_)

    def _mask(self, name: str) -> Iterator[onnx.NodeProto]:
        """Emits a mask of ones, [1, past + new]."""
        one = numpy_helper.from_array(np.ones(1, helper.tensor_dtype_to_np_dtype(self.inputs[name].elem_type)))
        yield helper.make_node("Concat", [self._constant("batch", np.array([1])), f"{_ADDED}total"],
                               [f"{_ADDED}mask.shape"], axis=0)
        yield helper.make_node("ConstantOfShape", [f"{_ADDED}mask.shape"], [name], value=one)

    def _positions(self, name: str) -> Iterator[onnx.NodeProto]:
        """Emits the positions of new tokens, [1, new]."""
        scalar, shape = self._constant("scalar", np.zeros(0, np.int64)), self._constant("row.shape", np.array([1, -1]))
        for end in ("past", "total"):
            yield helper.make_node("Reshape", [f"{_ADDED}{end}", scalar], [f"{_ADDED}{end}.scalar"])
        yield helper.make_node("Range", [f"{_ADDED}past.scalar", f"{_ADDED}total.scalar",
                                         self._constant("step", np.array(1))], [f"{_ADDED}positions"])
        yield helper.make_node("Reshape", [f"{_ADDED}positions", shape], [f"{_ADDED}positions.row"])
        yield helper.make_node("Cast", [f"{_ADDED}positions.row"], [name], to=self.inputs[name].elem_type)

    def _count_instead_of_sum(self) -> None:
        """Replaces sums over the mask by the number of tokens: so GroupQueryAttention knows that all rows of its past
        are valid."""
        for node in self.graph.node:
            if node.op_type == "ReduceSum" and node.input[0] == self.ports.mask and self._axes(node) in ([1], [-1]):
                keeps = next((each.i for each in node.attribute if each.name == "keepdims"), 1)
                shape = self._constant(f"{node.output[0]}.shape", np.array([1, 1] if keeps else [1]))
                node.CopyFrom(helper.make_node("Reshape", [f"{_ADDED}total", shape], list(node.output)))

    def _axes(self, node: onnx.NodeProto) -> list[int]:
        """Returns the axes of a reduction, [] if they are not known."""
        if len(node.input) < 2:
            return next((list(each.ints) for each in node.attribute if each.name == "axes"), [])
        tensor = self._tensor(node.input[1])
        return [] if tensor is None else numpy_helper.to_array(tensor).reshape(-1).tolist()

    # The graph with a past, and its logits.

    def _inline_branch(self) -> None:
        """Makes the constant inputs initializers, and puts the nodes of the branch with a past in place of the If."""
        for name, value in ((self.ports.cache_branch, np.ones(1, np.bool_)), (self.ports.kept_logits, np.array(1))):
            if name in self.inputs:
                shape = [1] * len(self.inputs[name].shape.dim)
                self.graph.initializer.append(numpy_helper.from_array(value.reshape(shape), name))
        if self.ports.cache_branch not in self.inputs:
            return
        nodes: list[onnx.NodeProto] = []
        for node in self.graph.node:
            branch = next((each.g for each in node.attribute if each.name == "then_branch"), None)
            if node.op_type != "If" or node.input[0] != self.ports.cache_branch or branch is None:
                nodes.append(node)
                continue
            self.graph.initializer.extend(branch.initializer)
            nodes += branch.node
            nodes += [helper.make_node("Identity", [inner.name], [outer])
                      for inner, outer in zip(branch.output, node.output, strict=False) if inner.name != outer]
        self.graph.ClearField("node")
        self.graph.node.extend(nodes)

    def _logits_of_last_token(self) -> Sequence[onnx.NodeProto]:
        """Lets the last product compute the row of the last token only, and emits `logits`, float32 [1, vocabulary]."""
        producers = {name: node for node in self.graph.node for name in node.output if name}
        uses = [name for node in self.graph.node for name in node.input]
        last, index = self.ports.logits, self._constant("last", np.array([-1]))
        node, row = producers.get(last), last
        while node is not None and self._computes_rows_alone(node) and uses.count(row) == (row != last):
            row = node.input[self._data_operand(node)]
            if node.op_type in _PRODUCTS:
                break
            node = producers.get(row)
        added = [helper.make_node("Gather", [row, index], [f"{_ADDED}row"], axis=1)]
        source = f"{_ADDED}row"
        if row != last and node is not None:
            source, target = f"{_ADDED}last.logits", producers[last]
            node.input[self._data_operand(node)] = f"{_ADDED}row"
            position = next(place for place, each in enumerate(self.graph.node) if each is node)
            self.graph.node.insert(position, added.pop())
            target.output[list(target.output).index(last)] = source
        elif last == LOGITS:
            self._rename_output(producers, last, f"{_ADDED}all.logits")
            added[0].input[0] = f"{_ADDED}all.logits"
        shape = self._constant("logits.shape", np.array([1, -1]))
        return [*added, helper.make_node("Cast", [source], [f"{_ADDED}float.logits"], to=TensorProto.FLOAT),
                helper.make_node("Reshape", [f"{_ADDED}float.logits", shape], [LOGITS])]

    def _computes_rows_alone(self, node: onnx.NodeProto) -> bool:
        """Whether a node computes each row of its operand alone, by constants."""
        others = [name for index, name in enumerate(node.input) if index != self._data_operand(node) and name]
        if node.op_type in _PRODUCTS:
            return all(self._is_constant(name) for name in others)
        if node.op_type in _BINARY:
            return len(node.input) == 2 and all(
                (tensor := self._tensor(name)) is not None and len(tensor.dims) <= 1 for name in others)
        return node.op_type in _UNARY

    def _data_operand(self, node: onnx.NodeProto) -> int:
        """Returns the index of the operand that is not constant."""
        return int(node.op_type in ("Add", "Mul") and self._tensor(node.input[0]) is not None)

    def _tensor(self, name: str) -> onnx.TensorProto | None:
        """Returns the constant of this name; None for a computed value."""
        found: list[onnx.TensorProto] = [tensor for tensor in self.graph.initializer if tensor.name == name]
        for node in self.graph.node:
            if node.op_type == "Constant" and name in node.output:
                found += [each.t for each in node.attribute if each.name == "value"]
        return found[0] if found else None

    def _is_constant(self, name: str) -> bool:
        """Whether a value is a constant, or computed from one by operators that do not change it."""
        if self._tensor(name) is not None:
            return True
        node = next((each for each in self.graph.node if name in each.output), None)
        return node is not None and node.op_type in ("Transpose", "Cast", "Reshape", "DequantizeLinear", "Identity") \
            and all(self._tensor(each) is not None for each in node.input if each)

    def _rename_reads(self, name: str, other: str) -> None:
        """Lets all nodes that read a value read another one."""
        for node in self.graph.node:
            for index, operand in enumerate(node.input):
                if operand == name:
                    node.input[index] = other

    def _rename_output(self, producers: dict[str, onnx.NodeProto], name: str, other: str) -> None:
        """Renames a computed value."""
        node = producers.get(name)
        if node is None:
            raise ModelError(self.model.name, [f"output {quoted(name)}: nothing in the model produces it"])
        node.output[list(node.output).index(name)] = other
        self._rename_reads(name, other)
