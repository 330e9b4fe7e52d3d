# SPDX-License-Identifier: Apache-2.0
"""Describes a model for packages of programming languages: identifiers, types, and the memory of a session."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ... import paths
from ...errors import MegccError
from ...foreign import identifier, printable
from ...ir.types import DTYPES

#: Reserved words of any of the languages, which are avoided in all; from "i386" on, macros that C compilers have by
#: themselves; and, from "arena" on, names that the generated code has itself. Its variables beside parameters with
#: names of ports end in "_", as no word of a port does.
RESERVED_WORDS = set("""
    abstract alignas alignof and and_eq as asm async atomic auto await become bitand bitor bool box break case catch
    char class compl concept const constexpr const_cast continue crate decltype default delete do double dyn
    dynamic_cast else enum explicit export extern false final float fn for friend gen goto if impl import in inline
    int let long loop macro match mod module move mut mutable namespace new noexcept not not_eq nullptr operator or
    or_eq override priv private protected pub public ref register reinterpret_cast requires return self short signed
    sizeof static static_assert static_cast struct super switch template this thread_local throw trait true try type
    typedef typeid typename typeof union unsafe unsigned unsized use using virtual void volatile wchar_t where while
    xor xor_eq yield co_await co_return co_yield consteval constinit typeof_unqual i386 linux unix
    arena model outputs reset run ok status block main std core""".split())
#: Further reserved words by language, for names of packages and ports. Java's include Kotlin's, and existing names of
#: packages and modules; C++'s is a function of the generated class.
MORE_RESERVED_WORDS = {
    "cpp": {"reshape"},
    "go": set("chan defer fallthrough func go init interface internal map package range select var vendor".split()),
    "android": set("""android assert boolean byte extends finally fun implements instanceof interface is java javax
        kotlin native null object package strictfp synchronized throws transient typealias val var when""".split()),
    "swift": set("""actor any associatedtype darwin defer deinit didset extension fallthrough fileprivate foundation
        func get guard indirect init inout internal is lazy nil nonisolated open precedencegroup protocol repeat
        rethrows set some subscript swift throws typealias unowned var weak""".split()),
}


@lru_cache(maxsize=1)
def statuses() -> dict[int, str]:
    """Returns the runtime's statuses with their strings from status.c, since packages omit the functions for them."""
    header, source = ((paths.c_runtime() / name).read_text() for name in ("include/megcc.h", "src/status.c"))
    numbers = re.findall(r"(MEGCC_E_\w+) = (0x\w+)", header)
    texts = dict(re.findall(r'case (MEGCC_E_\w+): return "([^"]+)"', source))
    return {int(number, 16): texts[name] for name, number in numbers}


@dataclass(frozen=True)
class Element:
    """The element types of other languages for a C type. Java has no unsigned integers; the signed type with the same
    bits stands for them.

    array: JavaScript's typed array, such as "Int8Array".
    rust: Rust's type, such as "i8".
    go, java, swift: Go's, Java's and Swift's type.
    """

    array: str
    rust: str
    go: str
    java: str
    swift: str


#: C types of elements -> their equivalents.
ELEMENTS = {
    "float": Element("Float32Array", "f32", "float32", "float", "Float"),
    "double": Element("Float64Array", "f64", "float64", "double", "Double"),
    "int8_t": Element("Int8Array", "i8", "int8", "byte", "Int8"),
    "uint8_t": Element("Uint8Array", "u8", "uint8", "byte", "UInt8"),
    "int16_t": Element("Int16Array", "i16", "int16", "short", "Int16"),
    "uint16_t": Element("Uint16Array", "u16", "uint16", "short", "UInt16"),
    "int32_t": Element("Int32Array", "i32", "int32", "int", "Int32"),
    "uint32_t": Element("Uint32Array", "u32", "uint32", "int", "UInt32"),
    "int64_t": Element("BigInt64Array", "i64", "int64", "long", "Int64"),
    "uint64_t": Element("BigUint64Array", "u64", "uint64", "long", "UInt64"),
}


@dataclass(frozen=True)
class Port:
    """An input or output as the templates see it.

    index: its number among the inputs, or among the outputs.
    name: its name in the model, any text.
    word: its name as an identifier of the language.
    dtype: its type, such as "float32".
    shape: its extents; a text is the name of one that changes from run to run.
    least: its smallest shape.
    kept: whether it is a state, which the session keeps from run to run.
    quant: its `scale` and `zero_point`; None: it is not quantised.
    is_string: whether its elements are codes of strings (int64).
    is_utf8: whether it is a string or an array of strings: rows of UTF-8, with zeros after it.
    sample_rate: the samples of a second of sound; 0: it is none, or not known.
    most: its largest shape, of a program; (): that of a network, or its shape does not change.
    """

    index: int
    name: str
    word: str
    dtype: str
    shape: tuple[int | str, ...]
    least: tuple[int, ...]
    kept: bool
    quant: Mapping | None
    is_string: bool = False
    is_utf8: bool = False
    sample_rate: int = 0
    most: tuple[int, ...] = ()

    @property
    def dynamic(self) -> bool:
        """Whether its shape changes from run to run."""
        return any(isinstance(extent, str) for extent in self.shape)

    @property
    def is_bits(self) -> bool:
        """Whether languages have no numbers of the type, such as float16."""
        return bool(DTYPES[self.dtype].carrier)

    @property
    def text(self) -> str:
        """Its type for comments and READMEs, such as `float32[1,3,N]`."""
        kind = f"{self.dtype}, numbers of strings" if self.is_string else self.dtype
        shown = f"{kind}[{','.join(map(printable, self.shape))}]"
        if self.is_utf8:
            each = f"of at most {self.string_bytes:,} bytes in UTF-8"
            return f"string {each}" if self.string_count == 1 else f"{self.string_count} strings, each {each}"
        return f"{shown}, sound of {self.sample_rate:,} samples a second" if self.sample_rate else shown

    @property
    def string_bytes(self) -> int:
        """The most bytes of a string in UTF-8."""
        return self.least[-1] if self.least else 1

    @property
    def string_count(self) -> int:
        """The number of strings in UTF-8; 0: it has none."""
        return self.count // self.string_bytes if self.is_utf8 else 0

    @property
    def count(self) -> int:
        """The number of elements of its smallest shape."""
        return math.prod(self.least)

    @property
    def element_bytes(self) -> int:
        """The bytes of an element."""
        return DTYPES[self.dtype].bytes

    @property
    def bytes(self) -> int:
        """The bytes of its smallest shape."""
        return self.count * self.element_bytes

    @property
    def most_bytes(self) -> int:
        """The bytes of its largest shape in a program."""
        return math.prod(self.most or self.least) * self.element_bytes

    @property
    def axis(self) -> int:
        """The axis that changes from run to run in a program."""
        return next(axis for axis, extent in enumerate(self.shape) if isinstance(extent, str))

    @property
    def row_bytes(self) -> int:
        """The bytes of each of its rows along `axis`."""
        return self.most_bytes // self.most[self.axis]

    @property
    def go(self) -> str:
        """Type of an element in Go, such as `float32`."""
        return ELEMENTS[self.c_type].go

    @property
    def field(self) -> str:
        """Its exported name in Go, which begins with a capital."""
        return self.word[0].upper() + self.word[1:]

    @property
    def rust_element(self) -> str:
        """Type of an element in Rust, such as `f32`."""
        return ELEMENTS[self.c_type].rust

    @property
    def rust(self) -> str:
        """Type of an array of `count` elements in Rust, such as `[f32; 10]`."""
        return f"[{self.rust_element}; {self.count}]"

    @property
    def java(self) -> str:
        """Type of an element in Java, such as `float`."""
        return ELEMENTS[self.c_type].java

    @property
    def swift(self) -> str:
        """Type of an element in Swift, such as `Float`."""
        return ELEMENTS[self.c_type].swift

    @property
    def array(self) -> str:
        """Class of its typed array in JavaScript, such as `Float32Array`."""
        return ELEMENTS[self.c_type].array

    @property
    def c_type(self) -> str:
        """C's type of an element, such as `float`; of float16 an integer with the same bits."""
        return DTYPES[self.dtype].c_type


def words(language: str) -> set[str]:
    """Returns the words that must not be names in the language."""
    return RESERVED_WORDS | MORE_RESERVED_WORDS.get(language, set())


def ports(row: Mapping, language: str = "") -> tuple[list[Port], list[Port]]:
    """Returns the inputs and outputs of a manifest's model, with distinct identifiers that are not reserved.
    Outputs that become states are not `kept` if there are no others: as in C packages, programs see them.

    Raises:
        MegccError: for shapes without an upper bound, and for a state with a dynamic shape.
    """
    check_bounds(row)
    taken = words(language)
    found: tuple[list[Port], list[Port]] = ([], [])
    for ports_found, direction in zip(found, ("input", "output"), strict=True):
        states = {state[direction] for state in row["states"]}
        are_hidden = direction == "input" or not states.issuperset(port["name"] for port in row["outputs"])
        for index, port in enumerate(row[f"{direction}s"]):
            name, shape = port["name"], tuple(port["shape"])
            is_state = name in states
            least = tuple(port.get("least", (extent if isinstance(extent, int) else 1 for extent in shape)))
            if is_state and any(isinstance(extent, str) for extent in shape):
                raise MegccError(f"the shape of the state '{printable(name)}' changes from run to run, which packages "
                                 "leave out: compile it again with --input-shapes")
            word = identifier(name)
            while word in taken:
                word = f"{word}_{direction.removesuffix('put')}{index}"
            taken.add(word)
            ports_found.append(Port(index=index, name=name, word=word, dtype=port["dtype"], shape=shape, least=least,
                                    kept=is_state and are_hidden, quant=port.get("quant"),
                                    is_string=port.get("text") is True, is_utf8=port.get("is_utf8", False),
                                    sample_rate=port.get("sample_rate", 0), most=tuple(port.get("most", ()))))
    return found


def check_bounds(row: Mapping) -> None:
    """Raises MegccError if a manifest's model needs an allocator, which packages do not have."""
    for bucket in row["buckets"]:
        for symbol, (_, high) in bucket.items():
            if high is None:
                shown = printable(symbol)
                bound = f"--bound {shown}=64" if symbol in counted(row) else f"a range, such as --dim {shown}=1..64"
                raise MegccError(f"'{shown}' of '{row['name']}' has no upper bound, so memory would be allocated in a "
                                 "run, which packages do not do; they take any size up to a largest one: compile the "
                                 f"model again with {bound}")


def counted(row: Mapping) -> set[str]:
    """Returns the unbacked symbols of a manifest's model."""
    given = {word for port in row["inputs"] for extent in port["shape"] for word in re.findall(r"\w+", str(extent))}
    return {symbol for bucket in row["buckets"] for symbol in bucket} - given


def initial_shapes(row: Mapping) -> str:
    """Returns the smallest shapes of the inputs, as an initialiser of megcc_shape[]; "" if all shapes are static."""
    shapes = [port.get("least", port["shape"]) for port in row["inputs"]]
    if not any("least" in port for port in row["inputs"]):
        return ""
    return ", ".join(f"{{ {len(shape)}, {{ {', '.join(map(str, shape)) or '0'} }} }}" for shape in shapes)


def ranges(row: Mapping) -> str:
    """Returns the ranges of symbolic extents, from a manifest's model; "" if there are none."""
    return "; or ".join(", ".join(
        f"{printable(symbol)} {low}" if low == high else f"{printable(symbol)} from {low} to {high}"
        for symbol, (low, high) in bucket.items()) for bucket in row["buckets"] if bucket)


@dataclass(frozen=True)
class Memory:
    """The arguments of MEGCC_MEMORY_BYTES in a model's header: the maximum over all machines.

    alignment: of a session's memory, in bytes.
    pointers: how many pointers a session has.
    words: how many 4-byte words a session has.
    arena: bytes of the arena.
    """

    alignment: int
    pointers: int
    words: int
    arena: int

    @staticmethod
    def of(header: str, name: str) -> Memory:
        """Returns the arguments from the text of the header of the model `name`; raises MegccError if it has none."""
        rows = re.findall(rf"#define {name.upper()}_MEMORY_BYTES MEGCC_MEMORY_BYTES\((\d+)u, (\d+)u, (\d+)u, (\d+)u\)",
                          header)
        if not rows:
            raise MegccError(f"{name}.h does not say what memory a session needs; compile the model again")
        return Memory(*(max(map(int, column)) for column in zip(*rows, strict=True)))


def in_one_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Moves the C files and headers of `src/` into one folder, as cgo requires: `src/runtime/vm.c` becomes
    `runtime_vm_.c`, and includes are changed. The last `_` is needed because Go skips files for other machines by their
    suffix, such as `_arm64.c`.

    Raises:
        MegccError: if two files get the same name.
    """
    sources = [path for path in files if path.startswith("src/")]
    names = {path: path.removeprefix("src/").replace("/", "_") for path in sources}
    names = {path: f"{name[:-2]}_.c" if name.endswith(".c") else name for path, name in names.items()}
    if len(set(names.values())) < len(names):
        raise MegccError("two files of the package would have one name: give the model another with --name")
    found = {name: data for name, data in files.items() if name not in names}
    for path, name in names.items():
        def replacement(include: re.Match, path: str = path) -> str:
            beside_includer = f"{path.rpartition('/')[0]}/{include[1]}"
            return f'#include "{names.get(beside_includer) or names.get(f"src/{include[1]}") or include[1]}"'
        found[name] = re.sub(r'^#include "([^"]+)"', replacement, files[path].decode(), flags=re.MULTILINE).encode()
    return found


def go_module(name: str, rest: str) -> str:
    """Returns the path of a Go module: its address without the scheme (`rest`), or else the package's name."""
    return rest if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_][A-Za-z0-9_-]*)*", rest) else name
