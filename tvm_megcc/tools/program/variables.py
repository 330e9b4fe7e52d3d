# SPDX-License-Identifier: Apache-2.0
"""The variables of the templates of programs (`templates/program/`). The heads of the templates repeat the sentences of
those that they read; `python scripts/template_heads.py` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Port:
    """An input or output of the program.

    name: its name, a C identifier: a parameter of the function that runs the program.
    macro: a part of the macro with its size, "IN_<NAME>" or "OUT_<NAME>".
    type: its type and shape, such as "float32[1,3]".
    bytes: its size.
    c_type: C type of an element, such as "float".
    elements: number of elements.
    length: the field with the extent that varies; None if its shape is constant.
    """

    name: str
    macro: str
    type: str
    bytes: int
    c_type: str
    elements: int
    length: Length | None = None


@dataclass(frozen=True)
class Length:
    """An extent of a value that a run decides.

    field: the field of the program's lengths that has it.
    axis: the axis of the value.
    least, most: the smallest and the largest extent.
    index: the macro with the index of the network's output whose extent it is; "" for an input of the program.
    """

    field: str
    axis: int
    least: int
    most: int
    index: str = ""


@dataclass(frozen=True)
class Binding:
    """Memory that becomes an input or output of a network.

    direction: "input" or "output", a part of the name of the function megcc_session_bind_….
    index: the macro with the index of the network's input or output.
    data: the address as C: a parameter of the function that runs the program, or an offset in the program's block.
    bytes: size of the memory.
    error_name: the program's value there, a C string literal for error messages.
    """

    direction: str
    index: str
    data: str
    bytes: int
    error_name: str


@dataclass(frozen=True)
class Network:
    """A network of the program.

    name: name of its step, a C identifier: the field with its session.
    model: name of its model, a C identifier: `<model>.h` declares it.
    macro: the model's name in capitals, the prefix of its macros.
    begin: offset of its part in the joined container, in bytes.
    shared: the constant with the offset of its working memory in the block; "" if it needs none.
    shared_bytes: size of this memory.
    bindings: its inputs and outputs in the block, which are bound once.
    first_shapes: the shape of each input as C, where a run decides some and the network has states: those that it is
        opened with.
    """

    name: str
    model: str
    macro: str
    begin: int
    shared: str
    shared_bytes: int
    bindings: Sequence[Binding]
    first_shapes: Sequence[str] = ()


@dataclass(frozen=True)
class State:
    """A value that the program keeps from run to run.

    data: its address as C.
    next: the address of the value that becomes the state after a run.
    bytes: its size.
    """

    data: str
    next: str
    bytes: int


@dataclass(frozen=True)
class Copy:
    """A copy from one value to another.

    target: address of the bytes that are written, as C.
    source: address of the bytes that are read, as C; "" for zeros.
    bytes: how many bytes are copied; in a loop, those of one iteration.
    """

    target: str
    source: str
    bytes: int


@dataclass(frozen=True)
class ImageCall:
    """A call of a function on images (megcc_cv.h).

    function: its name after "megcc_cv_", such as "resize_u8".
    source: the fields of the megcc_image that is read, as C: address, width, height, channels, bytes of a row.
    result: the fields of the megcc_image that is written; in a letterbox, a part of the result.
    arguments: the arguments after the two images, as C.
    c_type: C type of an element of the result.
    result_data: the address of the whole result, in parentheses.
    fill: the value of each channel that a letterbox has around the image, as C; empty for other functions.
    elements: number of elements of the whole result.
    border: the value of each channel outside of the source, as C, for a warp; else empty.
    matrix: the elements of a constant matrix as C, for a warp; else empty.
    """

    function: str
    source: str
    result: str
    arguments: str
    c_type: str
    result_data: str
    fill: Sequence[str]
    elements: int
    border: Sequence[str]
    matrix: Sequence[str]


@dataclass(frozen=True)
class TokenizerCall:
    """The tokens of a text, or of two.

    kind: "tokenizer" (byte pairs), "wordpiece", "sentencepiece" or "unigram": a part of the names of its functions.
    tables: the constant with its tables, without the suffix "_tokenizer".
    strings: (address as C, capacity in bytes) of each text.
    work: address of the work memory: the tokens of two strings, then that of the tokenizer.
    special: the argument that says whether strings of special tokens are these tokens, as C; "" if there is none.
    unit: C type of the tokenizer's work memory, "uint32_t" or "uint8_t".
    work_bytes: size of the tokenizer's work memory.
    most: the length of each result.
    layout: the first fields of the megcc_token_layout: the length of a row, and how many tokens are before the first
        text, before the second one, and at the end.
    around: the tokens around the strings; at least one element.
    around_types: their token types.
    text_types: token types of the strings.
    padding: the token after the last one.
    results: addresses of tokens, mask, types and count, as C; "NULL" if no step reads it.
    """

    kind: str
    tables: str
    strings: Sequence[tuple[str, int]]
    work: str
    special: str
    unit: str
    work_bytes: int
    most: int
    layout: Sequence[int]
    around: Sequence[int]
    around_types: Sequence[int]
    text_types: Sequence[int]
    padding: int
    results: Sequence[str]


@dataclass(frozen=True)
class LoopCode:
    """A loop of the program. Addresses are C.

    depth: 1 for an outermost loop, 2 for one in its body, and so on; a part of the names of its counter.
    max_trip_count: the most iterations.
    count: address of the int64 with the number of iterations; "": always `max_trip_count`.
    until: address of the value that ends the loop after an iteration that makes it true; "" if there is none.
    index: address of the int64 that gets the iteration's number, from 0; "" if no step reads it.
    trip_count: address of the int64 that gets the number of iterations that ran; "" if no step reads it.
    before: copies before the first iteration: initial values, and zeros for the results and for values without one.
    resets: the names of networks whose states begin anew.
    slices: copies at the begin of an iteration, of its part of each input of the loop.
    steps: the steps of an iteration.
    results: copies after the steps, of a value to the iteration's part of a result.
    carried: copies at the end of an iteration, of values to those of the next one.
    after: copies after the last iteration, of values that steps after the loop read.
    """

    depth: int
    max_trip_count: int
    count: str
    until: str
    index: str
    trip_count: str
    before: Sequence[Copy]
    resets: Sequence[str]
    slices: Sequence[Copy]
    steps: Sequence[StepCode]
    results: Sequence[Copy]
    carried: Sequence[Copy]
    after: Sequence[Copy]


@dataclass(frozen=True)
class StepCode:
    """A step of the program: a function on images, a tokenizer, a loop, or else the run of a network.

    name: the step's, a C identifier.
    error_name: the name as a C string literal, for error messages.
    comment: the values that it makes of others, with their types.
    image: the call of a function on images; None for other steps.
    tokenizer: the call of a tokenizer; None for other steps.
    loop_code: the loop; None for other steps.
    bindings: inputs and outputs of a network that are bound before each run: those that the caller of the program
        gives, and all of them after `shapes`.
    shapes: the shape of each input of a network as C, where a run decides some of their extents; else empty.
    has_states: whether the network has states, which stay when its shapes are set.
    lengths: extents of its results that the network decides.
    reorder: address of the row that each row of the network's states becomes before the run, as C; "": rows stay.
    rows: the number of these rows.
    reordered: the macros with the indices of the inputs that are these states.
    """

    name: str
    error_name: str
    comment: str
    image: ImageCall | None = None
    tokenizer: TokenizerCall | None = None
    loop_code: LoopCode | None = None
    bindings: Sequence[Binding] = ()
    shapes: Sequence[str] = ()
    has_states: bool = False
    lengths: Sequence[Length] = ()
    reorder: str = ""
    rows: int = 0
    reordered: Sequence[str] = ()


class ProgramVariables(TypedDict):
    """The context of the templates in `templates/program/`, which `Folder.program` renders.

    version: version of tvm_megcc, such as "1.4.0".
    target: the CPU that the networks are compiled for, such as "cortex-m7".
    name: the program's, a C identifier: the prefix of its functions and files.
    macro: the name in capitals, the prefix of its macros.
    alignment: alignment of the container and of the program's memory, in bytes.
    container_bytes: size of `<name>.megcc`, the joined container of all networks.
    block_bytes: size of the block of memory that all steps share.
    threads: the largest number of workers that share the work of a network.
    networks: the networks in the order of their steps, those in loops included.
    inputs: what the caller gives, the first parameters of the function that runs the program.
    outputs: what the program computes, the parameters after the inputs.
    calls_images: whether some step calls a function on images.
    tokenizers: the steps that are tokenizers, those in loops included.
    tokenizer_kinds: the kinds of the tokenizers, each once.
    tokenizer_tables: (kind, constant without the suffix "_tokenizer") of tables, which steps may share.
    reads_trip_count: whether the trip count of some loop is a value of the run.
    offsets: (constant in C, offset in bytes) of each value and workspace in the block.
    states: the values that the program keeps from run to run.
    lengths: extents of values that a run decides: the names of their fields.
    sets_shapes: whether the shapes of some network are set in a run.
    decides_lengths: whether some network decides an extent.
    reorders: whether rows of the states of some network are reordered.
    steps: the steps in their order.
    """

    version: str
    target: str
    name: str
    macro: str
    alignment: int
    container_bytes: int
    block_bytes: int
    threads: int
    networks: Sequence[Network]
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    calls_images: bool
    tokenizers: Sequence[StepCode]
    tokenizer_kinds: Sequence[str]
    tokenizer_tables: Sequence[tuple[str, str]]
    reads_trip_count: bool
    offsets: Sequence[tuple[str, int]]
    states: Sequence[State]
    lengths: Sequence[str]
    sets_shapes: bool
    decides_lengths: bool
    reorders: bool
    steps: Sequence[StepCode]
