# SPDX-License-Identifier: Apache-2.0
"""Prints a TIR function as a `Program`: operands, extents, workspace and tasks, around the statements of `loops`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np
import tvm
from tvm import ir, tirx

from ...errors import MegccError
from ...ir.c_text import ATOM
from ...ir.dims import Dim, FloorDiv, Sum, Symbol, floordiv, product, to_c
from ...ir.types import DTYPES, TensorType
from ...ops.control.tir import Program
from ..tvm_versions import Analyzer, Var, element_type, is_buffer, parameters_of
from . import helpers
from .fuse import FusedLoops, Fusion
from .loops import SPATIAL, Loops
from .schedule import inline_cheap_blocks
from .text import dtype_of_buffer
from .values import Memory, Value, int_value
from .workspace import assign_slots, pointer_definitions

#: Extents are int32_t in C.
_MAX_EXTENT = 2**31 - 1
_ARITHMETIC = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "FloorDiv": floordiv}


def program_of(function: tirx.PrimFunc, inputs: int, name: str) -> Program:
    """Returns a TIR function as a kernel.

    Args:
        function: its parameters are `inputs` buffers, buffers for the results, and integers.
        name: what it computes; it becomes part of the kernel's name.

    Raises:
        MegccError: naming what in it cannot be printed.
    """
    return _Printer(function, inputs, name).program()


class _Printer:
    """Prints one function.

    original: the function as given; function: after inlining of cheap blocks.
    symbols: variable of TIR that is an extent or an integer parameter -> our symbol.
    max_extents: variable -> the largest value that any buffer allows it.
    """

    def __init__(self, function: tirx.PrimFunc, inputs: int, name: str):
        self.original, self.function = function, inline_cheap_blocks(function)
        self.inputs, self.name = inputs, name
        self.loops = Loops(Analyzer(), self.dim)
        self.symbols: dict[Var, Symbol] = {}
        self.max_extents: dict[Var, int] = {}

    def program(self) -> Program:
        loops = self.loops
        parameters = parameters_of(self.function)
        buffers = [parameter for parameter in parameters if is_buffer(parameter)]
        self._find_max_extents(buffers)
        scalars = tuple(self.extent(parameter).name for parameter in parameters if not is_buffer(parameter))
        axes_of_extents = self._axes_of_extents(buffers, scalars)
        operands = self._operands(buffers)
        tasks = self._print_body()
        parallel = tasks != 1
        slots = assign_slots(list(loops.temporaries.values()))
        memory = "scratch" if parallel else "call->shared"
        pointers, workspace_size = pointer_definitions(slots, memory, to_c_ptrdiff)
        may_fail = helpers.INDEX in loops.helpers
        sizes = [type_.bytes for _, type_ in operands]
        sizes += [product((slot.size, DTYPES[slot.dtype].bytes)) for slot in slots]
        # Without a parallel loop there is one task, of all statements, which do not read `begin` and `end`.
        head = [] if parallel else ["if (begin >= end) {", "return 0;", "}"]
        head += size_guard(sizes)
        head += pointers + ["int outside = 0;"] * may_fail
        body = "\n".join([*head, *loops.lines, f"return {'outside ? MEGCC_KERNEL_FAILED : 0' if may_fail else '0'};"])
        functions = dict.fromkeys(part for helper in loops.helpers for part in helpers.helper(helper))
        unknown = {symbol.name for symbol in self.symbols.values()} - set(axes_of_extents) - set(scalars)
        if unknown:
            raise MegccError(f"the extents {', '.join(sorted(unknown))} of {self.name} are no axes of its operands")
        extents = tuple((name, *axis) for name, axis in sorted(axes_of_extents.items()))
        digest = hashlib.sha256(repr((body, operands, extents, scalars, tuple(functions))).encode()).hexdigest()[:8]
        return Program(
            name=self.name, digest=digest, inputs=tuple(operands[:self.inputs]), outputs=tuple(operands[self.inputs:]),
            body=body, helpers=tuple(functions), extents=extents, given=scalars, tasks=tasks,
            shared=0 if parallel else workspace_size, scratch=workspace_size if parallel else 0, macs=loops.macs,
            evaluate=_Evaluation(self.original, self.inputs))

    def _axes_of_extents(self, buffers: Sequence, scalars: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Returns extent -> (input, axis), the first axis that is this extent, for those that are not parameters."""
        found: dict[str, tuple[int, int]] = {}
        for position, buffer in enumerate(buffers[:self.inputs]):
            for axis, dim in enumerate(buffer.shape):
                if isinstance(dim, Var) and (name := self.extent(dim).name) not in scalars:
                    found.setdefault(name, (position, axis))
        return found

    def _operands(self, buffers: Sequence) -> list[tuple[str, TensorType]]:
        """Returns the names in C and the types of the inputs and results, and declares their memory."""
        names = {buffer: self.loops.name(buffer.name) for buffer in buffers}
        operands = [(names[buffer], self.tensor_type(buffer)) for buffer in buffers]
        for buffer, (name, type_) in zip(buffers, operands, strict=True):
            if len(buffer.strides):
                raise MegccError(f"the buffer {buffer.name} has strides")
            self.loops.buffers[buffer] = Memory(name, type_.dtype, tuple(buffer.shape))
        return operands

    def _print_body(self) -> Dim:
        """Prints the function's statements, after loop fusion, and returns its number of tasks."""
        temporaries: list = []
        fusion = Fusion()
        statements = fusion.fuse(top_level(self.function.body, temporaries.append))
        for buffer in temporaries:
            self.loops.allocate(buffer, fusion.dropped_axes.get(buffer, ()))
        loop = parallel_loop(statements)
        if loop is None:
            self.loops.print_outermost(statements)
            return 1
        return self.loops.print_tasks(statements[0], loop)

    def extent(self, variable) -> Symbol:
        """Returns the symbol of a variable that is an extent or an integer parameter."""
        if variable not in self.symbols:
            name = self.loops.name(variable.name.upper())
            self.symbols[variable] = Symbol(name)
            self.loops.variables[variable] = Value(name, ATOM, "int32")
            self.loops.bind(variable, ir.Range(1, self.max_extents.get(variable, _MAX_EXTENT) + 1))
        return self.symbols[variable]

    def _find_max_extents(self, buffers) -> None:
        """Bounds the extents, since no tensor has more than 2 GB."""
        for buffer in buffers:
            known_bytes = math.prod(int_value(dim) or 1 for dim in buffer.shape) * DTYPES[dtype_of_buffer(buffer)].bytes
            for dim in buffer.shape:
                if isinstance(dim, Var):
                    bound = max(_MAX_EXTENT // known_bytes, 1)
                    self.max_extents[dim] = min(self.max_extents.get(dim, _MAX_EXTENT), bound)

    def tensor_type(self, buffer) -> TensorType:
        """Returns the type of a buffer."""
        return TensorType(dtype_of_buffer(buffer), tuple(map(self.dim, buffer.shape)))

    def dim(self, expr) -> Dim:
        """Returns an integer expression over the function's extents."""
        value = int_value(expr)
        if value is not None:
            return value
        if isinstance(expr, Var):
            is_local = expr in self.loops.variables and expr not in self.symbols  # such as a loop variable
            if not is_local:
                return self.extent(expr)
        kind = type(expr).__name__
        if kind == "Cast":
            return self.dim(expr.value)
        if kind not in _ARITHMETIC:
            raise MegccError(f"the extent {expr} is no arithmetic that we have")
        return _ARITHMETIC[kind](self.dim(expr.a), self.dim(expr.b))


def size_guard(sizes: Iterable[Dim]) -> list[str]:
    """Returns C that refuses extents for which a tensor exceeds 2 GB, since offsets are int32_t."""
    large = [f"{to_c(size)} > INT32_MAX" for size in dict.fromkeys(sizes) if not isinstance(size, int)]
    return [f"if ({' || '.join(large)}) {{", "return MEGCC_KERNEL_FAILED;", "}"] if large else []


def to_c_ptrdiff(dim: Dim) -> str:
    """Returns an extent as C over ptrdiff_t."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, Symbol):
        return f"(ptrdiff_t){dim.name}"
    if isinstance(dim, Sum):
        parts = []
        for factors, coefficient in dim.terms:
            strings = [*([str(coefficient)] if coefficient != 1 else []), *map(to_c_ptrdiff, factors)]
            parts.append(" * ".join(strings))
        return "(" + " + ".join(parts + ([str(dim.constant)] if dim.constant else [])) + ")"
    if isinstance(dim, FloorDiv):
        return f"({to_c_ptrdiff(dim.numerator)} / {to_c_ptrdiff(dim.denominator)})"
    raise MegccError(f"the extent {dim} is no arithmetic that we have")


def top_level(body, allocate) -> list:
    """Returns the outermost statements of a function. allocate: called with the buffers of its outermost block."""
    kind = type(body).__name__
    if kind == "SBlockRealize" and not len(body.block.iter_vars) and body.block.init is None \
            and int_value(body.predicate) == 1 and not len(body.block.match_buffers):
        for buffer in body.block.alloc_buffers:
            allocate(buffer)
        return top_level(body.block.body, allocate)
    if kind == "SeqStmt":
        return [statement for part in body.seq for statement in top_level(part, allocate)]
    if kind == "AttrStmt" and body.attr_key.startswith("pragma"):
        return top_level(body.body, allocate)
    return [body]


def parallel_loop(statements: Sequence):
    """Returns the loop whose iterations are tasks; None if there is none.

    It is the outermost loop with more than one iteration, if its iterations are independent and no statement is outside
    of it.
    """
    if len(statements) != 1:
        return None
    loop = statements[0]
    if isinstance(loop, FusedLoops):
        return loop.loops[0]
    while type(loop).__name__ == "For" and int_value(loop.extent) == 1:
        loop = loop.body
    if type(loop).__name__ != "For" or int_value(loop.min) != 0 or loop.step is not None \
            or loop.thread_binding is not None:
        return None
    return loop if int(loop.kind) == tirx.ForKind.PARALLEL or _is_spatial(loop) else None


def _is_spatial(loop) -> bool:
    """Whether a loop contains only blocks, each with the loop variable as one of its spatial axes, and none reads what
    another one wrote in another iteration."""
    blocks = list(_blocks(loop.body))
    return bool(blocks) and all(realize is not None and any(
        axis.iter_type == SPATIAL and value.same_as(loop.loop_var)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)) for realize in blocks) \
        and (len(blocks) == 1 or Fusion().fusable_axes([loop], [loop]) is not None)


def _blocks(statement) -> Iterable:
    """Yields the outermost blocks in a statement, and None for each store outside of blocks."""
    kind = type(statement).__name__
    if kind == "SBlockRealize":
        yield statement
    elif kind in ("For", "AttrStmt", "LetStmt", "While"):
        yield from _blocks(statement.body)
    elif kind == "SeqStmt":
        for part in statement.seq:
            yield from _blocks(part)
    else:
        yield None


class _Evaluation:
    """Evaluates a TIR function on numpy arrays, by TVM's own build of it."""

    def __init__(self, function: tirx.PrimFunc, inputs: int):
        self.function, self.inputs = function, inputs

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        buffers = [parameter for parameter in parameters_of(self.function) if is_buffer(parameter)]
        if len(buffers) != len(self.function.params):
            raise MegccError("a function with integers among its parameters is not evaluated here")
        values: dict[Var, int] = {}
        for buffer, array in zip(buffers, arrays, strict=False):
            values.update({dim: size for dim, size in zip(buffer.shape, array.shape, strict=True)
                           if isinstance(dim, Var)})
        results = []
        for buffer in buffers[self.inputs:]:
            shape = [int(_substitute(dim, values)) for dim in buffer.shape]
            results.append(np.zeros(shape, str(buffer.dtype)))
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in (*arrays, *results)]
        module = tvm.IRModule({"main": self.function.with_attr("global_symbol", "main")})
        tvm.compile(module, target="llvm")["main"](*tensors)
        return tuple(tensor.numpy() for tensor in tensors[self.inputs:])


def _substitute(expr, values):
    """Returns an expression with values in place of variables, simplified."""
    analyzer = Analyzer()
    for variable, value in values.items():
        analyzer.bind(variable, tirx.IntImm(element_type(variable), value), allow_override=True)
    return analyzer.simplify(expr)
