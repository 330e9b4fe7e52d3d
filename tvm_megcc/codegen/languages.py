# SPDX-License-Identifier: Apache-2.0
"""A model as the packages of programming languages see it: names that are identifiers there, types, and the memory
that its session needs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import MegccError
from ..foreign import identifier, printable
from ..ir.types import DTYPES

#: Languages, and what `megcc export` writes for them.
LANGUAGES = {
    "rust": "a Rust crate, no_std and without dependencies",
    "cpp": "a C++17 header with the C sources and CMake",
}
#: Words that are no names in one of them, beside those of ours.
WORDS = set("""abstract alignas alignof and and_eq as asm async atomic auto await become bitand bitor bool box break
    case catch char class compl concept const constexpr const_cast continue crate decltype default delete do double dyn
    dynamic_cast else enum explicit export extern false final float fn for friend gen goto if impl import in inline int
    let long loop macro match mod module move mut mutable namespace new noexcept not not_eq nullptr operator or or_eq
    override priv private protected pub public ref register reinterpret_cast requires return self short signed sizeof
    static static_assert static_cast struct super switch template this thread_local throw trait true try type typedef
    typeid typename typeof union unsafe unsigned unsized use using virtual void volatile wchar_t where while xor xor_eq
    yield arena model outputs reset run ok status block main std core""".split())
#: Elements as C has them -> typed arrays of JavaScript.
_ARRAYS = {"float": "Float32Array", "double": "Float64Array", "int8_t": "Int8Array", "uint8_t": "Uint8Array",
           "int16_t": "Int16Array", "uint16_t": "Uint16Array", "int32_t": "Int32Array", "uint32_t": "Uint32Array",
           "int64_t": "BigInt64Array", "uint64_t": "BigUint64Array"}
#: Elements as C has them -> as Rust has them.
_RUST = {"float": "f32", "double": "f64", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16",
         "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64"}


@dataclass(frozen=True)
class Port:
    """An input or output. word: its name as an identifier; kept: the session keeps it from run to run."""

    index: int
    name: str
    word: str
    dtype: str
    shape: tuple[int, ...]
    kept: bool
    quant: Mapping | None

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def rust(self) -> str:
        return f"[{_RUST[self.c_type]}; {self.count}]"

    @property
    def array(self) -> str:
        return _ARRAYS[self.c_type]

    @property
    def c_type(self) -> str:
        return DTYPES[self.dtype].c_type


def ports(row: Mapping) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of a model of a manifest, with words that differ from each other.

    Raises:
        MegccError: for a shape that changes from run to run.
    """
    taken = set(WORDS)
    found: tuple[list[Port], list[Port]] = ([], [])
    for to, end in zip(found, ("input", "output"), strict=True):
        for index, port in enumerate(row[f"{end}s"]):
            name, shape = port["name"], tuple(port["shape"])
            if not all(isinstance(extent, int) and extent >= 0 for extent in shape):
                raise MegccError(f"the shape of '{printable(name)}' changes from run to run, which packages leave out: "
                                 "compile it again with --input-shapes")
            word = identifier(name)
            while word in taken:
                word = f"{word}_{end.removesuffix('put')}{index}"
            taken.add(word)
            kept = name in {state[end] for state in row["states"]}
            to.append(Port(index, name, word, port["dtype"], shape, kept, port.get("quant")))
    return found


@dataclass(frozen=True)
class Memory:
    """Arguments of MEGCC_MEMORY_BYTES in a model's header: the largest, of all machines."""

    alignment: int
    pointers: int
    words: int
    arena: int

    @staticmethod
    def of(header: str, name: str) -> Memory:
        rows = re.findall(rf"#define {name.upper()}_MEMORY_BYTES MEGCC_MEMORY_BYTES\((\d+)u, (\d+)u, (\d+)u, (\d+)u\)",
                          header)
        if not rows:
            raise MegccError(f"{name}.h does not say what memory a session needs; compile the model again")
        return Memory(*(max(map(int, column)) for column in zip(*rows, strict=True)))
