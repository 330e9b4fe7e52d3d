# SPDX-License-Identifier: Apache-2.0
"""Prints `kernels.c`: the kernel table of every target, with the signatures that containers are checked against.

A kernel with run-time extents accepts exactly the extents of the calls that it was generated for. The table lists them,
in trusted code, with the sizes that follow from them, as numbers or as references to values of the shape function.
Extents of a container are only looked up in it, so no kernel gets contradictory extents. The table also has the bounds
of symbols and the alignment that kernels were generated for, and the types of the program's inputs and outputs. The
runtime refuses containers that differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import InternalError, MegccError
from ..ir.conditions import Condition, undecided
from ..ir.dims import Dim, dim_max, limits
from ..ir.graph import Graph
from ..ir.shapes import Bucket, hull
from ..ir.types import DTYPES, TensorType
from ..ops.demands import conditions
from ..target import Target
from .c_source.bind import KernelSpec
from .c_source.render import render_kernel
from .c_source.symbols import kernel_file
from .container import DType, LayoutKind
from .headers import HEADER
from .machines import refusal
from .plan import KernelPlan, distinct_specs
from .shapefn import PUT, UNKNOWN, ShapeTable


@dataclass(frozen=True)
class Code:
    """The kernels of one target, in the order of their ids, and what the kernel table says of them.

    calls: for each kernel with run-time extents, the extents of every call -> its sizes: of operands, workspace and
        scratch in bytes, and the number of tasks. All are references (`ShapeTable.references`): a number
        from 0 on is a value, a negative one the index of a value that the shape function computes.
    shapes: the symbols and values of the shape function.
    bounds: the bounds of the symbols of `shapes`, in their order.
    inputs, outputs: the types of the program's inputs and outputs.
    """

    target: Target
    specs: tuple[KernelSpec, ...]
    calls: Mapping[KernelSpec, Mapping[tuple[int, ...], tuple[int, ...]]]
    shapes: ShapeTable
    bounds: Bucket
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @staticmethod
    def of(plan: KernelPlan, buckets: Sequence[Bucket]) -> Code:
        """Returns the code of a plan for some buckets of shapes, which have their symbols in one order."""
        bounds = hull(buckets)
        called: dict[KernelSpec, dict[tuple[Dim, ...], tuple[Dim, ...]]] = {}
        for step in plan.steps:
            if step.spec.runtime_extents:
                sizes = [_touched(step.size(p.size)) * DTYPES[p.dtype].bytes
                         for p in (*step.spec.inputs, *step.spec.outputs)]
                sizes += [step.size(step.spec.shared), step.size(step.spec.scratch), step.size(step.spec.tasks)]
                called.setdefault(step.spec, {})[step.bound.extents] = tuple(sizes)
        sizes = (size for rows in called.values() for row in rows.values() for size in row)
        shapes = ShapeTable.of(plan, tuple(bounds.limits), sizes, undecided(_known(plan.graph, bounds), bounds.limits))
        calls = {spec: {shapes.references(extents): shapes.references(sizes) for extents, sizes in rows.items()}
                 for spec, rows in called.items()}
        inputs, outputs = (tuple(plan.graph.types[name] for name in names)
                           for names in (plan.graph.inputs, plan.graph.outputs))
        return Code(plan.target, distinct_specs([plan]), calls, shapes, bounds, inputs, outputs)

    @cached_property
    def text(self) -> tuple[list[str], str]:
        """Returns the tables of this target as lines of C, and its row of `megcc_code` without the id."""
        return _target_section(self), _code_row(self)

    @property
    def id(self) -> int:
        """Returns the hash of everything in the table: a container built for other kernels is refused."""
        section, row = self.text
        return _hash("\n".join([*section, row]))


def _touched(size: Dim) -> Dim:
    """Returns a size clamped to at least 0, since the expression for a kernel's last element may be negative if there
    are no elements."""
    minimum, _ = limits(size)
    return dim_max(size, 0) if minimum is None or minimum < 0 else size


def _known(graph: Graph, bounds: Bucket) -> Iterable[Condition]:
    """Returns the conditions on the shapes of a graph, without those on unbacked symbols that are no longer used."""
    return (condition for condition in conditions(graph) if condition.symbols <= set(bounds.limits))


def model_id(codes: Sequence[Code]) -> int:
    return _hash(" ".join(f"{code.id:016x}" for code in codes))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def render_sources(name: str, plans: Sequence[KernelPlan], codes: Sequence[Code]) -> dict[str, str]:
    """Returns the C files of a model: one in `kernels/` for every distinct kernel, further files of kernels, and
    `kernels.c`."""
    origins: dict = {}
    for plan in plans:
        for step in plan.steps:
            origins.setdefault(step.spec, []).append(step.op.origin)
    strings: dict[str, str] = {name: text for spec in origins for name, text in spec.params.files}
    for spec, names in origins.items():
        path = kernel_file(spec.symbol)
        if path in strings:
            raise InternalError(f"two kernels are called {spec.symbol}")
        strings[path] = render_kernel(spec, tuple(dict.fromkeys(filter(None, names))))
    return {**strings, "kernels.c": render_table(name, codes)}


def _by_instructions(codes: Sequence[Code]) -> list[list[Code]]:
    """Returns groups of codes that share a table: targets with one instruction set (cortex-m4, cortex-m7).

    Raises:
        MegccError: if such targets have different kernels, whose tables would have the same name.
    """
    groups: dict[str, list[Code]] = {}
    for code in codes:
        first = groups.setdefault(code.target.isa.name, [code])[0]
        if first.id != code.id:
            raise MegccError(f"{first.target} and {code.target} have the same instructions and other kernels: compile "
                             "a folder for each")
        if first is not code:
            groups[code.target.isa.name].append(code)
    return list(groups.values())


def render_table(name: str, codes: Sequence[Code]) -> str:
    """Returns the text of kernels.c for one model."""
    lines = ["/* SPDX-License-Identifier: 0BSD",
             f" * The kernels of {name}, a table for each CPU it was compiled for. */",
             f'#include "{HEADER}"', "", *refusal(name, [code.target for code in codes])]
    if any(code.shapes.symbols for code in codes):
        lines += [PUT]
    if any("unknown(value" in line for code in codes for line in code.text[0]):
        lines += [UNKNOWN]
    if any(code.calls for code in codes):
        lines += [_LOOK_UP]
    groups = _by_instructions(codes)
    for code, *others in groups:
        lines += [f"/* {', '.join(other_code.target.name for other_code in (code, *others))} */", *code.text[0]]
    lines += [f"static const megcc_code {name}_codes[] = {{"]
    for code, *_ in groups:
        lines += [f"#if {code.target.isa.condition}", f"    {{ UINT64_C(0x{code.id:016x}), {code.text[1]} }},",
                  "#endif"]
    lines += ["    { 0, 0xffffffffu, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL } /* end */", "};", "",
              f"extern const megcc_module {name}_module;",
              f"const megcc_module {name}_module = {{",
              "    MEGCC_KERNEL_ABI,",
              f"    (uint32_t)(sizeof {name}_codes / sizeof {name}_codes[0]) - 1u,",
              f"    {name}_codes",
              "};", ""]
    return "\n".join(lines)


def _name(what: str, code: Code) -> str:
    return f"{what}_{code.target.isa.name}"


def _code_row(code: Code) -> str:
    """Returns a row of megcc_code, after its id."""
    isa, shapes = code.target.isa, code.shapes
    bounds, function = (_name(what, code) if shapes.symbols else "NULL" for what in ("bounds", "shapes"))
    counts = (code.specs, shapes.symbols, shapes.values, code.inputs, code.outputs)
    return (f"0x{isa.code:08x}u, {isa.alignment}, {', '.join(str(len(rows)) for rows in counts)}, "
            f"{_name('kernels', code)}, {bounds}, {_name('ports', code)}, {function}")


#: The C code that looks up a call. Rows are its extents, then its sizes, each a number or -1 - an index (shapefn.py).
_LOOK_UP = """\
static int32_t number(const int32_t *table, int32_t reference)
{
    return reference < 0 ? table[-1 - reference] : reference;
}

static int32_t look_up(const int32_t *row, int32_t rows, int32_t extents, int32_t sizes, const int32_t *table,
                       const int32_t *extent, int64_t *need)
{
    for (; rows > 0; rows--, row += extents + sizes) {
        int32_t equal = 0;
        while (equal < extents && number(table, row[equal]) == extent[equal]) {
            equal++;
        }
        if (equal == extents) {
            for (int32_t i = 0; i < sizes; i++) {
                need[i] = number(table, row[extents + i]);
            }
            return MEGCC_KERNEL_OK;
        }
    }
    return MEGCC_KERNEL_FAILED;
}
"""


def _need_function(function: str, spec: KernelSpec, calls: Mapping[tuple[int, ...], tuple[int, ...]]) -> list[str]:
    extents = spec.runtime_extents
    sizes = [*(p.name for p in (*spec.inputs, *spec.outputs)), "shared", "scratch", "tasks"]
    rows = [f"        {', '.join(map(str, (*extents_, *sizes_)))}," for extents_, sizes_ in calls.items()]
    return [f"/* {spec.symbol}: {', '.join(extents)}; {', '.join(sizes)} */",
            f"static int32_t {function}(const int32_t *table, const int32_t *extent, int64_t *need)", "{",
            "    static const int32_t calls[] = {", *rows, "    };",
            f"    return look_up(calls, {len(calls)}, {len(extents)}, {len(sizes)}, table, extent, need);", "}", ""]


def _bound_rows(code: Code) -> list[str]:
    rows = [f"    {{ {low}, {-1 if high is None else high} }},"
            for _, low, high in code.bounds.bounds]
    return [f"static const megcc_bound {_name('bounds', code)}[] = {{", *rows, "};", ""]


def _port_rows(code: Code) -> list[str]:
    lines = [f"static const int32_t {_name('ports', code)}[] = {{"]
    for type_ in (*code.inputs, *code.outputs):
        row = (DType[type_.dtype].value, LayoutKind[type_.layout.kind].value, type_.layout.block, type_.rank,
               *code.shapes.references(type_.shape))
        lines.append(f"    {', '.join(map(str, row))},")
    return [*lines, "};", ""]


def _target_section(code: Code) -> list[str]:
    lines = [f"#if {code.target.isa.condition}", ""]
    for index, spec in enumerate(code.specs):
        if spec in code.calls:
            lines += _need_function(_name(f"need_{index}", code), spec, code.calls[spec])
    if code.shapes.symbols:
        lines += [*code.shapes.function(_name("shapes", code)), *_bound_rows(code)]
    lines += [*_port_rows(code), f"static const megcc_operand {_name('operands', code)}[] = {{"]
    starts, rows = [], []
    for spec in code.specs:
        block = _operand_rows(spec)
        start = _find(rows, block)
        if start is None:
            start = len(rows)
            rows += block
        starts.append(start)
    lines += [f"    {row}," for row in rows] + ["};", ""]
    lines += [f"static const megcc_kernel {_name('kernels', code)}[] = {{"]
    for index, (spec, start) in enumerate(zip(code.specs, starts, strict=True)):
        need = _name(f"need_{index}", code) if spec in code.calls else "NULL"
        lines += _kernel_row(code, spec, start, need)
    return [*lines, "};", "", "#endif", ""]


#: MEGCC_ALIAS_ANY_SIZE.
_ANY_SIZE = 1 << 31


def _operand_rows(spec: KernelSpec) -> list[str]:
    rows = []
    for parameter in spec.inputs:
        rows.append(_operand_row(parameter.size, parameter.dtype, 0))
    for index, parameter in enumerate(spec.outputs):
        alias = sum(1 << i for o, i in {*spec.in_place, *spec.takes_over} if o == index)
        alias |= sum(_ANY_SIZE for o, _ in spec.takes_over if o == index)
        rows.append(_operand_row(parameter.size, parameter.dtype, alias))
    return rows


def _operand_row(size, dtype: str, alias: int) -> str:
    bytes_ = size * DTYPES[dtype].bytes if isinstance(size, int) else 0
    return f"{{ {bytes_}u, 0x{alias:x}u, {DType[dtype].value}, {{ 0, 0, 0 }} }}"


def _find(rows: list[str], block: list[str]) -> int | None:
    """Returns the index at which the rows contain a block, so that equal signatures share rows; None if they do not."""
    for start in range(len(rows) - len(block) + 1):
        if rows[start:start + len(block)] == block:
            return start
    return None


def _kernel_row(code: Code, spec: KernelSpec, start: int, need: str) -> list[str]:
    shared, scratch, tasks = (v if isinstance(v, int) else 0 for v in (spec.shared, spec.scratch, spec.tasks))
    counts = f"{len(spec.inputs)}, {len(spec.outputs)}, {len(spec.runtime_extents)}"
    return [f"    {{ {spec.symbol}, {need}, &{_name('operands', code)}[{start}],",
            f"      {shared}u, {scratch}u, {tasks}, {counts}, 0 MEGCC_SYMBOL(\"{spec.symbol}\") }},"]
