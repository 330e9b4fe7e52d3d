# SPDX-License-Identifier: Apache-2.0
"""The options of compilation, as one frozen value. The keywords of `compile`, the options of the command, the keys of a
configuration file and the facts in the manifest follow from the table of fields below: a new option is one field.

The command imports this module to print its help, which has to be fast: modules that only parse values are imported
when a value is given.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from . import errors

if TYPE_CHECKING:
    from .context import Regions
    from .dispatch import Dispatcher, Intervals
    from .extern import Externs
    from .ir.streams import Stream
    from .named_dims import Size
    from .option_values import Inputs, Shapes
    from .tuning_log import TuningLog

#: The words that the options `optimize`, `activations`, `weight_dtype`, `cache` and `profile` may be.
OPTIMIZE = ("speed", "size")
ACTIVATIONS = ("model", "int8", "float32")
WEIGHT_DTYPES = ("model", "int8")
CACHES = ("float32", "float16", "int8")
PROFILES = ("default", "safety")
#: Fields that say how much memory there is.
MEMORY = ("ram", "flash", "regions")


class Option(NamedTuple):
    """How the command and a configuration file present a field of `CompileOptions`.

    flag: the option of the command.
    kind: "string"; "path"; "strings" and "paths", which may be given several times; "flag"; "count", a number of at
        least 1; "bytes", a number or a string such as 64K; or a tuple of the allowed words.
    metavar, help: strings in the help of the command.
    context: kernels are chosen for the option: it is a field of `Context` too.
    recorded: the manifest has the value if it is not the default.
    in_tvm: regions of a TVM module have the option too: it is a keyword of `partition_for_megcc` and an option of the
        code generator.
    own_key: the key of a configuration file, if it differs from the flag.
    parse: the function of `option_values` that returns the field's value for a given one; "": the value as given.
    takes: the function of `option_values` that returns whether Python takes a value that is no string; "": it takes
        strings only.
    """

    flag: str
    kind: str | tuple[str, ...]
    metavar: str
    help: str
    context: bool = False
    recorded: bool = False
    in_tvm: bool = False
    own_key: str = ""
    parse: str = ""
    takes: str = ""

    @property
    def key(self) -> str:
        """The key of a configuration file: `own_key`, or the flag without its dashes."""
        return self.own_key or self.flag.removeprefix("--")


def _row(flag: str, kind: str | tuple[str, ...], metavar: str, help: str, **others: Any) -> dict[str, Option]:
    """Returns the metadata of a dataclass field, from which `option_of` reads its option. The arguments are the fields
    of `Option`."""
    return {"option": Option(flag, kind, metavar, help, **others)}


@dataclass(frozen=True)
class CompileOptions:
    """The options of a compilation.

    Attributes:
        input_shapes: shapes of inputs whose dimensions the model leaves open: a dictionary, or a string such as
            "data=(1,3,224,224)" or "data:[1,3,224,224]", several inputs separated by ";". Several sets of shapes,
            as a list or separated by ":", are compiled into one model; a call takes the one it has the shapes of.
        dims: dimensions by the names that the model has for them, wherever they stand: {"batch": 1, "sequence":
            "1..128"} or {"sequence": range(1, 129)}; a size, ranges as in `dispatch`, a range, or half-open intervals.
        dispatch: ranges of shapes to compile for: a string such as "data[0]=log(1,64);data[2,3]=uniform(64,64,512)", a
            dispatcher of `tvm_megcc.dispatch`, or `{input: {axis: [(lo, hi), …]}}` with half-open intervals. The axes
            here and in input_shapes are those of the model, also where `inputs` gives another order.
        inputs: formats of inputs, which the compiled model converts to those that the model has: a string such as
            "data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4", several inputs separated by ";", or a
            dictionary of `Input` or the string after the "=".
        output_names: values to compute instead of the model's outputs; other operators are removed.
        signature: the signature of a TFLite file to compile, where it has several.
        constants: inputs that become constants: numbers or arrays by name.
        bounds: largest values of data-dependent dimensions, by the name of the value that determines them (the output
            of a NonZero, or a tensor that is read as a shape): memory is planned for them. Without a bound it is
            allocated at run time. Also the capacity in rows of states that grow, by the name of their dimension
            (docs/streaming.md).
        states: output -> input, the pairs of a streaming model: the session keeps the output's value as the input of
            the next run. A "*" in both names stands for the same string: {"present.*": "past_key_values.*"}.
        stream: makes a network of whole sequences take blocks along one axis and keep states between them: a string
            such as "axis=2,block=64", or a `Stream` (docs/streaming.md).
        extern: operators of your own: a file that declares some (`tvm_megcc.extern`), an `Operator`, or several.
        log: tuning log (`megcc tune`), or its path: kernels are chosen by the times in it.
        optimize: "speed" prints known extents as constants; "size" shares kernels between layers.
        threads: workers that workspace is planned for.
        keep_inputs: inputs in the arena keep their values during a run.
        caller_inputs: inputs are not part of the session's memory: they are bound to buffers of the caller before a
            run.
        ram: the largest number of bytes of memory that a session may need, as a number or a string such as "64K";
            layers are computed in strips of rows if necessary.
        flash: the largest number of bytes of the model's data, as a number or a string.
        regions: memory regions of a microcontroller, in order of preference, instead of `ram` and `flash`:
            "dtcm=64K,sram=256K,flash=1M" (docs/microcontrollers.md).
        reproducible: floats have the same bits on every CPU, with every compiler and for any number of threads.
        activations: dtype of activations in products with block-quantised weights of 4 to 8 bits: "int8", quantised in
            blocks at run time; "float32"; or "model", the model's (docs/quantised.md).
        weight_dtype: dtype of the constant matrices of float products: "model", the model's, or "int8", quantised in
            blocks of 32 when the model is compiled (docs/quantised.md).
        cache: dtype of KV caches, which are states that grow: "float32", "float16", or "int8" with a scale for each
            head and token (docs/language-models.md).
        sinks: the number of first tokens whose keys and values stay when the KV cache of a language model is full, as
            new tokens replace the oldest others (attention sinks, docs/language-models.md); 0: a full cache refuses
            more tokens.
        half: compute and store floats as float16 where the CPU has it (docs/half.md).
        profile: "safety": C for systems that are certified, on microcontrollers or as portable C, with the same
            results (docs/safety.md); or "default".

    `states`, `constants`, `bounds`, `dims` and `output_names` may also be strings as in the command: "a=b;c=d", "a,b".
    A number of bytes, or of threads, may be a string too.

    Raises:
        MegccError: for an invalid value; TypeError: for a name that is not an option.
    """

    optimize: str = field(default="speed", metadata=_row(
        "-O", OPTIMIZE, "", "speed: known extents are constants; size: layers share kernels (default: speed)",
        context=True, in_tvm=True, own_key="optimize"))
    input_shapes: str | Shapes | Sequence[Shapes] | None = field(default=None, metadata=_row(
        "--input-shapes", "string", "SHAPES",
        'such as "data=(1,3,224,224)"; several inputs are separated by ";", several sets of shapes by ":"; '
        '"NAME:data=(1,3,224,224)" is for one of several models', takes="takes_shapes"))
    dims: Mapping[str, Any] = field(default_factory=dict, metadata=_row(
        "--dim", "strings", "NAME=SIZE",
        "size of a dimension by its name in the model, or ranges of sizes: --dim batch=1 --dim "
        "sequence=1..128; may be given several times", parse="parse_dims", takes="takes_named"))
    inputs: Mapping[str, Any] = field(default_factory=dict, metadata=_row(
        "--input", "strings", "INPUT=WORD,…",
        "format of an input, which the compiled model converts: an element type, NHWC or NCHW, BGR, mean=M, std=S "
        'or scale=S with one number or one a channel, such as "data=uint8,NHWC,mean=123.7:116.3:103.5,'
        'std=58.4:57.1:57.4" for (x - mean) / std; may be given several times',
        parse="parse_inputs", takes="takes_inputs"))
    output_names: Sequence[str] = field(default_factory=list, metadata=_row(
        "--output-names", "strings", "A,B",
        "values to compute instead of the model's outputs; other operators are removed",
        parse="parse_output_names", takes="takes_strings"))
    signature: str = field(default="", metadata=_row(
        "--signature", "string", "NAME", "signature of a TFLite file that has several"))
    dispatch: str | Dispatcher | Intervals | None = field(default=None, metadata=_row(
        "--dispatch", "string", "RANGES",
        'ranges of dynamic shapes, such as "data[0]=log(1,64);data[2,3]=uniform(64,64,512)"',
        takes="takes_dispatch"))
    log: str | Path | TuningLog | None = field(default=None, metadata=_row(
        "--log", "path", "FILE", "tuning log from 'megcc tune': kernels are chosen by its times",
        takes="takes_log"))
    threads: int = field(default=1, metadata=_row(
        "--threads", "count", "N", "plan workspace for N workers (default: 1)", parse="parse_threads"))
    keep_inputs: bool = field(default=False, metadata=_row(
        "--keep-inputs", "flag", "", "inputs keep their values during a run"))
    ram: int | None = field(default=None, metadata=_row(
        "--ram", "bytes", "SIZE",
        "most memory that a session may need, such as 64K: layers are computed in strips of rows if necessary",
        context=True, recorded=True))
    flash: int | None = field(default=None, metadata=_row(
        "--flash", "bytes", "SIZE", "most bytes of the model's data, such as 256K", recorded=True))
    caller_inputs: bool = field(default=False, metadata=_row(
        "--caller-inputs", "flag", "",
        "inputs are not part of a session's memory: they are bound to buffers of the caller",
        context=True, recorded=True))
    reproducible: bool = field(default=False, metadata=_row(
        "--reproducible", "flag", "", "floats have the same bits on every CPU (docs/reproducible.md)",
        context=True, recorded=True, in_tvm=True))
    activations: str = field(default="model", metadata=_row(
        "--activations", ACTIVATIONS, "",
        "dtype of activations in products with block-quantised weights of 4 to 8 bits: int8, quantised in blocks at "
        "run time; float32; or model, int8 for GGUF files and MatMulNBits with accuracy_level 4 (default: model)",
        context=True, recorded=True, in_tvm=True))
    weight_dtype: str = field(default="model", metadata=_row(
        "--weight-dtype", WEIGHT_DTYPES, "",
        "dtype of weights of float products: the model's, or int8, quantised in blocks by the compiler "
        "(docs/quantised.md) (default: model)", context=True, recorded=True))
    cache: str = field(default="float32", metadata=_row(
        "--cache", CACHES, "",
        "dtype of KV caches, states that grow: float32, float16, or int8 with a scale for each row (default: float32)",
        recorded=True))
    sinks: int = field(default=0, metadata=_row(
        "--sinks", "count", "K",
        "the first K tokens stay when the KV cache of a language model is full, and new ones replace the oldest others "
        "(docs/language-models.md)", recorded=True, parse="parse_sinks"))
    half: bool = field(default=False, metadata=_row(
        "--half", "flag", "",
        "compute and store floats as float16 where the CPU has it: arm64-v82 and -v86, Cortex-M with Helium "
        "(docs/half.md)", context=True, recorded=True, in_tvm=True))
    profile: str = field(default="default", metadata=_row(
        "--profile", PROFILES, "",
        "safety: C for systems that are certified, without heap, recursion and loops of unknown length, for c and "
        "microcontrollers (docs/safety.md) (default: default)", context=True, recorded=True))
    regions: Regions | None = field(default=None, metadata=_row(
        "--region", "string", "NAME=SIZE,…",
        "memory regions of a microcontroller, in order of preference, such as dtcm=64K,sram=256K,flash=1M "
        "(docs/microcontrollers.md)", context=True, recorded=True, parse="parse_regions", takes="takes_regions"))
    constants: Mapping[str, object] = field(default_factory=dict, metadata=_row(
        "--constant", "strings", "INPUT=VALUE", "makes an input constant: one number, or several separated by ','",
        parse="parse_constants", takes="takes_named"))
    bounds: Mapping[str, int] = field(default_factory=dict, metadata=_row(
        "--bound", "strings", "NAME=N",
        "the largest value of a data-dependent dimension (docs/dynamic-shapes.md), or the capacity in rows of states "
        "that grow (docs/streaming.md)", parse="parse_bounds", takes="takes_named"))
    extern: Externs | None = field(default=None, metadata=_row(
        "--extern", "paths", "FILE",
        "Python file that declares operators of your own, with their C (docs/extern.md); may be given several times",
        takes="takes_externs"))
    stream: Stream | None = field(default=None, metadata=_row(
        "--stream", "string", "axis=N,block=N",
        "makes a network of whole sequences take blocks along an axis of its inputs, such as axis=2,block=64, and "
        "keep states between them (docs/streaming.md)", parse="parse_stream", takes="takes_stream"))
    states: Mapping[str, str] = field(default_factory=dict, metadata=_row(
        "--state", "strings", "OUTPUT=INPUT",
        "the session keeps this output as this input of the next run; may be given several times; '*' in both names "
        "stands for the same string", parse="parse_states", takes="takes_states"))

    def __post_init__(self) -> None:
        values = import_module(".option_values", __package__)
        for row in fields(self):
            option, value = option_of(row), getattr(self, row.name)
            if value is None:
                value = default_of(row)
            if value is not None:  # None: an option without a default is not given
                takes = getattr(values, option.takes) if option.takes else None
                _require_kind(row.name, value, option.kind, takes)
            if option.parse:
                value = getattr(values, option.parse)(value)
            elif option.kind == "bytes" and value is not None:
                value = values.parse_bytes(row.name, value)
            object.__setattr__(self, row.name, value)
        if self.half and self.reproducible:
            raise errors.MegccError("float16 has other bits than CPUs without it: either half or reproducible")

    @classmethod
    def of(cls, options: CompileOptions | None = None, changes: Mapping[str, Any] | None = None,
           caller: str = "compile") -> CompileOptions:
        """Returns the options with some of them changed.

        Args:
            options: None: the defaults.
            changes: new values by name; None stands for the option's default.
            caller: the function that messages name.

        Raises:
            TypeError: for a name that is not an option, and for `options` of another type.
        """
        if options is not None and not isinstance(options, cls):
            raise TypeError(f"tvm_megcc.{caller}(): options are a CompileOptions, not {type(options).__name__}; "
                            "one option is given by name, such as optimize=\"size\"")
        rows = {row.name: row for row in fields(cls)}
        for name in changes or {}:
            if name not in rows:
                similar = difflib.get_close_matches(name, rows, 1)
                raise TypeError(f"tvm_megcc.{caller}() got an unexpected keyword argument '{name}'"
                                + (f", did you mean '{similar[0]}'?" if similar else ""))
        values = {} if options is None else {name: getattr(options, name) for name in rows}
        changed = {name: default_of(rows[name]) if value is None else value for name, value in (changes or {}).items()}
        return cls(**{**values, **changed})

    def for_context(self) -> dict[str, Any]:
        """Returns the options that kernels are chosen for: fields of `Context`."""
        return {row.name: getattr(self, row.name) for row in fields(self) if option_of(row).context}

    def tuning_log(self) -> TuningLog | None:
        """Returns the tuning log; if the option is a path, the file is read by each call.

        Raises:
            MegccError: for a file that cannot be read or is no log.
        """
        from .tuning_log import TuningLog

        return TuningLog.read(self.log) if isinstance(self.log, (str, Path)) else self.log

    def given(self) -> list[Field[Any]]:
        """Returns the fields whose value is not the default."""
        return [row for row in fields(self) if getattr(self, row.name) != default_of(row)]

    def recorded(self) -> dict[str, Any]:
        """Returns the options that the manifest records: numbers, words and flags by name."""
        return {row.name: value if isinstance(value := getattr(self, row.name), (bool, int, str)) else str(value)
                for row in self.given() if option_of(row).recorded}


class CompileKeywords(TypedDict, total=False):
    """The fields of `CompileOptions` as keywords, for type checkers; a test holds them equal."""

    optimize: str
    input_shapes: str | Shapes | Sequence[Shapes] | None
    dims: str | Sequence[str] | Mapping[str, Size] | None
    inputs: str | Inputs | None
    output_names: str | Sequence[str] | None
    signature: str
    dispatch: str | Dispatcher | Intervals | None
    log: str | Path | TuningLog | None
    threads: int | str
    keep_inputs: bool
    ram: int | str | None
    flash: int | str | None
    caller_inputs: bool
    reproducible: bool
    activations: str
    weight_dtype: str
    cache: str
    sinks: int | str
    half: bool
    profile: str
    regions: str | Regions | None
    constants: str | Mapping[str, object] | None
    bounds: str | Mapping[str, int] | None
    extern: Externs | None
    stream: str | Stream | None
    states: str | Mapping[str, str] | None


def _require_kind(name: str, value: Any, kind: str | tuple[str, ...], takes: Callable[[object], bool] | None) -> None:
    """Raises MegccError for a value that is not of the option's kind; the parsers check counts and bytes.

    takes: returns whether Python takes a value that is no string.
    """
    if isinstance(kind, tuple):
        if not (isinstance(value, str) and value in kind):
            raise errors.MegccError(f"{name} is one of {', '.join(kind)}, not {reprlib.repr(value)}")
    elif kind == "flag":
        try:
            is_flag = value in (False, True)
        except ValueError:  # an array has no truth value
            is_flag = False
        if not is_flag:
            raise errors.MegccError(f"{name} is True or False, not {reprlib.repr(value)}")
    elif kind in ("string", "strings", "path", "paths") and not (isinstance(value, str) or (takes and takes(value))):
        raise errors.MegccError(f"{name} is a string, or what help(tvm_megcc.CompileOptions) says of it, not "
                                f"{reprlib.repr(value)}")


def option_of(row: Field[Any]) -> Option:
    """Returns the option of a field of `CompileOptions`."""
    option: Option = row.metadata["option"]
    return option


def default_of(row: Field[Any]) -> Any:
    """Returns the default of a field of `CompileOptions`."""
    if row.default_factory is not MISSING:
        return row.default_factory()
    return row.default


def all_options() -> Iterator[tuple[str, Option]]:
    """Yields the name and option of every field, in order."""
    return ((row.name, option_of(row)) for row in fields(CompileOptions))


# Messages name the flags of the command; in Python, the names of the arguments replace them.
errors.ARGUMENTS.update({option.flag: name for name, option in all_options() if option.flag.startswith("--")})
