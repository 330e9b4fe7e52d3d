# SPDX-License-Identifier: Apache-2.0
"""Random Relax graphs: what we make of them computes what TVM's own build does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax, te
from tvm.relax import op

from .modules import assert_same, megcc, random_inputs, run, weights

QUICK, ALL = 30, 300
LARGEST = 6000
"""Elements of a tensor; keeps TVM's untuned build quick."""


class Graph:
    """Draws operators over the values that there are. Values stay near [-4, 4], and no operator is discontinuous."""

    def __init__(self, seed: int, most: int):
        self.random = np.random.default_rng(seed)
        self.count = int(self.random.integers(5, most + 1))
        self.builder = relax.BlockBuilder()
        self.values: list = []
        self.used: set[int] = set()

    def module(self) -> tvm.IRModule:
        shapes = [self._shape() for _ in range(self.random.integers(1, 4))]
        parameters = [relax.Var(f"x{index}", relax.TensorType(shape, "float32")) for index, shape in enumerate(shapes)]
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                self.values = list(parameters)
                while len(self.values) < len(parameters) + self.count:
                    self.step()
                loose = [v for index, v in enumerate(self.values) if index not in self.used and v not in parameters]
                result = loose[-4:] if len(loose) > 1 else loose[0]
                output = self.builder.emit_output(relax.Tuple(result) if isinstance(result, list) else result)
            self.builder.emit_func_output(output)
        return self.builder.get()

    def step(self) -> None:
        names = [name for name in dir(self) if name.startswith("draw_")]
        draw = getattr(self, names[self.random.integers(len(names))])
        index = int(self.random.integers(max(0, len(self.values) - 6), len(self.values)))
        result = draw(self.values[index])
        if result is None:
            return
        self.used.add(index)
        results = result if isinstance(result, list) else [result]
        self.values += [self.emit(expr) for expr in results]

    def emit(self, expr):
        return self.builder.emit(expr)

    def shape(self, value) -> list[int]:
        return [int(dim) for dim in value.ty.shape.values]

    def pick(self, *choices):
        return choices[self.random.integers(len(choices))]

    def _shape(self) -> tuple[int, ...]:
        draw = self.random.integers
        return self.pick((int(draw(1, 3)), int(draw(1, 20)), int(draw(3, 14)), int(draw(3, 14))),
                         (int(draw(1, 9)), int(draw(1, 40))), (int(draw(1, 4)), int(draw(1, 9)), int(draw(2, 20))))

    # --- one method an operator or family ---

    def draw_unary(self, x):
        return self.pick(op.nn.relu, op.sigmoid, op.tanh, op.negative, op.abs, op.nn.silu, op.nn.gelu, op.erf,
                         op.nn.leakyrelu, lambda v: op.clip(v, -0.5, 1.5),
                         lambda v: op.exp(self.emit(op.tanh(v))), lambda v: op.sqrt(self.emit(op.abs(v))),
                         lambda v: op.tanh(self.emit(op.square(v))), op.nn.softplus)(x)

    def draw_binary(self, x):
        same = [v for v in self.values if self.shape(v) == self.shape(x)]
        y = same[self.random.integers(len(same))]
        return op.tanh(self.emit(self.pick(op.add, op.subtract, op.multiply, op.maximum, op.minimum)(x, y)))

    def draw_constant(self, x):
        """With a constant that broadcasts: a scalar, or an axis of its own."""
        shape = self.shape(x)
        axis = int(self.random.integers(-1, len(shape)))
        constant = weights(*[extent if index == axis else 1 for index, extent in enumerate(shape)], scale=0.7)
        return self.pick(op.add, op.multiply, op.subtract)(x, constant)

    def draw_conv(self, x):
        shape = self.shape(x)
        if len(shape) != 4:
            return None
        channels, kernel = shape[1], int(self.pick(1, 3))
        groups = self.pick(1, channels)
        outputs = int(channels if groups > 1 else self.random.integers(1, 24))
        if outputs * shape[2] * shape[3] > LARGEST:
            return None
        w = weights(outputs, channels // groups, kernel, kernel, seed=len(self.values))
        stride = int(self.pick(1, 1, 2))
        y = self.emit(op.nn.conv2d(x, w, padding=kernel // 2, strides=stride, groups=groups))
        if self.random.random() < 0.7:
            y = self.emit(op.add(y, weights(1, outputs, 1, 1, scale=0.3)))
        return self.pick(op.nn.relu, op.tanh, lambda v: op.clip(v, 0, 6))(y)

    def draw_conv_channels_last(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or shape[1] < 3 or shape[2] < 3:
            return None
        w = weights(3, 3, shape[3], 5, seed=len(self.values), scale=0.2)
        return op.tanh(self.emit(op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO")))

    def draw_matmul(self, x):
        shape = self.shape(x)
        if len(shape) < 2:
            return None
        return op.tanh(self.emit(op.matmul(x, weights(shape[-1], int(self.random.integers(1, 30)), scale=0.3))))

    def draw_batched_matmul(self, x):
        shape = self.shape(x)
        if len(shape) < 3 or int(np.prod(shape[:-1])) * shape[-2] > LARGEST:
            return None
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return op.tanh(self.emit(op.matmul(x, self.emit(op.permute_dims(x, axes)))))

    def draw_pool(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or min(shape[2:]) < 3:
            return None
        function = self.pick(op.nn.max_pool2d, op.nn.avg_pool2d)
        return function(x, int(self.pick(2, 3)), int(self.pick(1, 2)), padding=int(self.pick(0, 1)),
                        ceil_mode=bool(self.pick(False, False, True)))

    def draw_resize(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or 4 * int(np.prod(shape)) > LARGEST:
            return None
        return op.image.resize2d(x, (2 * shape[2], 2 * shape[3]), layout="NCHW",
                                 method=self.pick("nearest_neighbor", "linear"),
                                 coordinate_transformation_mode=self.pick("half_pixel", "asymmetric"),
                                 rounding_method="floor")

    def draw_normalisation(self, x):
        shape = self.shape(x)
        if len(shape) > 2 and shape[-1] > 1 and self.random.random() < 0.5:
            return op.nn.layer_norm(x, weights(shape[-1], scale=0.5), weights(shape[-1], scale=0.5), axes=-1,
                                    epsilon=1e-2)
        if len(shape) != 4:
            return None
        statistics = [relax.const(np.linspace(low, high, shape[1], dtype="float32"))
                      for low, high in ((0.5, 1.5), (-1, 1), (-0.2, 0.2), (0.7, 1.3))]
        y = self.emit(op.nn.batch_norm(x, *statistics, axis=1, training=False))
        return relax.TupleGetItem(y, 0)

    def draw_reduction(self, x):
        rank = len(self.shape(x))
        axes = [int(self.random.integers(rank))] if rank < 4 else self.pick([1], [2, 3], [3])
        return self.pick(op.mean, op.max, op.min)(x, axes, keepdims=bool(self.pick(True, rank < 2)))

    def draw_softmax(self, x):
        return op.nn.softmax(x, int(self.random.integers(-1, len(self.shape(x)))))

    def draw_reshape(self, x):
        shape = self.shape(x)
        if len(shape) > 1 and self.random.random() < 0.5:
            axis = int(self.random.integers(len(shape) - 1))
            shape[axis:axis + 2] = [shape[axis] * shape[axis + 1]]
        elif len(shape) < 4:
            axis = int(self.random.integers(len(shape)))
            divisors = [d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0]
            divisor = int(self.pick(*divisors))
            shape[axis:axis + 1] = [divisor, shape[axis] // divisor]
        return op.reshape(x, shape)

    def draw_transpose(self, x):
        return op.permute_dims(x, [int(axis) for axis in self.random.permutation(len(self.shape(x)))])

    def draw_concat(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        fits = [v for v in self.values if len(self.shape(v)) == len(shape) and all(
            a == b for index, (a, b) in enumerate(zip(self.shape(v), shape, strict=True)) if index != axis)]
        parts = [fits[self.random.integers(len(fits))], x]
        return None if 2 * int(np.prod(shape)) > LARGEST else op.concat(parts, axis)

    def draw_split(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        if shape[axis] < 2:
            return None
        parts = self.emit(op.split(x, [int(self.random.integers(1, shape[axis]))], axis))
        return [relax.TupleGetItem(parts, index) for index in range(2)]

    def draw_slice(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        first = int(self.random.integers(shape[axis]))
        return op.strided_slice(x, [axis], [first], [shape[axis]], [int(self.pick(1, 2))])

    def draw_pad(self, x):
        if int(np.prod(self.shape(x))) * 3 > LARGEST:
            return None
        widths = [int(self.random.integers(0, 2)) for _ in range(2 * len(self.shape(x)))]
        return op.nn.pad(x, widths, pad_value=float(self.pick(0.0, 0.5)))

    def draw_not_ours(self, x):
        """What stays with TVM: in the middle of everything else."""
        if self.random.random() < 0.6:
            return None
        if self.random.random() < 0.5:
            return op.sort(x, axis=-1)
        return self.builder.call_te(wave, x)

    def draw_cumulative(self, x):
        return op.cumsum(self.emit(op.nn.softmax(x)), axis=-1)


def wave(x):
    return te.compute(x.shape, lambda *index: te.sin(x(*index)) * 2)


@pytest.mark.parametrize("seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow)
                                                   for seed in range(QUICK, ALL))])
def test_random_graph(seed: int):
    mod = Graph(seed, most=15 if seed < QUICK else 40).module()
    inputs = random_inputs(mod, seed=seed)
    expected = run(tvm.compile(mod, target="llvm"), inputs)
    report = megcc.report(megcc.partition_for_megcc(mod))
    assert all(name.startswith(("relax.sort", "relax.call_tir wave")) for name in report.theirs), str(report)
    assert_same(run(tvm.compile(mod, target="megcc-native", relax_pipeline="megcc"), inputs), expected)
