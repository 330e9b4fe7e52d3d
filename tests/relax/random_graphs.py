# SPDX-License-Identifier: Apache-2.0
"""Random Relax modules: operators drawn one after the other over the values that there are.

A module has one or two functions of 5 to 40 operators; floats in both layouts, integers and truth values; one or
several results, tuples in tuples; operators that stay with TVM, a call of another function, an open extent.

Both sides round differently, so nothing that is drawn may turn a small difference into a large one: floats stay near
[-4, 4], integers come from integers only, and a truth value from a comparison of integers.
"""

from __future__ import annotations

import numpy as np
from tvm import IRModule, relax, te, tirx
from tvm.relax import op

from tvm_megcc.frontends.tvm_versions import Call, RelaxTensor, Tuple, type_of

from .modules import weights

#: Operators, as reports name them, that we have no hand-written kernels for; TVM numbers functions of one name.
LOOPS = ("relax.call_tir wave", "relax.nn.softplus", "relax.atan2")
LARGEST = 6000
"""Elements of a tensor; keeps TVM's untuned build quick."""
SYMBOL = "n"
"""The open extent, of the first axis of one parameter."""
HELPER = (2, 12)
"""Shape of the parameter and the result of the function that others call."""


def wave(x):
    """A function that TVM gets as loops."""
    return te.compute(x.shape, lambda *index: te.sin(x(*index)) * 2)


def random_module(seed: int, most: int) -> IRModule:
    """The module of a seed; its functions have up to `most` operators."""
    random = np.random.default_rng(seed)
    builder = relax.BlockBuilder()
    helper = None
    if random.random() < 0.25:
        x = relax.Var("x", RelaxTensor(HELPER, "float32"))
        with builder.function("helper", [x], private=True):
            with builder.dataflow():
                y = builder.emit(op.nn.silu(builder.emit(op.matmul(x, weights(HELPER[1], HELPER[1], scale=0.3)))))
                output = builder.emit_output(y)
            helper = builder.emit_func_output(output)
    Function(random, builder, most, helper).draw("main")
    if random.random() < 0.2:
        Function(random, builder, 10, helper).draw("second")
    return builder.get()


class Function:
    """Draws one function. The methods `float_…` are for floats, `integer_…` for integers, `any_…` for all; each gets
    a value and gives an expression, a list of expressions, or None where it does not fit."""

    def __init__(self, random: np.random.Generator, builder: relax.BlockBuilder, most: int, helper):
        self.random, self.builder, self.helper = random, builder, helper
        self.count = int(random.integers(5, most + 1))
        self.values: list = []
        self.open: list = []
        self.used: set[int] = set()
        methods = sorted(name for name in dir(self) if name.startswith(("float_", "integer_", "bool_", "any_")))
        self.methods = {kind: [name for name in methods if name.startswith((prefix, "any_"))]
                        for kind, prefix in (("float32", "float_"), ("int32", "integer_"), ("int64", "integer_"),
                                             ("bool", "bool_"))}

    def draw(self, name: str) -> None:
        parameters = self.parameters()
        with self.builder.function(name, parameters):
            with self.builder.dataflow():
                self.values = [p for p in parameters if p not in self.open]
                first = len(self.values)
                while len(self.values) < first + self.count:
                    self.step()
                output = self.builder.emit_output(self.result(first))
            self.builder.emit_func_output(output)

    def parameters(self) -> list[relax.Var]:
        types = [RelaxTensor(self.drawn_shape(), "float32") for _ in range(self.random.integers(1, 4))]
        if self.random.random() < 0.4:
            types.append(RelaxTensor(self.drawn_shape(), self.pick("int32", "int64")))
        if self.helper is not None:
            types.append(RelaxTensor(HELPER, "float32"))
        parameters = [relax.Var(f"x{index}", type_) for index, type_ in enumerate(types)]
        if self.random.random() < 0.2:
            extents = (tirx.Var(SYMBOL, "int64"), int(self.random.integers(2, 30)))
            self.open = [relax.Var("open", RelaxTensor(extents, "float32"))]
        return parameters + self.open

    def result(self, first: int):
        """What nothing uses, as one value, a tuple, or a tuple in a tuple, at times with a parameter in it."""
        loose = [v for index, v in enumerate(self.values) if index not in self.used and index >= first][-5:]
        loose += self.open[-1:] if len(self.open) > 1 else []
        if len(loose) == 1:
            return loose[0]
        if self.random.random() < 0.2:
            loose.append(self.values[0])
        if self.random.random() < 0.3:
            return Tuple([loose[0], Tuple(loose[1:])])
        return Tuple(loose)

    def step(self) -> None:
        if self.open and self.random.random() < 0.2:
            self.step_open()
            return
        index = int(self.random.integers(max(0, len(self.values) - 6), len(self.values)))
        x = self.values[index]
        result = getattr(self, str(self.pick(*self.methods[self.dtype(x)])))(x)
        if result is None:
            return
        self.used.add(index)
        results = result if isinstance(result, list) else [result]
        self.values += [self.emit(expr) for expr in results]

    def step_open(self) -> None:
        """An operator on a value whose first extent is open; at times that axis is summed up."""
        x = self.open[-1]
        last = int(type_of(x).shape.values[1])
        result = self.pick(op.nn.relu, op.tanh, op.nn.softmax, lambda v: op.add(v, weights(1, last, scale=0.3)),
                           lambda v: op.matmul(v, weights(last, int(self.random.integers(1, 20)), scale=0.3)),
                           lambda v: op.mean(v, [0], keepdims=True))(x)
        value = self.emit(result)
        (self.values if isinstance(type_of(value).shape.values[0], tirx.IntImm) else self.open).append(value)

    def emit(self, expr):
        return self.builder.emit(expr)

    def shape(self, value) -> list[int]:
        return [int(dim) for dim in type_of(value).shape.values]

    def dtype(self, value) -> str:
        return str(type_of(value).dtype)

    def pick(self, *choices):
        return choices[self.random.integers(len(choices))]

    def drawn_shape(self) -> tuple[int, ...]:
        draw = self.random.integers
        return self.pick((int(draw(1, 3)), int(draw(1, 20)), int(draw(3, 14)), int(draw(3, 14))),
                         (int(draw(1, 3)), int(draw(3, 14)), int(draw(3, 14)), int(draw(1, 20))),
                         (int(draw(1, 9)), int(draw(1, 40))), (int(draw(1, 4)), int(draw(1, 9)), int(draw(2, 20))))

    def like(self, x):
        """A value of the same shape and dtype."""
        same = [v for v in self.values if self.shape(v) == self.shape(x) and self.dtype(v) == self.dtype(x)]
        return self.pick(*same)

    def integers(self, *shape: int, low: int, high: int, dtype: str):
        return relax.const(self.random.integers(low, high, shape), dtype)

    # --- floats, elementwise ---

    def float_unary(self, x):
        return self.pick(op.nn.relu, op.sigmoid, op.tanh, op.negative, op.abs, op.nn.silu, op.nn.gelu, op.erf,
                         op.nn.leakyrelu, op.nn.gelu_tanh, op.nn.selu, lambda v: op.clip(v, -0.5, 1.5),
                         lambda v: op.exp(self.emit(op.tanh(v))), lambda v: op.sqrt(self.emit(op.abs(v))),
                         lambda v: op.tanh(self.emit(op.square(v))), op.nn.softplus)(x)

    def float_binary(self, x):
        y = self.like(x)
        return op.tanh(self.emit(self.pick(op.add, op.subtract, op.multiply, op.maximum, op.minimum)(x, y)))

    def float_constant(self, x):
        """With a constant that broadcasts: a scalar, or an axis of its own."""
        shape = self.shape(x)
        axis = int(self.random.integers(-1, len(shape)))
        constant = weights(*[extent if index == axis else 1 for index, extent in enumerate(shape)], scale=0.7)
        return self.pick(op.add, op.multiply, op.subtract)(x, constant)

    def float_prelu(self, x):
        axis = int(self.random.integers(len(self.shape(x))))
        return op.nn.prelu(x, weights(self.shape(x)[axis], scale=0.3), axis)

    def float_where(self, x):
        conditions = [v for v in self.values if self.dtype(v) == "bool" and self.shape(v) == self.shape(x)]
        return op.where(self.pick(*conditions), x, self.like(x)) if conditions else None

    # --- floats, windows and products ---

    def float_conv(self, x):
        shape = self.shape(x)
        if len(shape) != 4:
            return None
        channels, kernel = shape[1], int(self.pick(1, 3))
        groups = self.pick(1, channels)
        outputs = int(channels if groups > 1 else self.random.integers(1, 24))
        if outputs * shape[2] * shape[3] > LARGEST:
            return None
        w = weights(outputs, channels // groups, kernel, kernel, seed=len(self.values))
        stride, dilation = int(self.pick(1, 1, 2)), int(self.pick(1, 1, 2))
        y = self.emit(op.nn.conv2d(x, w, padding=dilation * (kernel // 2), strides=stride, groups=groups,
                                   dilation=dilation))
        if self.random.random() < 0.7:
            y = self.emit(op.add(y, weights(1, outputs, 1, 1, scale=0.3)))
        return self.pick(op.nn.relu, op.tanh, lambda v: op.clip(v, 0, 6))(y)

    def float_conv_channels_last(self, x):
        """NHWC, its bias and activation in that layout, pooled or resized in it."""
        shape = self.shape(x)
        if len(shape) != 4 or min(shape[1:3]) < 3:
            return None
        w = weights(3, 3, shape[3], 5, seed=len(self.values), scale=0.2)
        y = self.emit(op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"))
        y = self.emit(op.tanh(self.emit(op.add(y, weights(5, scale=0.3)))))
        return self.pick(op.nn.relu, lambda v: op.nn.max_pool2d(v, 2, 2, layout="NHWC"),
                         lambda v: op.nn.avg_pool2d(v, 3, 1, padding=1, layout="NHWC"),
                         lambda v: op.image.resize2d(v, (4, 5), layout="NHWC", method="linear"))(y)

    def float_conv_transpose(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or 24 * shape[2] * shape[3] > LARGEST:
            return None
        w = weights(shape[1], int(self.random.integers(1, 7)), 3, 3, seed=len(self.values), scale=0.2)
        return op.tanh(self.emit(op.nn.conv2d_transpose(x, w, strides=2, padding=1)))

    def float_conv_of_rows(self, x):
        shape = self.shape(x)
        if len(shape) != 3 or shape[2] < 3:
            return None
        w = weights(int(self.random.integers(1, 9)), shape[1], 3, seed=len(self.values), scale=0.3)
        return op.tanh(self.emit(op.nn.conv1d(x, w, padding=1)))

    def float_matmul(self, x):
        shape = self.shape(x)
        if len(shape) < 2:
            return None
        return op.tanh(self.emit(op.matmul(x, weights(shape[-1], int(self.random.integers(1, 30)), scale=0.3))))

    def float_batched_matmul(self, x):
        shape = self.shape(x)
        if len(shape) < 3 or int(np.prod(shape[:-1])) * shape[-2] > LARGEST:
            return None
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return op.tanh(self.emit(op.matmul(x, self.emit(op.permute_dims(x, axes)))))

    def float_pool(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or min(shape[2:]) < 3:
            return None
        function = self.pick(op.nn.max_pool2d, op.nn.avg_pool2d)
        return function(x, int(self.pick(2, 3)), int(self.pick(1, 2)), padding=int(self.pick(0, 1)),
                        ceil_mode=bool(self.pick(False, False, True)))

    def float_resize(self, x):
        shape = self.shape(x)
        if len(shape) != 4 or 4 * int(np.prod(shape)) > LARGEST:
            return None
        return op.image.resize2d(x, (2 * shape[2], 2 * shape[3]), layout="NCHW",
                                 method=self.pick("nearest_neighbor", "linear"),
                                 coordinate_transformation_mode=self.pick("half_pixel", "asymmetric"),
                                 rounding_method="floor")

    # --- floats, normalisation and reduction ---

    def float_normalisation(self, x):
        shape = self.shape(x)
        if len(shape) > 2 and shape[-1] > 1 and self.random.random() < 0.5:
            if self.random.random() < 0.5:
                return op.nn.rms_norm(x, weights(shape[-1], scale=0.5), axes=-1, epsilon=1e-2)
            return op.nn.layer_norm(x, weights(shape[-1], scale=0.5), weights(shape[-1], scale=0.5), axes=-1,
                                    epsilon=1e-2)
        if len(shape) != 4:
            return None
        if shape[2] * shape[3] > 3 and self.random.random() < 0.3:
            affine = weights(shape[1], scale=0.5), weights(shape[1], scale=0.2, seed=1)
            return op.nn.instance_norm(x, *affine, 1, [2, 3], epsilon=1e-2)
        statistics = [relax.const(np.linspace(low, high, shape[1], dtype="float32"))
                      for low, high in ((0.5, 1.5), (-1, 1), (-0.2, 0.2), (0.7, 1.3))]
        y = self.emit(op.nn.batch_norm(x, *statistics, axis=1, training=False))
        return relax.TupleGetItem(y, 0)

    def float_reduction(self, x):
        rank = len(self.shape(x))
        axes = [int(self.random.integers(rank))] if rank < 4 else self.pick([1], [2, 3], [3])
        return self.pick(op.mean, op.max, op.min, op.variance)(x, axes, keepdims=bool(self.pick(True, rank < 2)))

    def float_softmax(self, x):
        function = self.pick(op.nn.softmax, lambda v, axis: op.tanh(self.emit(op.nn.log_softmax(v, axis))))
        return function(x, int(self.random.integers(-1, len(self.shape(x)))))

    def float_cumulative(self, x):
        return op.cumsum(self.emit(op.nn.softmax(x)), axis=-1)

    # --- integers and truth values ---

    def integer_binary(self, x):
        """Small again by the remainder, whose sign is the divisor's."""
        y = self.like(x)
        z = self.emit(self.pick(op.add, op.subtract, op.multiply, op.maximum, op.minimum)(x, y))
        return op.floor_mod(z, relax.const(7, self.dtype(x)))

    def integer_constant(self, x):
        extents = [extent if self.random.random() < 0.5 else 1 for extent in self.shape(x)]
        z = self.emit(op.multiply(x, self.integers(*extents, low=-3, high=4, dtype=self.dtype(x))))
        return op.clip(z, -5, 5)

    def integer_reduction(self, x):
        axis = int(self.random.integers(len(self.shape(x))))
        return op.clip(self.emit(self.pick(op.sum, op.max, op.min)(x, [axis], keepdims=True)), -9, 9)

    def integer_cast(self, x):
        wanted = self.pick("float32", "int32", "int64")
        y = self.emit(op.astype(x, wanted))
        return op.multiply(y, relax.const(np.float32(0.25))) if wanted == "float32" else op.negative(y)

    def integer_comparison(self, x):
        return self.pick(op.less, op.greater_equal, op.equal, op.not_equal)(x, self.like(x))

    def bool_logic(self, x):
        return self.pick(op.logical_and, op.logical_or, op.logical_xor)(x, self.emit(op.logical_not(self.like(x))))

    def bool_cast(self, x):
        return op.astype(x, self.pick("float32", "int32"))

    # --- moving elements ---

    def any_reshape(self, x):
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

    def any_transpose(self, x):
        return op.permute_dims(x, [int(axis) for axis in self.random.permutation(len(self.shape(x)))])

    def any_concat(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        fits = [v for v in self.values if self.dtype(v) == self.dtype(x) and len(self.shape(v)) == len(shape) and all(
            a == b for index, (a, b) in enumerate(zip(self.shape(v), shape, strict=True)) if index != axis)]
        parts = [self.pick(*fits), x]
        return None if 2 * int(np.prod(shape)) > LARGEST else op.concat(parts, axis)

    def any_stack(self, x):
        if 2 * int(np.prod(self.shape(x))) > LARGEST or len(self.shape(x)) > 3:
            return None
        return op.stack([self.like(x), x], int(self.random.integers(len(self.shape(x)))))

    def any_split(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        if shape[axis] < 2:
            return None
        parts = self.emit(op.split(x, [int(self.random.integers(1, shape[axis]))], axis))
        return [relax.TupleGetItem(parts, index) for index in range(2)]

    def any_slice(self, x):
        shape = self.shape(x)
        axis = int(self.random.integers(len(shape)))
        first = int(self.random.integers(shape[axis]))
        return op.strided_slice(x, [axis], [first], [shape[axis]], [int(self.pick(1, 2))])

    def any_take(self, x):
        """Rows by constant indices, or by indices that are computed."""
        axis = int(self.random.integers(len(self.shape(x))))
        extent = self.shape(x)[axis]
        indices = self.integers(4, low=0, high=extent, dtype=self.pick("int32", "int64"))
        vectors = [v for v in self.values if self.dtype(v).startswith("int") and int(np.prod(self.shape(v))) < 9]
        if vectors and self.random.random() < 0.7:
            v = self.emit(op.reshape(self.pick(*vectors), [-1]))
            indices = self.emit(op.floor_mod(v, relax.const(extent, self.dtype(v))))
        if int(np.prod(self.shape(x))) // extent * 8 > LARGEST:
            return None
        return op.take(x, indices, axis, mode="fast")

    def any_flip(self, x):
        return op.flip(x, int(self.random.integers(len(self.shape(x)))))

    def any_tile(self, x):
        if 2 * int(np.prod(self.shape(x))) > LARGEST:
            return None
        axis = int(self.random.integers(len(self.shape(x))))
        return op.tile(x, [2 if index == axis else 1 for index in range(len(self.shape(x)))])

    def float_pad(self, x):
        if int(np.prod(self.shape(x))) * 3 > LARGEST:
            return None
        widths = [int(self.random.integers(0, 2)) for _ in range(2 * len(self.shape(x)))]
        return op.nn.pad(x, widths, pad_value=float(self.pick(0.0, 0.5)))

    # --- what is TVM's loops only, and stays with TVM or becomes kernels, in the middle of everything else ---

    def float_loops(self, x):
        if self.random.random() < 0.4:
            return None
        return self.pick(lambda v: self.builder.call_te(wave, v), lambda v: op.nn.softplus(v, 2.0, 10.0),
                         lambda v: op.atan2(v, self.emit(op.exp(v))), lambda v: op.sort(v, axis=-1))(x)

    def float_call(self, x):
        return Call(self.helper, [x]) if self.helper is not None and tuple(self.shape(x)) == HELPER else None
