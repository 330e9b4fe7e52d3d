# SPDX-License-Identifier: Apache-2.0
"""Renders kernel specs to C: the template of the algorithm, and around it the code that all kernels share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import combinations
from pathlib import Path

import jinja2

from ... import paths
from ...errors import MegccError
from ...foreign import c_name, checked, json_string, printable, rust_string
from ...ir.dims import Dim
from ...ir.types import DTYPES
from ...kernels.parameters import Scope
from ...target import ISAS, Isa
from ...version import VERSION
from .bind import KernelSpec, Parameter
from .element_access import ElementAccess
from .epilogue import Epilogue
from .format import WIDTH, reindent
from .simplify import simplified

#: Longer facts about a kernel's parameters are cut in its header comment.
MAX_FACT_CHARACTERS = 2000
#: Operators of the model that the header comment names.
MAX_ORIGINS = 4


class KnownExtents:
    """The extents of a kernel as attributes, for its template: an int if the extent is a constant in the code, None if
    it is an argument of the call.

    A template has two of them. `fixed.OW` is the extent OW. `known.OW` is the same at `-O speed`, where templates
    unroll loops over known extents, such as tiles and remainders; at `-O size` it is always None, since constants may
    only remove code there.
    """

    def __init__(self, spec: KernelSpec, all_unknown: bool = False):
        self._values = {name: None if all_unknown else value for name, value in spec.extents}

    def __getattr__(self, name: str) -> int | None:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"the kernel has no extent '{name}'") from None


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
    templates.filters.update(printable=printable, c_name=c_name, json_string=json_string, rust_string=rust_string)
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
    """Returns the complete C file of one kernel. origins: the operators of the model that it is for, which the header
    comment names."""
    epilogue = Epilogue(spec)
    scope = Scope(isa=spec.isa, ep=epilogue, known=KnownExtents(spec, all_unknown=spec.compact),
                  fixed=KnownExtents(spec), compact=spec.compact, float="mgc_float16" if spec.half else "float")
    context = dict(vars(spec.params)) | vars(scope)
    context.update(microkernel=spec.params.microkernel(scope), symbol=spec.symbol,
                   stored={p.name: ElementAccess.of(p.dtype, spec.half) for p in (*spec.inputs, *spec.outputs)})
    marker = "@entry@"
    template = find_template(spec.template, spec.isa)
    text = template.render(entry=marker, **context)
    helpers, separator, body = text.partition(marker)
    assert separator and marker not in body, f"template {spec.template} must use {{{{ entry }}}} once"
    code = helpers + body
    return reindent(_FILE.format(
        version=VERSION,
        description=_description(spec, origins) + _provenance(template),
        isa=(spec.isa.header or spec.isa.name).upper(),
        guard=spec.isa.guard,
        reproducible="#define MEGCC_REPRODUCIBLE\n" * spec.reproducible,
        integer='#include "megcc_integer.h"\n' if spec.lane_kind == "i" or _INTEGER.search(code) else "",
        float16=_float16_include(spec, code),
        blocks='#include "megcc_blocks.h"\n' if _BLOCKS.search(code) else "",
        epilogue=epilogue.function(),  # after `render`, which notes the functions that it calls
        helpers=simplified(helpers.lstrip("\n")),
        entry=_entry(spec, body),
        shared="".join(f"#define MGC_SHARES_{name.upper()}\n" for name in SHARED if spec.compact and name in code),
        body=simplified(body.lstrip("\n")),
    ))


#: Header functions that are not inlined at `-O size`, so that the kernels of a program share them.
SHARED = ("mgc_tile_3x2", "mgc_joined_3x2")

#: Functions of integer vectors, float16 vectors and quantised blocks, which are declared in megcc_integer.h,
#: megcc_float16.h and megcc_blocks.h.
_INTEGER = re.compile(r"\bmgc_(i(load|store)|i\b|pairs\b)")
_FLOAT16 = re.compile(r"\bmgc_(load|store|set1)\w*_b?f16")
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
{shared}{integer}{float16}{blocks}#if MGC_ENABLED

{epilogue}{helpers}{entry}
{body}
#endif
MGC_END
#endif
"""


def _float16_include(spec: KernelSpec, text: str) -> str:
    """Returns the include of a kernel that computes in, reads or writes float16; "" for others."""
    if spec.isa.is_half:
        return '#include "megcc_float16_math.h"\n'
    return '#include "megcc_float16.h"\n' if _FLOAT16.search(text) else ""


def _description(spec: KernelSpec, origins: tuple[str, ...]) -> str:
    """Returns the lines of the header comment: operation, algorithm and ISA, extents, parameters, origins."""
    lines = [f" * {spec.operation}, {spec.algorithm}, for {spec.isa.name}"]
    lines += _wrapped(name if value is None else f"{name} = {value}" for name, value in spec.extents)
    lines += _wrapped(spec.params.facts())
    for origin in origins[:MAX_ORIGINS]:
        lines.append(" * from " + printable(origin))
    if len(origins) > MAX_ORIGINS:
        lines.append(f" * and {len(origins) - MAX_ORIGINS} more")
    return "\n".join(lines) + "\n"


def _wrapped(facts: Iterable[str]) -> list[str]:
    """Returns facts, with commas between them, as lines of the header comment. As many as fit share a line; a fact that
    is longer than a line is broken between words."""
    width, lines = WIDTH - len(" * "), [""]
    for fact in facts:
        text = f"{printable(fact, MAX_FACT_CHARACTERS)},"
        for part in [text] if len(text) <= width else textwrap.wrap(text, width):
            if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
                lines.append("")
            lines[-1] += " " * bool(lines[-1]) + part
    return [f" * {line}" for line in "\n".join(lines).rstrip(",").splitlines()]


def _provenance(template: jinja2.Template) -> str:
    """Returns a line with the path of a template that is not one of ours; "" for ours."""
    ours = Path(template.filename or "").is_relative_to(paths.PACKAGE)
    return "" if ours else f" * template {printable(template.name)} from MEGCC_TEMPLATES\n"


def _argument_checks(spec: KernelSpec) -> list[str]:
    """Returns the statement with which a kernel of the safety profile refuses arguments that its body cannot take."""
    pointers = [f"call->{name}" for name, parameters in (("in", spec.inputs), ("out", spec.outputs)) if parameters]
    pointers += [f"call->{name}[{index}]" for name, parameters in (("in", spec.inputs), ("out", spec.outputs))
                 for index in range(len(parameters))]
    pointers += ["call->shared"] * (spec.shared != 0) + ["scratch"] * (spec.scratch != 0)
    refused = ["(call == NULL)", "(begin < 0)", f"(end > {spec.tasks})", *(f"({name} == NULL)" for name in pointers)]
    return textwrap.wrap(f"if ({' || '.join(refused)}) {{", WIDTH, initial_indent=" " * 4,
                         subsequent_indent=" " * 8) + ["        return MEGCC_REFUSED_ARGUMENT;", "    }"]


def _contract(spec: KernelSpec) -> list[str]:
    """Returns the contract of a kernel of the safety profile in ACSL, the language of Frama-C: the memory that a call
    must have, and what the kernel writes. All sizes are constants there."""
    def memory(pointer: str, size: Dim) -> str:
        return f"(char *){pointer} + (0 .. {int(size) - 1})"

    def operands(name: str, parameters: Iterable[Parameter]) -> list[str]:
        return [memory(f"call->{name}[{index}]", parameter.size * DTYPES[parameter.dtype].bytes)
                for index, parameter in enumerate(parameters)]

    reads, writes = operands("in", spec.inputs), operands("out", spec.outputs)
    work = [memory(name, size) for name, size in (("call->shared", spec.shared), ("scratch", spec.scratch))
            if size != 0]
    shared = {*spec.in_place, *spec.takes_over}
    separate = [(written, read) for output, written in enumerate(writes) for operand, read in enumerate(reads)
                if (output, operand) not in shared]
    separate += [*combinations(writes, 2), *((part, other) for part in work for other in (*reads, *writes))]
    clauses = ["requires \\valid_read(call);"]
    clauses += [f"requires \\valid_read(call->{name} + (0 .. {len(rows) - 1}));"
                for name, rows in (("in", reads), ("out", writes)) if rows]
    clauses += [f"requires \\valid_read({part});" for part in reads]
    clauses += [f"requires \\valid({part});" for part in (*writes, *work)]
    clauses += [f"requires \\separated({part}, {other});" for part, other in separate]
    read = ", ".join(f"*({part})" for part in reads) or "\\nothing"
    clauses += [f"requires 0 <= begin <= end <= {spec.tasks};",
                *(f"assigns *({part}) \\from {read};" for part in (*writes, *work)),
                f"assigns \\result \\from {read};",
                "ensures \\result == 0 || \\result == MEGCC_KERNEL_FAILED;"]
    return ["/*@ " + clauses[0], *("    " + clause for clause in clauses[1:]), "*/"]


def _entry(spec: KernelSpec, body: str) -> str:
    """Returns the head of the kernel function, the declarations of the operands and extents that its body uses, and
    `(void)` casts of parameters that it does not use."""
    def used(name: str) -> bool:
        return re.search(rf"\b{name}\b", body) is not None

    lines = [*(_contract(spec) if spec.checked else []),
             f"int32_t {spec.symbol}(const megcc_call *call, int32_t begin, int32_t end, void *scratch)",
             "{"]
    if spec.checked:
        lines += _argument_checks(spec)
    for qualifier, field, parameters in (("const ", "in", spec.inputs), ("", "out", spec.outputs)):
        for index, parameter in enumerate(parameters):
            if used(parameter.name):
                pointer = f"{qualifier}{ElementAccess.of(parameter.dtype, spec.half).type} *"
                lines.append(f"    {pointer}{parameter.name} = ({pointer})call->{field}[{index}];")
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
