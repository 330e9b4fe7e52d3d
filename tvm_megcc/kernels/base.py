# SPDX-License-Identifier: Apache-2.0
"""The interface of a kernel candidate (`Kernel`), and the call that it lowers an operator to (`Lowered`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..ir.dims import Dim, Symbol
from ..ir.types import NHWC, ORDINARY, PLAIN, Layout, TensorType, nchwc
from ..ops.base import OPERATORS, Operator
from ..target import Target
from .parameters import Parameters
from .site import Site


@dataclass(frozen=True)
class Operand:
    """An operand of a kernel, as its C code sees it.

    name: the identifier of the pointer in the C code.
    index: its position among the operator's inputs or outputs.
    size: elements that the kernel may read or write, over the symbols of the kernel's extents.
    pack: for a constant: name and arguments of the packer (kernels/packing.py) that brings the logical array into the
        order in which the kernel reads it; empty: the array in its type's layout.
    dtype: element type in memory; "": that of the value.
    also: positions of the other constant operands that the packer gets, after the one at `index`.
    """

    name: str
    index: int
    size: Dim
    pack: tuple = ()
    dtype: str = ""
    also: tuple[int, ...] = ()


@dataclass(frozen=True)
class Lowered:
    """An operator as a call of one kernel.

    template: "<family>/<algorithm>" below kernels/.
    params: the template's parameters (tile, strides, flags), part of the kernel's identity and symbol.
    extents: name -> value of each extent. At `-O speed` known extents are constants in the code, at `-O size` they are
        arguments of the call. Sizes, tasks and workspace are expressions over `Symbol(name)` of these.
    inputs, outputs: the operands of the C function, in order.
    tasks: number of tasks; a worker computes any range of them.
    shared, scratch: bytes of workspace, common to all workers and of each worker.
    in_place: (output, input) operand positions that may be the same memory.
    takes_over: (output, input) positions where the output may begin at the input's address, whichever is larger.
    no_takeover: takes_over is not allowed in this call, though it is in others that share the kernel.
    epilogue_in_place: an operand of the epilogue with the shape of output 0 may be the same memory; False if partial
        results are stored to the output before the epilogue.
    channels: how many elements a per-channel operand of the epilogue must have at least, over the extents; None: the
        output's channels, which become one more extent of the call.
    operation: left part of the symbol, such as "conv2d_3x3_s2"; algorithm: right part, such as "packed_4v".
    """

    template: str
    params: Parameters
    extents: Mapping[str, Dim]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    tasks: Dim
    operation: str
    algorithm: str
    shared: Dim = 0
    scratch: Dim = 0
    in_place: tuple[tuple[int, int], ...] = ()
    takes_over: tuple[tuple[int, int], ...] = ()
    no_takeover: bool = False
    epilogue_in_place: bool = True
    channels: Dim | None = None


def extent_symbols(*names: str) -> tuple[Symbol, ...]:
    """Returns symbols for a kernel's own extents: `N, C = extent_symbols("N", "C")`."""
    return tuple(Symbol(name) for name in names)


def present(site: Site, *operands: Operand) -> tuple[Operand, ...]:
    """Returns those of the operands that the operator has. Optional ones, such as a bias, may be missing."""
    return tuple(operand for operand in operands if site.has(operand.index))


def layout_pair(site: Site, x: Layout, y: Layout | None = None) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    """Returns (input layouts, output layouts) as `Kernel.layouts` yields them: x for the first operand, plain for the
    others, y for the result. y: default x."""
    return (x, *(PLAIN,) * (len(site.inputs) - 1)), (y or x,)


#: Entries of `Kernel.dtypes`: the element types that an operand may have; empty: any.
ANY: tuple[str, ...] = ()
FLOAT32 = ("float32",)
INTEGERS = tuple(dtype for dtype in ORDINARY if dtype.startswith(("int", "uint")))
#: Element types of scalar code: integers and the floats of C.
NUMBERS = (*INTEGERS, "float32", "float64")


#: Cycles of a call besides those of its loops, for `Kernel.cost`; they decide for small operators. `LOOP_CALL`: one
#: loop over all elements. `CALL`: loops over tiles or windows. `PACKING_CALL`: the same, after operands were packed or
#: gathered. `LARGE_CALL`: kernels that prepare more, such as panels, or results that are kept between parts of a sum.
LOOP_CALL, CALL, PACKING_CALL, LARGE_CALL = 100, 200, 300, 500
#: Cycles of a call of a kernel that takes any operands, one element or row after the other. With so many it is chosen
#: only if no other candidate applies, or for very small operators.
FALLBACK_CALL = 1000


class Kernel:
    """A candidate: one algorithm that can realise an operator. Immutable; an operator lists instances of subclasses.

    name: the algorithm, in tuning logs and in kernel names.
    tile: name of the register tile, where it is not the algorithm's default.
    dtypes: element types that each operand may have, by position. The last entry holds for all operands after it, too.
        For an operator without operands: element types of the result.
    uniform: all operands and results have the element type of the first.
    static: positions of the operands whose extents have to be known.
    fuses_epilogue: the template applies `op.epilogue` to each result before it stores it.
    float16: where it takes float32, it takes float16 as well, if `Site.is_half`.
    lane_kind: the element type of the vectors that its epilogue works on: "f" for float32, "i" for int32 (ir/lanes.py).
    constants: positions of the operands that must be constants (packed weights).
    position_dependent: a result's rounding depends on its position in the tensor, so a part of the tensor cannot be
        computed alone.
    """

    name: ClassVar[str]
    tile: str = ""
    dtypes: ClassVar[tuple[tuple[str, ...], ...]] = ()
    uniform: ClassVar[bool] = False
    static: ClassVar[tuple[int, ...]] = ()
    fuses_epilogue: ClassVar[bool] = False
    float16: ClassVar[bool] = False
    lane_kind: ClassVar[str] = "f"
    constants: ClassVar[tuple[int, ...]] = ()
    position_dependent: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """Returns the name, with the tile if it is not the default."""
        return f"{self.name}_{self.tile}" if self.tile else self.name

    def layouts(self, site: Site) -> Iterable[tuple[tuple[Layout, ...], tuple[Layout, ...]]]:
        """Yields the (input layouts, output layouts) that this kernel supports, for the operator's own operands."""
        yield (PLAIN,) * len(site.inputs), (PLAIN,) * len(site.outputs)

    def refuse(self, site: Site) -> str | None:
        """Returns the reason why this kernel cannot realise the operator in these layouts; None if it can."""
        return None

    def reorders_sums(self, site: Site) -> bool:
        """Returns whether the kernel sums floats in another order than kernels for other CPUs do."""
        return False

    def lower(self, site: Site) -> Lowered:
        """Returns the call. It is called only if `refuse` returned None."""
        raise NotImplementedError

    def cost(self, site: Site) -> float:
        """Estimates cycles on one core of the target. Unknown extents have their likely values.

        An estimate is the cycles of the call (`CALL` and those after it) plus, for each loop, its iterations times the
        cycles of one. An iteration computes a vector if the line divides by lanes, else an element; a multiply-add of
        vectors is about one cycle, more with its loads. The numbers of cycles are rough. They come from times that
        `megcc list kernels --time` measured (x86-64), and from counted instructions where the target runs in an
        emulator. Only the order of the candidates of an operator matters: benchmarks/cost_model.py tells how far the
        one of least cost is from the fastest. The default, for kernels that move elements, is 8 bytes per cycle.
        """
        return sum(t.bytes for t in (*site.inputs, *site.outputs) if t is not None) / 8

    def other_tiles(self, site: Site) -> Iterable[Kernel]:
        """Returns the same algorithm with each other tile that tuning should time. It is called only if `refuse`
        returned None."""
        return ()


class Tiled(Kernel):
    """A candidate with tiles of several widths. vectors: of output channels in the main tile; 0: chosen for the
    shape."""

    def __init__(self, vectors: int = 0):
        self.vectors = vectors
        self.tile = f"{vectors}v" if vectors else ""


class View(Kernel):
    """The candidate for operators whose output can share the memory of their input: no code runs."""

    name = "view"

    def layouts(self, site: Site):
        if 0 in site.constants:
            return  # a constant lies among the weights, not in the arena
        x, y = site.x, site.y
        declaration = OPERATORS[site.kind]
        for source in possible_layouts(x, site.target):
            for result in possible_layouts(y, site.target):
                types = (x.with_layout(source), *site.inputs[1:])
                if isinstance(declaration.view_offset(site.attrs, types, (y.with_layout(result),)), int):
                    yield layout_pair(site, source, result)

    def cost(self, site: Site) -> float:
        return 0.0


def possible_layouts(type_: TensorType, target: Target) -> tuple[Layout, ...]:
    """Returns the layouts that a tensor may have on a target."""
    if type_.rank != 4:
        return (PLAIN,)
    if target.isa.lanes == 1:
        return PLAIN, NHWC
    return PLAIN, NHWC, nchwc(target.isa.lanes)


def realise(declaration: type[Operator], *kernels: Kernel) -> None:
    """Registers the candidate kernels of an operator and of the operators derived from it."""
    declaration.kernels = kernels
