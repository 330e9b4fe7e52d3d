# SPDX-License-Identifier: Apache-2.0
"""The variables of the templates of packages (`templates/export/`). The heads of the templates repeat the sentences of
those that they read; `python scripts/template_heads.py` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ...target import Target
from ..boards import Boards
from ..quantised import Quantisation
from .language_model import LanguageModel
from .languages import Port
from .mobile import Abi, Slice
from .program import Sizes


@dataclass(frozen=True)
class Benchmark:
    """A network of MLPerf Tiny as the templates see it.

    name: in words, such as "keyword spotting".
    version: its name in the harness, such as "KWS01".
    elements: number of elements of the input.
    data: a sentence about the input data that the runner sends.
    is_pixels: whether the runner sends pixels from 0 to 255, which become int8 by subtracting 128.
    is_float: whether the runner sends float32.
    """

    name: str
    version: str
    elements: int
    data: str
    is_pixels: bool = False
    is_float: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of the input as the runner sends it."""
        return self.elements * (4 if self.is_float else 1)


@dataclass(frozen=True)
class Tensor:
    """An output as the templates see it.

    index: its number among the outputs of the network.
    dtype: its type, such as "float32".
    c_type: the C type of its elements, such as "float".
    is_float: whether it is float32 or float64.
    is_bits: whether C has no arithmetic type for its elements, as for float16, so that c_type is an integer with the
        same bits.
    quant: its scale and zero point; None: it is not quantised.
    """

    index: int
    dtype: str
    c_type: str
    is_float: bool
    is_bits: bool
    quant: Quantisation | None


@dataclass(frozen=True)
class Model:
    """A model as the templates see it.

    name: a C identifier, such as "resnet": the prefix of its functions and of its header `resnet.h`.
    macro: the prefix of its macros, such as "RESNET".
    shapes: the smallest shapes of the inputs, as an initialiser of megcc_shape[]; "" if all shapes are static.
    ranges: the ranges of symbolic extents in words, such as "N from 1 to 8"; "" if all shapes are static.
    keeps_states: whether states survive a change of shapes.
    outputs: those that the caller fetches.
    states: the numbers of the inputs that a session keeps from run to run.
    input_quant: scale and zero point of the first input; None: it is not quantised.
    is_program: whether it is a program of several networks.
    has_states: whether it keeps states from run to run.
    """

    name: str
    macro: str
    shapes: str
    ranges: str
    keeps_states: bool
    outputs: tuple[Tensor, ...]
    states: tuple[int, ...]
    input_quant: Quantisation | None
    is_program: bool = False
    has_states: bool = False

    @property
    def noun(self) -> str:
        """The word for it in comments: "network" or "program"."""
        return "program" if self.is_program else "network"

    @property
    def title(self) -> str:
        """Its kind and name, such as "neural network resnet" or "program portrait"."""
        return f"program {self.name}" if self.is_program else f"neural network {self.name}"


class PackageVariables(TypedDict, total=False):
    """The context of the templates of a package, which `package` (base.py) renders.

    name: name of the package, an identifier such as "resnet".
    macro: the name in capitals, a prefix of macros: "RESNET".
    version: version of the package, three numbers such as "1.0.0".
    generator: name and version of the compiler, such as "tvm_megcc 1.4.0".
    models: the models of the package.
    model: the first model; in a package for a language, the only one.
    lm: the language model that it is; None: it is another network.
    targets: the CPUs that the package has kernels for; each prints as its name, such as "cortex-m4".
    target: the first target.
    sources: paths of all C files and headers in the package, sorted, such as "src/kernels/add.c".
    folders: paths of the folders with C files, such as "src/kernels".
    profile: the macros of `src/megcc_config.h`, such as "MEGCC_NO_STDIO".
    boards: the names that build systems have for the targets, and boards with them.
    helium: whether a target has Helium, the vector instructions of Cortex-M.
    benchmark: the network of MLPerf Tiny that the model is (mlperf-tiny only).
    web: scheme and rest of the package's address, such as ("https", "example.com/network").
    url: whether the address was given; else `web` is that of localhost.
    place: name of the folder that the package is in, for README.md.
    module: path of the Go module, such as "example.com/network" (go only).
    inputs: the inputs of the model in their order, states included (languages only).
    outputs: the outputs of the model in their order, states included (languages only).
    strings: the strings of the model, each at its code; None: the model has no string inputs or outputs (languages
        only).
    statuses: status of the C runtime -> its error text (languages only).
    head: an upper bound of the size of `struct block` (export/block.c.j2), in pointers; generated C checks it
        (languages only).
    session_pointers: an upper bound of MEGCC_SESSION_BYTES (megcc.h), in pointers; generated C checks it (languages
        only).
    align: the largest alignment that the memory of a session needs on any CPU, in bytes (languages only).
    sizes: the sizes in a block of memory (languages only).
    embedded: whether C has the weights; else they are a file of their own, which the language includes (languages
        only).
    abis: the ABIs of Android that the package is built for (android only).
    jni: the package's name in names of JNI functions, with "_1" for "_" (android only).
    slices: the libraries of the XCFramework (swift only).
    """

    name: str
    macro: str
    version: str
    generator: str
    models: Sequence[Model]
    model: Model
    lm: LanguageModel | None
    targets: Sequence[Target]
    target: Target
    sources: Sequence[str]
    folders: Sequence[str]
    profile: Sequence[str]
    boards: Boards
    helium: bool
    benchmark: Benchmark | None
    web: tuple[str, str]
    url: bool
    place: str
    module: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    strings: Sequence[str] | None
    statuses: Mapping[int, str]
    head: int
    session_pointers: int
    align: int
    sizes: Sizes
    embedded: bool
    abis: Sequence[Abi]
    jni: str
    slices: Sequence[Slice]
