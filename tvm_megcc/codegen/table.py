# SPDX-License-Identifier: Apache-2.0
"""Prints `kernels.c`: the kernel table of every target, with the signatures that containers are checked against.

A kernel with run-time extents accepts only the extents of the calls that it was generated for. The table lists these
extents and the sizes that follow from them, as numbers or as references to values of the shape function. The runtime
looks the extents of a container up in the table, which is trusted code, so no kernel gets contradictory extents. The
table also has the bounds of symbols, the alignment that kernels were generated for, and the types of the program's
inputs and outputs. The runtime refuses containers that differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2

from ..errors import InternalError, MegccError
from ..ir.conditions import Condition, undecided
from ..ir.dims import Dim, dim_max, likely
from ..ir.extent_bounds import limits
from ..ir.graph import Graph
from ..ir.shapes import Bucket, hull
from ..ir.types import DTYPES, TensorType
from ..ops.graph_conditions import conditions
from ..target import Target
from .c_source.bind import KernelSpec
from .c_source.render import render_kernel
from .c_source.symbols import kernel_file
from .container import DType, LayoutKind
from .headers import HEADER
from .machines import refusal
from .plan import KernelPlan, distinct_specs
from .shapefn import SET_UNKNOWN, SET_VALUE, ShapeTable

#: The time that a call takes, at least, if two workers share it. On a Zen 4, where threads poll for the next call,
#: sharing costs 0.7 microseconds if the cores have a common cache; else 2.3, and the transfer of the data.
WORTH_CYCLES, WORTH_NANOSECONDS = 20000, 5000
#: More bytes than a call has.
NEVER_SHARED = 63


@dataclass(frozen=True)
class KernelTable:
    """The contents of the kernel table of one target.

    specs: the kernels; the index of a kernel is its id in the container.
    calls: for each kernel with run-time extents, {extents of a call: sizes that follow}. The sizes are the bytes of
        each operand, of shared workspace and of scratch, and the number of tasks. All numbers are references
        (`ShapeTable.reference`): one that is not negative is the value itself, a negative one refers to a value of the
        shape function.
    alone: for each kernel of a program with several workers, the `alone` of its row (`megcc_kernel`).
    shapes: the symbols and values of the shape function.
    bounds: the bounds of the symbols of `shapes`, in their order.
    inputs, outputs: the types of the program's inputs and outputs.
    """

    target: Target
    specs: tuple[KernelSpec, ...]
    calls: Mapping[KernelSpec, Mapping[tuple[int, ...], tuple[int, ...]]]
    alone: Mapping[KernelSpec, int]
    shapes: ShapeTable
    bounds: Bucket
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @staticmethod
    def of(plan: KernelPlan, buckets: Sequence[Bucket]) -> KernelTable:
        """Returns the table of a plan for some buckets of shapes, which have their symbols in one order."""
        bounds = hull(buckets)
        called: dict[KernelSpec, dict[tuple[Dim, ...], tuple[Dim, ...]]] = {}
        for step in plan.steps:
            if step.spec.runtime_extents:
                sizes = [_at_least_zero(step.size(p.size)) * DTYPES[p.dtype].bytes
                         for p in (*step.spec.inputs, *step.spec.outputs)]
                sizes += [step.size(step.spec.shared), step.size(step.spec.scratch), step.size(step.spec.tasks)]
                called.setdefault(step.spec, {})[step.bound.extents] = tuple(sizes)
        sizes = (size for rows in called.values() for row in rows.values() for size in row)
        shapes = ShapeTable.of(plan, tuple(bounds.limits), sizes,
                               undecided(_conditions(plan.graph, bounds), bounds.limits))
        calls = {spec: {shapes.references(extents): shapes.references(sizes) for extents, sizes in rows.items()}
                 for spec, rows in called.items()}
        inputs, outputs = (tuple(plan.graph.types[name] for name in names)
                           for names in (plan.graph.inputs, plan.graph.outputs))
        return KernelTable(plan.target, distinct_specs([plan]), calls, _alone(plan), shapes, bounds, inputs, outputs)

    @cached_property
    def text(self) -> tuple[list[str], str]:
        """Returns the tables of this target as lines of C, and its row of `megcc_code` without the id."""
        return _target_section(self), _code_row(self)

    @property
    def id(self) -> int:
        """Returns the hash of everything in the table: a container built for other kernels is refused."""
        section, row = self.text
        return _hash("\n".join([*section, row]))


def _alone(plan: KernelPlan) -> dict[KernelSpec, int]:
    """Returns the `alone` of each kernel's row; nothing for a program with one worker.

    A call is worth sharing from a time on. With run-time extents, its time is taken to be in proportion to the bytes of
    its operands, as it is for the likely extents."""
    found: dict[KernelSpec, int] = {}
    worth = WORTH_CYCLES if plan.context.times is None else WORTH_NANOSECONDS
    for step in plan.steps if plan.workers > 1 else ():
        parameters, cost = (*step.spec.inputs, *step.spec.outputs), step.bound.choice.cost
        if step.spec.runtime_extents and cost > 0:
            bytes_ = sum(max(0, likely(step.size(p.size))) * DTYPES[p.dtype].bytes for p in parameters)
            alone = round(log2(max(1, worth * bytes_ / cost)))
        else:
            alone = NEVER_SHARED if 0 < cost < worth else 0
        found[step.spec] = min(alone, found.get(step.spec, NEVER_SHARED))
    return found


def _at_least_zero(size: Dim) -> Dim:
    """Returns a size clamped to at least 0, since the expression for a kernel's last element may be negative if there
    are no elements."""
    minimum, _ = limits(size)
    return dim_max(size, 0) if minimum is None or minimum < 0 else size


def _conditions(graph: Graph, bounds: Bucket) -> Iterable[Condition]:
    """Returns the conditions on the shapes of a graph, without those on unbacked symbols that passes have removed."""
    return (condition for condition in conditions(graph) if condition.symbols <= set(bounds.limits))


def model_id(tables: Sequence[KernelTable]) -> int:
    """Returns the id of a model: a hash of its kernel tables."""
    return _hash(" ".join(f"{table.id:016x}" for table in tables))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def render_sources(name: str, plans: Sequence[KernelPlan], tables: Sequence[KernelTable]) -> dict[str, str]:
    """Returns the C files of a model: one in `kernels/` for every distinct kernel, the files that kernels share
    (`Parameters.files`), and `kernels.c`."""
    origins: dict = {}
    for plan in plans:
        for step in plan.steps:
            origins.setdefault(step.spec, []).append(step.op.origin)
    files: dict[str, str] = {name: text for spec in origins for name, text in spec.params.files}
    for spec, names in origins.items():
        path = kernel_file(spec.symbol)
        if path in files:
            raise InternalError(f"two kernels are called {spec.symbol}")
        files[path] = render_kernel(spec, tuple(dict.fromkeys(filter(None, names))))
    return {**files, "kernels.c": render_table(name, tables)}


def _by_instructions(tables: Sequence[KernelTable]) -> list[list[KernelTable]]:
    """Returns groups of equal tables, of which one is printed: those of targets with one instruction set, such as
    cortex-m4 and cortex-m7.

    Raises:
        MegccError: if such targets have different kernels, whose tables would have the same name.
    """
    groups: dict[str, list[KernelTable]] = {}
    for table in tables:
        first = groups.setdefault(table.target.isa.name, [table])[0]
        if first.id != table.id:
            raise MegccError(f"{first.target} and {table.target} have the same instructions and other kernels: compile "
                             "a folder for each")
        if first is not table:
            groups[table.target.isa.name].append(table)
    return list(groups.values())


def render_table(name: str, tables: Sequence[KernelTable]) -> str:
    """Returns the text of kernels.c for one model."""
    lines = ["/* SPDX-License-Identifier: 0BSD",
             f" * The kernels of {name}, a table for each CPU it was compiled for. */",
             f'#include "{HEADER}"', "", *refusal(name, [table.target for table in tables])]
    if any(table.shapes.symbols for table in tables):
        lines += [SET_VALUE]
    if any("set_unknown(value" in line for table in tables for line in table.text[0]):
        lines += [SET_UNKNOWN]
    if any(table.calls for table in tables):
        lines += [_LOOK_UP]
    groups = _by_instructions(tables)
    for table, *others in groups:
        lines += [f"/* {', '.join(row.target.name for row in (table, *others))} */", *table.text[0]]
    lines += [f"static const megcc_code {name}_codes[] = {{"]
    for table, *_ in groups:
        lines += [f"#if {table.target.isa.condition}", f"    {{ UINT64_C(0x{table.id:016x}), {table.text[1]} }},",
                  "#endif"]
    # The last row has an ISA that no CPU has.
    lines += ["    { 0, 0xffffffffu, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL } /* end */", "};", "",
              f"extern const megcc_module {name}_module;",
              f"const megcc_module {name}_module = {{",
              "    MEGCC_KERNEL_ABI,",
              f"    (uint32_t)(sizeof {name}_codes / sizeof {name}_codes[0]) - 1u,",
              f"    {name}_codes",
              "};", ""]
    return "\n".join(lines)


def _name(what: str, table: KernelTable) -> str:
    """Returns the name of a C variable or function of one target."""
    return f"{what}_{table.target.isa.name}"


def _code_row(table: KernelTable) -> str:
    """Returns a row of megcc_code, after its id."""
    isa, shapes = table.target.isa, table.shapes
    bounds, function = (_name(what, table) if shapes.symbols else "NULL" for what in ("bounds", "shapes"))
    counts = (table.specs, shapes.symbols, shapes.values, table.inputs, table.outputs)
    return (f"0x{isa.code:08x}u, {isa.alignment}, {', '.join(str(len(rows)) for rows in counts)}, "
            f"{_name('kernels', table)}, {bounds}, {_name('ports', table)}, {function}")


#: The C functions that look up a call. A row has the extents of a call, then its sizes. Each is a value or a reference
#: to the values of the shape function (shapefn.py).
_LOOK_UP = """\
/* Returns what a reference stands for: itself if it is not negative, else the entry -1 - reference of the table. */
static int32_t resolve(const int32_t *table, int32_t reference)
{
    return reference < 0 ? table[-1 - reference] : reference;
}

/* Finds the row whose extents are those of a call, and stores its sizes in `need`. */
static int32_t look_up(const int32_t *row, int32_t rows, int32_t extents, int32_t sizes, const int32_t *table,
                       const int32_t *extent, int64_t *need)
{
    for (; rows > 0; rows--, row += extents + sizes) {
        int32_t equal = 0;
        while (equal < extents && resolve(table, row[equal]) == extent[equal]) {
            equal++;
        }
        if (equal == extents) {
            for (int32_t i = 0; i < sizes; i++) {
                need[i] = resolve(table, row[extents + i]);
            }
            return MEGCC_KERNEL_OK;
        }
    }
    return MEGCC_KERNEL_FAILED;
}
"""


def _need_function(function: str, spec: KernelSpec, calls: Mapping[tuple[int, ...], tuple[int, ...]]) -> list[str]:
    """Returns the C function that finds the sizes for the extents of a call. Its header comment names the columns."""
    extents = spec.runtime_extents
    sizes = [*(p.name for p in (*spec.inputs, *spec.outputs)), "shared", "scratch", "tasks"]
    rows = [f"        {', '.join(map(str, (*extents_, *sizes_)))}," for extents_, sizes_ in calls.items()]
    return [f"/* {spec.symbol}: {', '.join(extents)}; {', '.join(sizes)} */",
            f"static int32_t {function}(const int32_t *table, const int32_t *extent, int64_t *need)", "{",
            "    static const int32_t calls[] = {", *rows, "    };",
            f"    return look_up(calls, {len(calls)}, {len(extents)}, {len(sizes)}, table, extent, need);", "}", ""]


def _bound_rows(table: KernelTable) -> list[str]:
    rows = [f"    {{ {lower}, {-1 if upper is None else upper} }},"
            for _, lower, upper in table.bounds.bounds]
    return [f"static const megcc_bound {_name('bounds', table)}[] = {{", *rows, "};", ""]


def _port_rows(table: KernelTable) -> list[str]:
    lines = [f"static const int32_t {_name('ports', table)}[] = {{"]
    for type_ in (*table.inputs, *table.outputs):
        row = (DType[type_.dtype].value, LayoutKind[type_.layout.kind].value, type_.layout.block, type_.rank,
               *table.shapes.references(type_.shape))
        lines.append(f"    {', '.join(map(str, row))},")
    return [*lines, "};", ""]


def _target_section(table: KernelTable) -> list[str]:
    """Returns the lines of one target: functions that look up calls, the shape function, types of ports, operands and
    kernels. Kernels with equal operands share the rows of these."""
    lines = [f"#if {table.target.isa.condition}", ""]
    for index, spec in enumerate(table.specs):
        if spec in table.calls:
            lines += _need_function(_name(f"need_{index}", table), spec, table.calls[spec])
    if table.shapes.symbols:
        lines += [*table.shapes.function(_name("shapes", table)), *_bound_rows(table)]
    lines += [*_port_rows(table), f"static const megcc_operand {_name('operands', table)}[] = {{"]
    starts, rows = [], []
    for spec in table.specs:
        block = _operand_rows(spec)
        start = _find(rows, block)
        if start is None:
            start = len(rows)
            rows += block
        starts.append(start)
    lines += [f"    {row}," for row in rows] + ["};", ""]
    lines += [f"static const megcc_kernel {_name('kernels', table)}[] = {{"]
    for index, (spec, start) in enumerate(zip(table.specs, starts, strict=True)):
        need = _name(f"need_{index}", table) if spec in table.calls else "NULL"
        lines += _kernel_row(table, spec, start, need)
    return [*lines, "};", "", "#endif", ""]


#: MEGCC_ALIAS_ANY_SIZE of megcc_kernel.h.
_ALIAS_ANY_SIZE = 1 << 31


def _operand_rows(spec: KernelSpec) -> list[str]:
    """Returns the rows of megcc_operand of a kernel: inputs, then outputs. Bit i of an output's `alias` says that it
    may share the memory of input i."""
    rows = []
    for parameter in spec.inputs:
        rows.append(_operand_row(parameter.size, parameter.dtype, 0))
    for index, parameter in enumerate(spec.outputs):
        alias = sum(1 << i for o, i in {*spec.in_place, *spec.takes_over} if o == index)
        alias |= _ALIAS_ANY_SIZE if any(o == index for o, _ in spec.takes_over) else 0
        rows.append(_operand_row(parameter.size, parameter.dtype, alias))
    return rows


def _operand_row(size: Dim, dtype: str, alias: int) -> str:
    """Returns a row of megcc_operand: bytes, alias, dtype, reserved bytes. A size that depends on run-time extents is
    printed as 0: the kernel's `need` function computes it."""
    bytes_ = size * DTYPES[dtype].bytes if isinstance(size, int) else 0
    return f"{{ {bytes_}u, 0x{alias:x}u, {DType[dtype].value}, {{ 0, 0, 0 }} }}"


def _find(rows: list[str], block: list[str]) -> int | None:
    """Returns the index at which the rows contain a block, so that equal signatures share rows; None if they do not."""
    for start in range(len(rows) - len(block) + 1):
        if rows[start:start + len(block)] == block:
            return start
    return None


def _kernel_row(table: KernelTable, spec: KernelSpec, start: int, need: str) -> list[str]:
    """Returns a row of megcc_kernel. start: the first row of its operands. need: the C function for sizes that depend
    on run-time extents; they are 0 in the row."""
    shared, scratch, tasks = (v if isinstance(v, int) else 0 for v in (spec.shared, spec.scratch, spec.tasks))
    counts = f"{len(spec.inputs)}, {len(spec.outputs)}, {len(spec.runtime_extents)}, {table.alone.get(spec, 0)}"
    return [f"    {{ {spec.symbol}, {need}, &{_name('operands', table)}[{start}],",
            f"      {shared}u, {scratch}u, {tasks}, {counts} MEGCC_SYMBOL(\"{spec.symbol}\") }},"]
