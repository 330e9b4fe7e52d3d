# SPDX-License-Identifier: Apache-2.0
"""Prints statements of TIR as C: loops over blocks, with reductions in a local variable."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tvm import ir, tirx

from ...errors import MegccError
from ...ir.c_text import AND, ATOM, LESS, UNARY
from ...ir.dims import Dim, product
from ...ir.types import DTYPES
from ..tvm_versions import TENSOR_READ, Analyzer, Var, buffer_of
from . import helpers
from .common_subexpressions import Subexpressions
from .fuse import FusedLoops
from .text import FunctionText
from .values import MAX_DEPTH, Value, any_subexpression, int_value, is_deep

#: Kinds of a block's variables, as TIR numbers them.
SPATIAL, REDUCTION = 0, 2
#: The name of an accumulator, by how it is updated.
_ACCUMULATORS = {"Add": "sum", "Mul": "product", "Max": "most", "Min": "least"}


class Loops(FunctionText):
    """Prints the statements of one function.

    macs: the number of multiply-accumulates of the statements so far.
    _trip_counts: those of the enclosing loops.
    _initialized: blocks whose `init` has been printed before their loop.
    _task_loop: the loop whose iterations are tasks.

    A method `_For` prints the class `For` of TIR, and so on.
    """

    def __init__(self, analyzer: Analyzer, dim):
        super().__init__(analyzer, dim)
        self.macs: Dim = 0
        self._trip_counts: list[Dim] = []
        self._initialized: list = []
        self._task_loop = None

    # --- statements ----------------------------------------------------------------------------------------------

    def print_outermost(self, statements: Iterable) -> None:
        """Prints the outermost statements of a function, or those of fused loops; numbers them for live ranges."""
        for statement in statements:
            self.position += 1
            self.statement(statement)

    def print_tasks(self, statement, loop) -> Dim:
        """Prints the only statement of a function. The tasks are the iterations of one of its loops. Returns the number
        of tasks."""
        self._task_loop = loop
        self.statement(statement)
        return self.dim(loop.extent)

    def statement(self, statement) -> None:
        """Prints a statement.

        Raises:
            MegccError: naming what in it cannot be printed.
        """
        kind = type(statement).__name__
        printer = getattr(self, f"_{kind}", None)
        if printer is None:
            raise MegccError(f"TIR's {kind} is not supported")
        _require_shallow(statement)
        printer(statement)

    def _FusedLoops(self, nests: FusedLoops) -> None:
        """Prints fused loops as one loop, whose variable stands for the variables of all."""
        for unit in nests.unit_loops:
            self.bind(unit.loop_var, self.simplified(unit.min))
        first, *others = nests.loops
        with self.loop(first):
            for other in others:
                if not other.loop_var.same_as(first.loop_var):
                    self.bind(other.loop_var, first.loop_var)
            self.print_outermost(nests.bodies)

    def _SeqStmt(self, statement) -> None:
        for part in statement.seq:
            self.statement(part)

    def _AttrStmt(self, statement) -> None:
        if statement.attr_key in ("thread_extent", "virtual_thread"):
            raise MegccError(f"TIR's attribute {statement.attr_key} is not supported")
        self.statement(statement.body)

    def _Evaluate(self, statement) -> None:
        if type(statement.value).__name__ == "Call":
            name = statement.value.op.name.rpartition(".")[2]
            if name in ("break_loop", "continue_loop"):
                self.lines.append(f"{name.partition('_')[0]};")
                return
            self._call(statement.value)

    def _Break(self, _statement) -> None:
        self.lines.append("break;")

    def _Continue(self, _statement) -> None:
        self.lines.append("continue;")

    def _AssertStmt(self, statement) -> None:
        condition = self.value(statement.condition)
        self.lines += [f"if (!{condition.operand(UNARY)}) {{", "return MEGCC_KERNEL_FAILED;", "}"]

    def _Bind(self, statement) -> None:
        self._define(statement.var, statement.value)

    def _LetStmt(self, statement) -> None:
        self._define(statement.var, statement.value)
        self.statement(statement.body)

    def _define(self, variable, expr) -> None:
        """Prints the definition of a variable."""
        value = self.value(expr)
        c_type = "float" if value.dtype == "float16" else "int" if value.dtype == "bool" else DTYPES[value.dtype].c_type
        name = self.name(variable.name.removeprefix("v_"))
        self.lines.append(f"const {c_type} {name} = {value.text};")
        self.variables[variable] = Value(name, ATOM, value.dtype)

    def _IfThenElse(self, statement) -> None:
        condition = self.value(statement.condition)
        with self.assuming(statement.condition), self.block(f"if ({condition.text})"):
            self.statement(statement.then_case)
        if statement.else_case is not None:
            with self.assuming(tirx.Not(statement.condition)), self.block("else"):
                self.statement(statement.else_case)

    def _While(self, statement) -> None:
        """Prints a while loop. It also ends when an index is out of bounds, since its counter may not change any more
        then."""
        head = len(self.lines)
        condition = self.value(statement.condition)
        with self.block("while (@)"):  # @ is replaced when it is known whether the body checks indices
            self.statement(statement.body)
        has_checks = any(f"{helpers.INDEX}(" in line for line in (condition.text, *self.lines[head:]))
        text = f"!outside && {condition.operand(AND)}" if has_checks else condition.text
        self.lines[head] = self.lines[head].replace("@", text)

    def _For(self, loop) -> None:
        if loop.thread_binding is not None:
            raise MegccError("TIR's loops over threads are not supported")
        reduction = self._reduction(loop)
        if reduction is not None:
            self._reduce(loop, reduction)
            return
        with self.scope():
            if self.vector_loop(loop, self._elementwise):
                return
        with self.loop(loop):
            self.statement(loop.body)

    def _elementwise(self, loop):
        """Returns the only store in a loop, and the variables whose values change with the loop's; None if the loop has
        other statements. Binds these variables."""
        statement = loop.body
        if self._task_loop is not None and self._task_loop.same_as(loop):  # a loop over vectors would begin at 0
            return None
        realize = statement if type(statement).__name__ == "SBlockRealize" else None
        if realize is not None:
            block = realize.block
            if int_value(realize.predicate) != 1 or block.init is not None or len(block.alloc_buffers) \
                    or len(block.match_buffers):
                return None
            statement = block.body
        # At most 2^30 iterations, so that adding the lanes of a vector to the int32_t loop variable does not overflow.
        if type(statement).__name__ != "BufferStore" or not self.fits(loop.extent, 1, 2**30):
            return None
        _require_shallow(statement)
        self.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, self.simplified(loop.extent)))
        self.variables[loop.loop_var] = Value(self.name(loop.loop_var.name), ATOM, "int32")
        lane_variables = [loop.loop_var]
        if realize is not None:
            self._bind_axes(realize)
            lane_variables += [axis.var for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
                               if any(variable.same_as(loop.loop_var) for variable in _variables(value))]
        return statement, lane_variables

    @contextmanager
    def loop(self, loop) -> Iterator[None]:
        """Prints a loop around the statements that are printed within the scope; no loop for one iteration."""
        extent = self.simplified(loop.extent)
        step = 1 if loop.step is None else int_value(loop.step)
        if step is None or step < 1:
            raise MegccError(f"a loop with the step {loop.step} is not supported")
        self._trip_counts.append(self.trip_count(extent))
        if int_value(extent) == 1:
            self.bind(loop.loop_var, self.simplified(loop.min))
            yield
        else:
            start, stop = self.simplified(loop.min), self.simplified(loop.min + loop.extent)
            self.bind(loop.loop_var, ir.Range.from_min_extent(start, extent))
            dtype = "int32" if self.fits(stop, -2**31, 2**31 - 1) else "int64"
            c_type = DTYPES[dtype].c_type
            advance = "++" if step == 1 else f" += {step}"
            with self.scope():
                first, last = self.text(start), self.text(stop, LESS + 1)
                if self._task_loop is not None and self._task_loop.same_as(loop):
                    first, last = "begin", "end"
                name = self.name(loop.loop_var.name)
                self.variables[loop.loop_var] = Value(name, ATOM, dtype)
                with self.block(f"for ({c_type} {name} = {first}; {name} < {last}; {name}{advance})"):
                    yield
        self._trip_counts.pop()

    def trip_count(self, extent) -> Dim:
        """Returns the trip count of a loop, for reports; a trip count that depends on other loops counts as 1."""
        try:
            return self.dim(extent)
        except MegccError:
            return 1

    def _BufferStore(self, statement) -> None:
        memory = self.memory(statement.buffer)
        self.subexpressions = Subexpressions()
        value = self.stored(statement.value, memory.dtype)
        offset = "" if memory.is_variable else self.offset(statement.buffer, statement.indices)
        value, offset = self.extract_common([value, offset])
        if memory.is_variable:
            self.lines.append(f"{memory.name} = {value};")
            return
        if helpers.INDEX in offset and f"[{offset}]" in value:  # the element is read and written: one check is enough
            name = self.name("at")
            self.lines.append(f"const int32_t {name} = {offset};")
            offset, value = name, value.replace(f"[{offset}]", f"[{name}]")
        self.lines.append(f"{memory.name}[{offset}] = {value};")

    # --- blocks --------------------------------------------------------------------------------------------------

    def _SBlockRealize(self, realize) -> None:
        block = realize.block
        if len(block.match_buffers):
            raise MegccError("TIR's match_buffer in a block is not supported")
        self._bind_axes(realize)
        predicate = self.simplified(realize.predicate)
        if int_value(predicate) == 1:
            self._body(block)
            return
        with self.block(f"if ({self.text(predicate)})"), self.assuming(predicate):
            self._body(block)

    def _bind_axes(self, realize) -> None:
        """Tells the analyzer the values of a block's axes."""
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            self.bind(axis.var, self.simplified(value))

    def _body(self, block) -> None:
        """Prints a block: its temporaries, its `init` in the first iteration of its reduction axes, its body."""
        for buffer in block.alloc_buffers:
            self.allocate(buffer)
        if block.init is not None and not any(block.same_as(other) for other in self._initialized):
            first = [tirx.EQ(axis.var, axis.dom.min) for axis in block.iter_vars if axis.iter_type == REDUCTION]
            condition = self.simplified(functools.reduce(tirx.And, first)) if first else None
            if condition is None or int_value(condition) == 1:
                self.statement(block.init)
            else:
                with self.block(f"if ({self.text(condition)})"):
                    self.statement(block.init)
        self._count_macs(block)
        self.statement(block.body)

    def _AllocBuffer(self, statement) -> None:
        self.allocate(statement.buffer)

    # --- reductions ----------------------------------------------------------------------------------------------

    def _reduction(self, loop):
        """Returns the block (SBlockRealize) inside a nest of loops, of which this is the outermost, if all of them run
        over its reduction axes and no loop outside does; else None."""
        loops, statement = [], loop
        while type(statement).__name__ == "For":
            loops.append(statement.loop_var)
            statement = statement.body
        if type(statement).__name__ != "SBlockRealize" or statement.block.init is None \
                or int_value(statement.predicate) != 1 or len(statement.block.alloc_buffers):
            return None
        reduction_variables: list = []
        for axis, value in zip(statement.block.iter_vars, statement.iter_values, strict=True):
            found = _variables(value)
            if axis.iter_type == REDUCTION:
                reduction_variables += found
            elif any(_contains(variable, loops) for variable in found):
                return None
        are_the_same = all(_contains(variable, reduction_variables) for variable in loops) \
            and all(_contains(variable, loops) for variable in reduction_variables)
        return statement if are_the_same else None

    def _reduce(self, loop, realize) -> None:
        """Prints a reduction that `_reduction` found. One into a single element accumulates in a local variable."""
        block = realize.block
        for statement in (block.init, block.body):
            _require_shallow(statement)
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if axis.iter_type != REDUCTION:
                self.bind(axis.var, self.simplified(value))
        self._initialized.append(block)
        accumulator = self._accumulator_of(block)
        if accumulator is None:
            self.statement(block.init)
            self._nest(loop, lambda: self.statement(realize))
            return
        store, offset = accumulator
        memory = self.memory(store.buffer)
        c_type = "float" if memory.dtype == "float16" else DTYPES[memory.dtype].c_type
        name = self.name(_ACCUMULATORS.get(type(store.value).__name__, "value"))
        self.lines.append(f"{c_type} {name} = {self.text(block.init.value)};")
        self.elements_in_variables.append((store.buffer, offset, Value(name, ATOM, memory.dtype)))

        def update() -> None:
            self._bind_axes(realize)
            self._count_macs(block)
            self.subexpressions = Subexpressions()
            (value,) = self.extract_common([self.text(store.value)])
            self.lines.append(f"{name} = {value};")

        self._nest(loop, update)
        self.elements_in_variables.pop()
        value = f"mgc_to_float16((double){name})" if memory.dtype == "float16" else name
        self.lines.append(f"{memory.name if memory.is_variable else f'{memory.name}[{offset}]'} = {value};")

    def _nest(self, loop, body) -> None:
        """Prints a nest of loops. body: prints what is in the innermost one."""
        with self.loop(loop):
            if type(loop.body).__name__ == "For":
                self._nest(loop.body, body)
            else:
                body()

    def _accumulator_of(self, block):
        """Returns (store, offset of its element in C) of a reduction into one element. Returns None for other blocks,
        also for those that read, along the reduction, more elements of the buffer that they store to."""
        store, init = block.body, block.init
        if type(store).__name__ != "BufferStore" or type(init).__name__ != "BufferStore" \
                or not store.buffer.same_as(init.buffer):
            return None
        reduced = [axis.var for axis in block.iter_vars if axis.iter_type == REDUCTION]
        if any(_contains(variable, reduced) for index in store.indices for variable in _variables(index)):
            return None
        offset = self.offset(store.buffer, store.indices)
        if offset != self.offset(init.buffer, init.indices) or any(
                buffer_of(part).same_as(store.buffer) and any(
                    _contains(variable, reduced) for index in part.indices for variable in _variables(index))
                for part in _loads(store.value)):
            return None
        return store, offset

    def _count_macs(self, block) -> None:
        """Counts multiply-accumulates: a sum of products times the trip counts of the enclosing loops."""
        if type(block.body).__name__ == "BufferStore" and block.init is not None \
                and type(block.body.value).__name__ == "Add" \
                and any(type(_uncast(part)).__name__ == "Mul" for part in (block.body.value.a, block.body.value.b)):
            self.macs = self.macs + product(self._trip_counts)


def _require_shallow(statement) -> None:
    if any(is_deep(getattr(statement, name)) for name in ("value", "condition") if hasattr(statement, name)):
        raise MegccError(f"an expression of TIR has more than {MAX_DEPTH} operations within each other; store parts of "
                         "it in buffers")


def _uncast(expr):
    return expr.value if type(expr).__name__ == "Cast" else expr


def _variables(expr) -> list:
    """Returns the variables in an expression, one for each use."""
    found: list = []
    any_subexpression(expr, lambda part: isinstance(part, Var) and found.append(part))
    return found


def _loads(expr) -> list:
    """Returns the reads of buffers in an expression."""
    found: list = []
    any_subexpression(expr, lambda part: type(part).__name__ == TENSOR_READ and found.append(part))
    return found


def _contains(variable, others) -> bool:
    return any(variable.same_as(other) for other in others)

