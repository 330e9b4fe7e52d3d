# SPDX-License-Identifier: Apache-2.0
"""The models that are fuzzed: small graphs in ONNX's own text, compiled the same each time."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import tvm_megcc
from tvm_megcc.codegen.artifact import Artifact

#: The code for vectors that a container has beside the portable one, on machines that have it.
VECTORS = {"x86_64": "x86-64-v3,", "AMD64": "x86-64-v3,"}.get(platform.machine(), "")


@dataclass(frozen=True)
class Model:
    """text: inputs, outputs and nodes. weights: inputs that are constants, and their shapes. ranges: of each open
    dimension, half open: one that is planned, and one whose tensors are allocated. The others as for compile()."""

    text: str
    weights: Mapping[str, Sequence[int]] = field(default_factory=dict)
    target: str = "c"
    states: Mapping[str, str] = field(default_factory=dict)
    optimize: str = "size"
    ranges: Sequence[tuple[int, int | None]] = ((1, 5), (5, None))

    def compile(self, name: str) -> Artifact:
        import onnx.parser

        proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19]> {name} {self.text}')
        random = np.random.default_rng(0)
        constants = {weight: random.standard_normal(shape).astype(np.float32)
                     for weight, shape in self.weights.items()}
        dispatch: dict[str, dict[int, list]] = {}
        seen: set[str] = set()
        for value in proto.graph.input:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.dim_param and dim.dim_param not in seen:
                    seen.add(dim.dim_param)
                    dispatch.setdefault(value.name, {})[axis] = list(self.ranges)
        return tvm_megcc.compile(proto, self.target, name=name, constants=constants, dispatch=dispatch or None,
                                 states=self.states, optimize=self.optimize, threads=3)


#: Their containers are damaged; they are called in any order, too.
CONTAINERS = {
    "buckets": Model("""
        (float[n, 2, h, 4] x, float[3, 2, 3, 3] w, float[5, 3] p) => (float[?, ?] y, float[?, ?, ?, ?] z) {
            c = Conv<pads = [1, 1, 1, 1]>(x, w)
            r = Relu(c)
            z = MaxPool<kernel_shape = [1, 2], strides = [1, 2]>(r)
            g = GlobalAveragePool(r)
            f = Flatten(g)
            m = Gemm<transB = 1>(f, p)
            y = Softmax(m)
        }""", weights={"w": (3, 2, 3, 3), "p": (5, 3)}, target=f"{VECTORS}c"),
    "indexed": Model("""
        (float[n, 4] x, int64[m] i, int64[m, 4] j, float[1, 12, 4] w, float[1, 12, 4] r, int32[n] steps)
                => (float[?, ?] y, float[?, ?, ?] last) {
            rows = Gather<axis = 0>(x, i)
            y = ScatterElements<axis = 0, reduction = "add">(x, j, rows)
            zero = Constant<value_ints = [0]>()
            sequence = Unsqueeze(y, zero)
            none, last = GRU<hidden_size = 4>(sequence, w, r, "", steps)
        }""", weights={"w": (1, 12, 4), "r": (1, 12, 4)}),
    "streaming": Model("""
        (float[1, 2, 4] x, float[1, 2, 2] past, float[1, 6] memory, float[3, 2, 3] w, float[6, 18] p)
                => (float[?, ?] y, float[?, ?, ?] kept, float[?, ?] next) {
            wide = Concat<axis = 2>(past, x)
            low = Constant<value_ints = [4]>()
            high = Constant<value_ints = [6]>()
            axis = Constant<value_ints = [2]>()
            kept = Slice(wide, low, high, axis)
            c = Conv(wide, w)
            f = Flatten(c)
            joined = Concat<axis = 1>(f, memory)
            m = Gemm<transB = 1>(joined, p)
            next = Tanh(m)
            y = Sigmoid(next)
        }""", weights={"w": (3, 2, 3), "p": (6, 18)}, states={"kept": "past", "next": "memory"}, optimize="speed"),
}


def single(nodes: str, inputs: str, output: str = "float y", **options) -> Model:
    """A model of one operator, whose result is y."""
    dtype, name = output.split()
    return Model(f"({inputs}) => ({dtype}[?] {name}) {{ {nodes} }}", **options)


#: Operators whose data say where they read or write, or whose shapes have to fit each other at run time.
OPERATORS = {
    "gather": single("y = Gather<axis = 1>(x, i)", "float[n, m] x, int64[k] i"),
    "gather_elements": single("y = GatherElements<axis = 1>(x, i)", "float[n, m] x, int64[n, b] i"),
    "gather_nd": single("y = GatherND(x, i)", "float[n, m, 3] x, int64[k, 2] i"),
    "gather_batch": single("y = GatherND<batch_dims = 1>(x, i)", "float[n, m, k] x, int64[n, 2] i"),
    "scatter_elements": single("y = ScatterElements(x, i, u)", "float[n, m] x, int64[a, b] i, float[a, b] u"),
    "scatter_add": single('y = ScatterElements<axis = 1, reduction = "add">(x, i, u)',
                          "float[n, m] x, int32[n, b] i, float[n, b] u"),
    "scatter_nd": single('y = ScatterND<reduction = "max">(x, i, u)',
                         "float[n, m, 3] x, int64[k, 2] i, float[k, 3] u"),
    "one_hot": single("d = Constant<value_int = 5>() y = OneHot(i, d, v)", "int64[n, m] i, float[2] v"),
    "top_k": single("k = Constant<value_ints = [3]>() y, i = TopK(x, k)", "float[n, m] x"),
    "arg_max": single("y = ArgMax<axis = 1, keepdims = 0>(x)", "float[n, m] x", "int64 y"),
    "reverse": single("y = ReverseSequence(x, s)", "float[t, n, 3] x, int64[n] s"),
    "unpool": single("y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i)",
                     "float[n, 2, h, w] x, int64[n, 2, h, w] i"),
    "roi_align": single("y = RoiAlign<output_height = 2, output_width = 3>(x, r, b)",
                        "float[n, 2, h, w] x, float[k, 4] r, int64[k] b"),
    "roi_max": single("y = MaxRoiPool<pooled_shape = [2, 2]>(x, r)", "float[n, 2, h, w] x, float[k, 5] r"),
    "grid_sample": single('y = GridSample<padding_mode = "border">(x, g)', "float[n, 2, h, w] x, float[n, a, b, 2] g"),
    "grid_reflect": single('y = GridSample<padding_mode = "reflection", mode = "cubic">(x, g)',
                           "float[n, 2, h, w] x, float[n, a, b, 2] g"),
    "lstm": single('f, y = LSTM<hidden_size = 3>(x, w, r, "", s)',
                   "float[t, n, 2] x, float[1, 12, 2] w, float[1, 12, 3] r, int32[n] s",
                   weights={"w": (1, 12, 2), "r": (1, 12, 3)}),
    "gru": single('y = GRU<hidden_size = 3, direction = "reverse">(x, w, r, "", s)',
                  "float[t, n, 2] x, float[1, 9, 2] w, float[1, 9, 3] r, int32[n] s",
                  weights={"w": (1, 9, 2), "r": (1, 9, 3)}),
    "pad_reflect": single('p = Constant<value_ints = [0, 2, 0, 1]>() y = Pad<mode = "reflect">(x, p)', "float[n, m] x"),
    "pad_wrap": single('p = Constant<value_ints = [1, 2, 0, 3]>() y = Pad<mode = "wrap">(x, p)', "float[n, m] x"),
    "pad_cut": single("p = Constant<value_ints = [0, -2, 1, -1]>() y = Pad(x, p)", "float[n, m] x"),
    "slice": single("""a = Constant<value_ints = [1, -3]>() b = Constant<value_ints = [-1, 100]>()
                       y = Slice(x, a, b)""", "float[n, m] x"),
    "split": single("y, z = Split<axis = 1, num_outputs = 2>(x)", "float[n, m] x"),
    "split_parts": single("p = Constant<value_ints = [2, 3]>() y, z = Split<axis = 1>(x, p)", "float[n, 5] x"),
    "expand": single("y = Add(x, b)", "float[n, 1, m] x, float[k, 1] b"),
    "concat": single("y = Concat<axis = 1>(a, b)", "float[n, m] a, float[n, k] b"),
    "reshape": single("s = Constant<value_ints = [-1, 6]>() y = Reshape(x, s)", "float[n, m] x"),
    "resize": single("""s = Constant<value_floats = [1.0, 1.0, 2.0, 3.0]>()
                        y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, "", s)""",
                     "float[n, 2, h, w] x"),
    "crop": single("""s = Constant<value_ints = [1, 2, 4, 3]>()
                      y = Resize<mode = "linear",
                                 coordinate_transformation_mode = "tf_crop_and_resize">(x, r, "", s)""",
                   "float[1, 2, 5, 6] x, float[8] r"),
    "conv": single("y = Conv<strides = [2, 1], dilations = [1, 2]>(x, k)", "float[n, 2, h, w] x, float[3, 2, 3, 2] k",
                   weights={"k": (3, 2, 3, 2)}),
    "deconv": single("y = ConvTranspose<strides = [2, 2]>(x, k)", "float[n, 2, h, w] x, float[2, 3, 3, 3] k",
                     weights={"k": (2, 3, 3, 3)}),
    "pool": single("y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)", "float[n, 2, h, w] x"),
    "matmul": single("y = MatMul(a, b)", "float[k, n, m] a, float[k, m, t] b"),
    "attention": single("s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v)",
                        "float[n, t, 4] q, float[n, 4, u] k, float[n, u, 4] v"),
    "cumsum": single("a = Constant<value_int = 1>() y = CumSum(x, a)", "float[n, m] x"),
    "reduce": single("a = Constant<value_ints = [1]>() y = ReduceMax(x, a)", "float[n, m] x"),
    "where": single("y = Where(c, a, b)", "bool[n, 1] c, float[n, m] a, float[m] b"),
    "divide": single("y = Mod(a, b)", "int32[n] a, int32[n] b", "int32 y"),
    "cast": single("y = Cast<to = 3>(x)", "float[n] x", "int8 y"),
}
