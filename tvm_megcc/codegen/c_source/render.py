# SPDX-License-Identifier: Apache-2.0
"""Renders kernel specs to C: the template of the algorithm, and around it the code that all kernels share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import jinja2

from ... import paths
from ...errors import MegccError
from ...foreign import c_name, checked, json_string, printable, rust_string
from ...ir import expr as expressions
from ...ir import lanes
from ...ir.types import DTYPES
from ...kernels.parameters import Scope
from ...target import ISAS, Isa
from ...version import VERSION
from .bind import KernelSpec, Parameter
from .element_access import ElementAccess
from .format import WIDTH, reindent
from .simplify import simplified

#: The most characters of a parameter in the head comment of a kernel.
LONGEST_FACT = 2000


#: Functions of int32x4 of Helium (simd/helium_integer.h).
_INT32X4 = {"add", "sub", "mul", "min", "max", "rescale_fixed", "rescale_down"}


class Known:
    """Extents by name.

    `fixed.OW` is an int if the extent is a constant in the code, None if it is an argument of the call. `known.OW` is
    the same at `-O speed`, where templates unroll loops over known extents, such as tiles and remainders. At `-O size`
    it is always None, since constants may only remove code there.
    """

    def __init__(self, spec: KernelSpec, hidden: bool = False):
        self._values = {name: None if hidden else value for name, value in spec.extents}

    def __getattr__(self, name: str) -> int | None:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"the kernel has no extent '{name}'") from None


class Epilogue:
    """The elementwise tail inside a template: `ep('acc', channel='oc', at='y_offset')` applies it."""

    def __init__(self, spec: KernelSpec):
        self.expression = spec.epilogue
        self.operands = [p for p in spec.inputs if p.kind != "own"]
        self.present = spec.epilogue is not None
        self.half = spec.half
        self.lanes = [spec.lanes, *("f" if p.dtype == "float16" else lanes.KINDS.get(p.dtype, "")
                                    for p in self.operands)]
        self.result = spec.outputs[0].dtype if spec.outputs else ""
        self.is_opened, self.is_int32x4, self._loads = False, False, 0
        self.closed = lanes.closed(spec.epilogue, self.lanes, self.result) if self.present else None
        self.params = "".join(f", const {ElementAccess.of(p.dtype, spec.half).type} *{p.name}" for p in self.operands)
        self.args = "".join(f", {p.name}" for p in self.operands)

    def preloaded(self, channel: str, suffix: str, n: str = "") -> list[str]:
        """Returns declarations that load the per-channel operands of a vector of channels, with a suffix on their
        names, to be used for several results."""
        types = {"f": "mgc_v", "i": "mgc_i"}
        return [f"const {types[lanes.KINDS.get(p.dtype, '')]} {p.name}{suffix} = {self._load(p, channel, '', n, False)}"
                for p in self.operands if p.kind in ("scalar", "channel")]

    def __call__(self, value: str, channel: str = "", at: str = "", n: str = "", one_channel: bool = False,
                 preloaded: str = "") -> str:
        """Returns the expression applied to a vector.

        Args:
            channel: C expression of its first channel. one_channel: all lanes are of that channel. at: C expression of
                its element offset in output 0. n: C expression of the number of valid lanes; empty: all. preloaded: the
                suffix of operands that `preloaded` declared.
        """
        return self._applied("epilogue", value, channel, at, n, one_channel, preloaded)

    def _applied(self, function: str, value: str, channel: str, at: str, n: str, one_channel: bool, preloaded: str,
                 loaded: Mapping[str, str] = MappingProxyType({})) -> str:
        if not self.present:
            return value
        values = [value, *(loaded[p.name] if p.name in loaded else
                           p.name + preloaded if preloaded and p.kind in ("scalar", "channel") else
                           self._load(p, channel, at, n, one_channel) for p in self.operands)]
        return f"{function}({', '.join(values)})"

    def store(self, pointer: str, at: str, value: str, channel: str = "", n: str = "", preloaded: str = "") -> str:
        """Returns the statement that stores the result for a vector of sums at `pointer + at` of output 0."""
        kind = lanes.kind_of(self.expression, self.lanes) if self.present else self.lanes[0]
        function = "mgc_store" if kind == "f" else f"mgc_istore_{DTYPES[self.result].short}"
        result = self(value, channel=channel, at=at, n=n, preloaded=preloaded)
        return f"{function}_n({pointer} + {at}, {result}, {n})" if n else f"{function}({pointer} + {at}, {result})"

    def store_each(self, pointer: str, indices: list[str], values: list[str], channels: list[str], ns: list[str],
                   preloaded: list[str]) -> list[str]:
        """Returns statements that store vectors of sums anywhere in output 0; four at once if they are whole and 8-bit.
        Each has its index, channel, number of lanes and suffix."""
        statements = []
        for first in range(0, len(values), 4):
            four = slice(first, first + 4)
            vectors = list(zip(indices[four], values[four], channels[four], ns[four], preloaded[four], strict=True))
            if self.present and self.result in lanes.LIMITS and len(vectors) == 4 and not any(ns[four]):
                to = ", ".join(f"{pointer} + {index}" for index, *_ in vectors)
                results = ", ".join(self(value, channel=channel, at=index, preloaded=suffix)
                                    for index, value, channel, _, suffix in vectors)
                statements.append(f"mgc_istore4_{DTYPES[self.result].short}({to}, {results})")
            else:
                statements += [self.store(pointer, index, value, channel=channel, n=n, preloaded=suffix)
                               for index, value, channel, n, suffix in vectors]
        return statements

    @property
    def has_int32x4(self) -> bool:
        """Whether `store_four` is possible: the expression is over int8 and int32, and its result is int8."""
        kinds = all(p.dtype == "int8" or (p.dtype == "int32" and p.kind != "full") for p in self.operands)
        return self.present and self.result == "int8" and kinds and lanes.functions(self.expression) <= _INT32X4

    def store_four(self, pointer: str, at: str, value: str, channel: str, n: str) -> str:
        """Prints a store as `store` does, for a vector of Helium (simd/helium_integer.h)."""
        self.is_int32x4 = True
        loads = {"scalar": "mgc_four_dup({0}[0])", "channel": "mgc_four_load{4}({0} + {1}, {3})",
                 "full": "mgc_four_load_i8({0} + {2}, {3})"}
        values = [value, *(loads[p.kind].format(p.name, channel, at, n, "_i8" * (p.dtype == "int8"))
                           for p in self.operands)]
        return f"mgc_four_store({pointer} + {at}, epilogue_of_four({', '.join(values)}), 0, -128, 127, {n})"

    def store_row(self, pointer: str, indices: list[str], values: list[str], channels: list[str], ns: list[str],
                  preloaded: list[str]) -> list[str]:
        """Returns statements that store vectors of sums that are neighbours in output 0, four or two at once if they
        are whole and 8-bit (NEON). Each has its index, channel, number of lanes and suffix."""
        statements, first = [], 0
        while first < len(values):
            fits = (size for size in (4, 2) if self.result in lanes.LIMITS and len(values) - first >= size
                    and not any(ns[first:first + size]))
            count = next(fits, 1)
            if count == 1:
                statements.append(self.store(pointer, indices[first], values[first], channels[first], ns[first],
                                             preloaded[first]))
            else:
                self.is_opened = self.closed is not None
                loaded, statements_before = self._loaded(indices[first], count)
                statements += statements_before
                results = [self._applied("opened" if self.is_opened else "epilogue", values[first + i],
                                         channels[first + i], indices[first + i], "", False, preloaded[first + i],
                                         {name: f"{vectors}.v[{i}]" for name, vectors in loaded.items()})
                           for i in range(count)]
                _, down, zero, low, high = self.closed or (None, 0, 0, *lanes.LIMITS[self.result])
                store = f"mgc_requantize_store{count}_{DTYPES[self.result].short}"
                statements.append(f"{store}({pointer} + {indices[first]}, {', '.join(results)}, {down}, {zero}, {low}, "
                                  f"{high})")
            first += count
        return statements

    def _loaded(self, index: str, count: int) -> tuple[dict[str, str], list[str]]:
        """Loads 8-bit operands of the result's shape for several vectors at once. Returns names and declarations."""
        wide = [p for p in self.operands if p.kind == "full" and p.dtype in lanes.LIMITS]
        names = {p.name: f"{p.name}_{self._loads + i}" for i, p in enumerate(wide)}
        self._loads += len(wide)
        return names, [f"const mgc_i{count} {names[p.name]} = "
                       f"mgc_iload{count}_{DTYPES[p.dtype].short}({p.name} + {index})" for p in wide]

    def _load(self, p: Parameter, channel: str, at: str, n: str, one_channel: bool) -> str:
        real = ElementAccess.of(p.dtype, self.half)
        load, spread = (real.load, real.set1) if p.dtype in ("float32", "float16") else \
            (f"mgc_iload_{DTYPES[p.dtype].short}", "mgc_iset1")
        if p.kind == "scalar":
            return f"{spread}({p.name}[0])"
        if p.kind == "channel" and one_channel:
            return f"{spread}({p.name}[{channel}])"
        place = f"{p.name} + {channel if p.kind == 'channel' else at}"
        return f"{load}_n({place}, {n})" if n else f"{load}({place})"

    def function(self) -> str:
        """Returns the definition of `epilogue`, before the template's own functions."""
        if not self.present:
            return ""
        names = ["x", *(p.name for p in self.operands)]
        types = {"f": "mgc_v", "i": "mgc_i"}
        params = ", ".join(f"{types[kind]} {name}" for kind, name in zip(self.lanes, names, strict=True))
        if self.lanes[0] == "f":
            text = expressions.to_c(self.expression, names)
            return self._definition("epilogue", self.expression, "mgc_v", params, text)
        result = types[lanes.kind_of(self.expression, self.lanes)]
        text = self._definition("epilogue", self.expression, result, params,
                                lanes.to_c(self.expression, names, self.lanes, least=lanes.least(self.result)))
        if self.is_opened and self.closed:
            inner = self.closed.inner
            text += self._definition("opened", inner, "mgc_i", params,
                                     lanes.to_c(inner, names, self.lanes, least=self.closed.least))
        if self.is_int32x4:
            text += self._definition("epilogue_of_four", self.expression, "mgc_four",
                                     ", ".join(f"mgc_four {name}" for name in names),
                                     lanes.to_int32x4(self.expression, names, self.lanes, lanes.least(self.result)))
        return text

    @staticmethod
    def _definition(name: str, expression: expressions.Expr, result: str, params: str, text: str) -> str:
        return (f"/* {printable(expression)} */\n"
                f"static MGC_INLINE {result} {name}({params})\n"
                f"{{\n    return {text};\n}}\n\n")


class _Folders(jinja2.FileSystemLoader):
    """A template loader for several folders. It reloads a file that changed, or that is now shadowed by a file of an
    earlier folder."""

    def get_source(self, environment: jinja2.Environment, template: str):
        source, filename, unchanged = super().get_source(environment, template)

        def is_current() -> bool:
            first = next((path for path in (Path(folder, template) for folder in self.searchpath) if path.is_file()),
                         None)
            return first == Path(filename) and unchanged()

        return source, filename, is_current


class _Bytecode(jinja2.FileSystemBytecodeCache):
    """Caches compiled templates on disk, because compiling them takes as long as compiling a network. A cache that
    cannot be read or written is ignored."""

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # a damaged file can raise any exception
            bucket.reset()

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def environment() -> jinja2.Environment:
    """Returns the Jinja environment of the folders that `paths.templates` names."""
    try:
        cache = paths.cache("templates")
    except paths.NoHome:
        cache = None
    return _environment(paths.templates(), cache)


@lru_cache(maxsize=8)
def _environment(folders: tuple[Path, ...], cache: Path | None) -> jinja2.Environment:
    for folder in folders:
        if not folder.is_dir():
            raise MegccError(f"MEGCC_TEMPLATES names {folder}, which is no folder")
    templates = jinja2.Environment(
        loader=_Folders(folders), bytecode_cache=_Bytecode(str(cache)) if cache else None,
        undefined=jinja2.StrictUndefined, finalize=checked,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)
    templates.filters.update(printable=printable, c_name=c_name, text=json_string, rust_text=rust_string)
    return templates


def find_template(algorithm: str, isa: Isa) -> jinja2.Template:
    """Returns `<algorithm>.<isa>.c.j2` of the ISA or of one that it falls back to, else the portable
    `<algorithm>.c.j2`."""
    names = []
    level: Isa | None = isa
    while level is not None:
        names.append(f"{algorithm}.{level.name}.c.j2")
        level = ISAS.get(level.fallback)
    return environment().select_template([*names, f"{algorithm}.c.j2"])


def render_kernel(spec: KernelSpec, origins: tuple[str, ...] = ()) -> str:
    """Returns the complete C file of one kernel."""
    epilogue = Epilogue(spec)
    scope = Scope(spec.isa, epilogue, Known(spec, hidden=spec.compact), Known(spec), spec.compact,
                  "mgc_float16" if spec.half else "float")
    context = dict(vars(spec.params)) | vars(scope)
    context.update(microkernel=spec.params.microkernel(scope), symbol=spec.symbol,
                   stored={p.name: ElementAccess.of(p.dtype, spec.half) for p in (*spec.inputs, *spec.outputs)})
    marker = "@entry@"
    template = find_template(spec.template, spec.isa)
    body = template.render(entry=marker, **context)
    helpers, separator, function = body.partition(marker)
    assert separator and marker not in function, f"template {spec.template} must use {{{{ entry }}}} once"
    return reindent(_FILE.format(
        version=VERSION,
        description=_description(spec, origins) + _provenance(template),
        isa=(spec.isa.header or spec.isa.name).upper(),
        guard=spec.isa.guard,
        reproducible="#define MEGCC_REPRODUCIBLE\n" * spec.reproducible,
        integer='#include "megcc_integer.h"\n' if spec.lanes == "i" or _INTEGER.search(helpers + function) else "",
        half=_include_half(spec, helpers + function) + '#include "megcc_blocks.h"\n' * bool(_BLOCKS.search(helpers)),
        epilogue=epilogue.function(),
        helpers=simplified(helpers.lstrip("\n")),
        entry=_entry(spec, function),
        shares="".join(f"#define MGC_SHARES_{name.upper()}\n" for name in SHARED if spec.compact and name in function),
        body=simplified(function.lstrip("\n")),
    ))


#: Header functions that are not inlined at `-O size`, so that the kernels of a program share them.
SHARED = ("mgc_tile_3x2", "mgc_joined_3x2")

#: Functions of integer vectors, which need megcc_integer.h.
_INTEGER = re.compile(r"\bmgc_(i(load|store)|pairs\b)")
_HALF = re.compile(r"\bmgc_\w+_f16")
_BLOCKS = re.compile(r"\bmgc_dots_")

_FILE = """\
/* SPDX-License-Identifier: 0BSD
 * Generated by tvm_megcc {version}.
{description} */
#include "kernels.h"

#if {guard}
#define MGC_ISA_{isa}
{reproducible}#include "megcc_simd.h"
#include "megcc_math.h"
{shares}{integer}{half}#if MGC_ENABLED

{epilogue}{helpers}{entry}
{body}
#endif
MGC_END
#endif
"""


def _include_half(spec: KernelSpec, text: str) -> str:
    """Adds the includes for kernels that compute in, read or write float16."""
    if spec.isa.is_half:
        return '#include "megcc_float16_math.h"\n'
    return '#include "megcc_float16.h"\n' if _HALF.search(text) else ""


def _description(spec: KernelSpec, origins: tuple[str, ...]) -> str:
    lines = [f" * {spec.operation}, {spec.algorithm}, for {spec.isa.name}"]
    lines += _wrapped(name if value is None else f"{name} = {value}" for name, value in spec.extents)
    lines += _wrapped(spec.params.facts())
    for origin in origins[:4]:
        lines.append(" * from " + printable(origin))
    if len(origins) > 4:
        lines.append(f" * and {len(origins) - 4} more")
    return "\n".join(lines) + "\n"


def _wrapped(facts: Iterable[str]) -> list[str]:
    """Returns facts as lines of the head; longer ones are broken between words."""
    width, lines = WIDTH - len(" * "), [""]
    text = [f"{printable(fact, LONGEST_FACT)}," for fact in facts]
    for part in (part for fact in text for part in ([fact] if len(fact) <= width else textwrap.wrap(fact, width))):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + part
    return [f" * {line}" for line in "\n".join(lines).rstrip(",").splitlines()]


def _provenance(template: jinja2.Template) -> str:
    """Returns a line with the path of a template that is not one of ours; "" for ours."""
    ours = Path(template.filename or "").is_relative_to(paths.PACKAGE)
    return "" if ours else f" * template {printable(template.name)} from MEGCC_TEMPLATES\n"


def _entry(spec: KernelSpec, function: str) -> str:
    """Returns the head of the kernel function and the locals that its body uses."""
    def used(name: str) -> bool:
        return re.search(rf"\b{name}\b", function) is not None

    lines = [f"int32_t {spec.symbol}(const megcc_call *call, int32_t begin, int32_t end, void *scratch)",
             "{"]
    for index, parameter in enumerate(spec.inputs):
        if used(parameter.name):
            c_type = ElementAccess.of(parameter.dtype, spec.half).type
            lines.append(f"    const {c_type} *{parameter.name} = (const {c_type} *)call->in[{index}];")
    for index, parameter in enumerate(spec.outputs):
        if used(parameter.name):
            c_type = ElementAccess.of(parameter.dtype, spec.half).type
            lines.append(f"    {c_type} *{parameter.name} = ({c_type} *)call->out[{index}];")
    runtime = spec.runtime_extents
    for name, value in spec.extents:
        if used(name):
            source = f"call->extent[{runtime.index(name)}]" if value is None else str(value)
            lines.append(f"    const int32_t {name} = {source};")
    if not any("call->" in line for line in lines) and not used("call"):
        lines.append("    (void)call;")
    for name in ("begin", "end", "scratch"):
        if not used(name):
            lines.append(f"    (void){name};")
    return "\n".join(lines)
