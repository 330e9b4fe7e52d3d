# SPDX-License-Identifier: Apache-2.0
"""Operators of your own: a function in C, a shape rule in Python, for nodes of a domain of yours. docs/extern.md.

A file for `megcc compile --extern FILE` declares them as values of any name:

    from tvm_megcc import extern

    SOFT_CLIP = extern.Operator("com.example", "SoftClip", source="soft_clip.c", inputs={"x": "float32"},
                                outputs={"y": "float32"}, attributes={"limit": 1.0}, shapes=lambda attrs, x: [x])
"""

from __future__ import annotations

import math
import re
import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from .codegen.headers import HEADER
from .errors import MegccError
from .ir.types import ORDINARY
from .ops.control.extern import Function

__all__ = ["Operator", "load"]

#: Names that the generated call of the C function uses for other parameters.
_RESERVED = {"begin", "end", "scratch", "call", "workspace"}


@dataclass(frozen=True)
class Operator:
    """An operator of your own. Its C function has these parameters, in this order: for each input and output a pointer
    and the extents (`const float *x, const int32_t *x_dims`); the attributes; `int32_t begin, int32_t end` if there are
    `tasks`; and `void *workspace` if there is a workspace. It returns 0; any other value ends the run with an error.

    Args:
        domain, name: domain and op_type of the ONNX nodes. Several operators may have the same domain and name: a node
            gets the first one with its element types.
        source: C file with the function, relative to the file that declares the operator; compiled with the kernels.
        inputs, outputs: name -> element type of each operand.
        shapes: rule that returns the shapes of the outputs: `shapes(attrs, *shapes_of_inputs)`. Extents are numbers or
            expressions of symbols; both can be added, multiplied and divided (//). Default: the shape of the first
            input.
        function: name of the C function; default: the name of the source without its suffix.
        attributes: name -> default, a float or an int; the type itself where the node has to have it.
        tasks: rule that returns the number of parts of the work, which threads share: the function computes parts
            [begin, end). Default: one call computes everything.
        workspace: rule that returns the bytes of memory that each thread has for itself during a call.
        compute: the operator in numpy: `compute(attrs, *arrays)` returns a list of arrays; `megcc compare` uses it.
        headers: files that the source includes.
    """

    domain: str
    name: str
    source: Union[str, Path]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    shapes: Callable[..., Sequence[Sequence[Any]]] = lambda attrs, first, *rest: [first]
    function: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tasks: Union[Callable[..., Any], None] = None
    workspace: Union[Callable[..., Any], None] = None
    compute: Union[Callable[..., Any], None] = None
    headers: Sequence[Union[str, Path]] = ()

    def __post_init__(self) -> None:
        label = f"extern {self.domain}::{self.name}"
        if self.domain in ("", "ai.onnx") or not self.name:
            raise MegccError(f"{label}: it needs a name and a domain of its own; nodes of ONNX's own domain are not "
                             "replaced")
        for name in (*self.inputs, *self.outputs, *self.attributes):
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) or name in _RESERVED:
                raise MegccError(f"{label}: '{name}' is no name for an operand or attribute: letters and digits, and "
                                 f"none of {', '.join(sorted(_RESERVED))}")
        for name, dtype in (*self.inputs.items(), *self.outputs.items()):
            if dtype not in ORDINARY:
                raise MegccError(f"{label}: '{name}' has element type {dtype}; one of {', '.join(ORDINARY)}")
        for name, default in self.attributes.items():
            if default not in (int, float) and type(default) not in (int, float):
                raise MegccError(f"{label}: attribute '{name}' has the default {default!r}; a float or an int, or one "
                                 "of these types")
        if Path(self.source).suffix != ".c":
            raise MegccError(f"{label}: the source {Path(self.source).name} is no C file: its name ends in .c")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.symbol):
            raise MegccError(f"{label}: '{self.symbol}' is no C function; give its name with function=")

    @property
    def symbol(self) -> str:
        """The name of the C function."""
        return self.function or Path(self.source).stem


Externs = Union[str, Path, Operator, Iterable[Union[str, Path, Operator]]]


def load(externs: Externs | None) -> dict[tuple[str, str], list[Function]]:
    """Returns the C functions of operators, by domain and name. externs: operators, and files that declare some.

    Raises:
        MegccError: for a file that cannot be run or declares no operator, and for a C file that cannot be read.
    """
    if externs is None:
        return {}
    given = [externs] if isinstance(externs, (str, Path, Operator)) else list(externs)
    operators = [pair for item in given
                 for pair in ([(item, Path())] if isinstance(item, Operator) else _declared(Path(item)))]
    functions = [(operator, _function(operator, folder)) for operator, folder in operators]
    # A C file with several functions is compiled once, with the prototypes of all of them first.
    prototypes: dict[str, list[str]] = {}
    for _, function in functions:
        prototypes.setdefault(function.files[0][0], []).append(f"{function.prototype};\n")
    result: dict[tuple[str, str], list[Function]] = {}
    for operator, function in functions:
        (file, text), *headers = function.files
        text = (f"#include <stdint.h>\n\n{''.join(dict.fromkeys(prototypes[file]))}\n"
                f'#line 1 "{Path(file).name}"\n{text}')
        result.setdefault((operator.domain, operator.name), []).append(
            replace(function, files=((file, text), *headers)))
    return result


def _declared(path: Path) -> list[tuple[Operator, Path]]:
    """Returns the operators that a file declares, with its folder."""
    if not path.is_file():
        raise MegccError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; --extern requires a Python "
                         "file that declares operators (docs/extern.md)")
    try:
        names = runpy.run_path(str(path))
    except MegccError:
        raise
    except Exception as error:
        raise MegccError(f"{path}: it raised {type(error).__name__}: {error}") from error
    values = (item for value in names.values() for item in (value if isinstance(value, (list, tuple)) else [value]))
    # By id, so that an operator with several names is declared once.
    operators = list({id(value): value for value in values if isinstance(value, Operator)}.values())
    if not operators:
        raise MegccError(f"{path}: it declares no tvm_megcc.extern.Operator (docs/extern.md)")
    return [(operator, path.parent) for operator in operators]


def _function(operator: Operator, folder: Path) -> Function:
    """Returns an operator with the text of its C files. folder: the folder that their paths are relative to."""
    def read(name: str | Path) -> tuple[str, str]:
        path = folder / name
        if f"kernels/{path.name}" == HEADER:
            raise MegccError(f"extern {operator.domain}::{operator.name}: {path} has the name of a header of the "
                             "generated folder; give it another")
        try:
            return f"kernels/{path.name}", path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise MegccError(f"extern {operator.domain}::{operator.name}: {path} cannot be read: "
                             f"{error.strerror if isinstance(error, OSError) else 'it is not UTF-8 text'}") from None

    return Function(
        label=f"{operator.domain}::{operator.name}", symbol=operator.symbol, inputs=tuple(operator.inputs.items()),
        outputs=tuple(operator.outputs.items()), attributes=tuple(operator.attributes.items()),
        files=tuple(map(read, (operator.source, *operator.headers))), shapes=operator.shapes, tasks=operator.tasks,
        workspace=operator.workspace, compute=operator.compute)


def attribute(function: Function, name: str, default: Any, value: Any) -> float | int:
    """Returns the value of an attribute of a node for the C function.

    Args:
        default: the value that the operator declares, or the type of an attribute that a node must have.
        value: the node's value; None if it has none.

    Raises:
        MegccError: for an attribute that is missing, of another type, not finite, or no int of 32 bits.
    """
    kind = default if isinstance(default, type) else type(default)
    if value is None and isinstance(default, type):
        raise MegccError(f"has no attribute '{name}', which the extern {function.label} requires")
    value = default if value is None else value
    if type(value) is float and kind is float and math.isfinite(value):
        return value
    if type(value) is not int or kind is not int or not -2**31 <= value < 2**31:
        raise MegccError(f"attribute '{name}' is {value!r}, the extern {function.label} requires "
                         f"{'a finite float' if kind is float else 'an int of 32 bits'}")
    return value
