# SPDX-License-Identifier: Apache-2.0
"""Prints docs/operators.md, the supported operators, from their declarations and the checks of kernels.

    python -m tvm_megcc.tools.report.operators > docs/operators.md
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from ...context import Context
from ...errors import MegccError
from ...frontends.onnx.decided import DECIDED
from ...frontends.onnx.functions import has_function_body
from ...frontends.onnx.load import OLDEST_OPSET
from ...frontends.onnx.nodes import CONTROL
from ...frontends.onnx.refused import REFUSED
from ...frontends.onnx.sequences import IMPORTERS as SEQUENCES
from ...ir.graph import Attrs, Op
from ...ir.types import DTYPES, ORDINARY, TensorType
from ...kernels.site import Site
from ...kernels.support import candidates, placements, refusal
from ...ops.base import DECOMPOSITIONS, OPERATORS, Case, Operator
from ...ops.elementwise import Elementwise
from ...target import TARGETS, Target

#: The target whose kernels are checked; like most, it has vectors and blocked layouts.
TARGET = "x86-64-v3"


def markdown() -> str:
    """Returns the page."""
    target = TARGETS[TARGET]
    imported = {name for declaration in OPERATORS.values() for name in declaration.onnx} | set(DECOMPOSITIONS)
    lines = [
        "# Operators", "",
        f"Written by `python -m tvm_megcc.tools.report.operators`, with onnx {onnx.__version__}. "
        f"Kernels and layouts are those of {TARGET}; the scalar targets have the same without blocked layouts.", "",
        "## Operators of the compiler", "",
        "The numbers after an ONNX operator are the operator sets that changed it. An operator without float16 is "
        "computed in float32 between two conversions. An operator without a small type (bfloat16, floats of 8 and 4 "
        "bits, integers of 4 and 2 bits) is computed in float32 or in 8-bit integers. `small` means all of these "
        "types. A kernel's layouts are those of its result.", "",
        "`tvm_megcc.onnx_backend` runs ONNX's own tests of them: `python -m pytest "
        "tests/compiled/tools/test_onnx_backend.py`.", "",
        "An operand that fixes the shape of a result (shape, axes, k, split, …) is a constant of the model or follows "
        "from the shapes of its inputs. If only the run knows it, the compiler uses the model's shape of the result, "
        "if that is complete. Otherwise its extents are computed at run time, or the operator is refused. Reductions, "
        "Squeeze and Unsqueeze over axes of the run take as many axes as that operand has elements.",
        "",
        "| operator | ONNX | Relax | element types | kernels: layouts |", "|---|---|---|---|---|"]
    for kind, declaration in sorted(OPERATORS.items()):
        cells = [f"`{kind}`", ", ".join(map(_versions, declaration.onnx)), ", ".join(declaration.relax),
                 _dtypes(declaration, target), _kernels(declaration, target)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## ONNX operators that become several of these", "",
              ", ".join(_versions(name) for name in sorted(set(DECOMPOSITIONS))) + ".", "",
              "## ONNX operators that are expanded by ONNX's own definition", "",
              ", ".join(_versions(name) for name in _functions(imported)) + ".", "",
              "## ONNX operators with graphs, and those of sequences and optionals", "",
              ", ".join(sorted({*CONTROL, *SEQUENCES})) + ".", "",
              "## Where references differ", "",
              *(f"* {name}: {decision}." for name, decision in sorted(DECIDED.items())), "",
              "## Refused", "",
              "These operators are refused with a reason; all others are refused by name.", ""]
    reasons: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        reasons.setdefault(reason, []).append(name)
    lines += [f"* {', '.join(sorted(names))}: {reason}." for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def _versions(name: str) -> str:
    """Returns an operator with its operator sets from the oldest supported one on, such as `Add (6, 7, 13, 14)`; for
    other domains only the name."""
    if "::" in name:
        return name
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history()
               if schema.name == name and schema.domain == "" and not schema.deprecated]
    since = sorted(schema.since_version for schema in schemas)
    oldest = max((version for version in since if version <= OLDEST_OPSET), default=0)
    return f"{name} ({', '.join(str(version) for version in since if version >= oldest)})"


def _functions(imported: set[str]) -> list[str]:
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
    newest = onnx.defs.onnx_opset_version()
    return [name for name in names if name not in imported and name not in REFUSED
            and has_function_body(onnx.NodeProto(op_type=name), "", newest)]


def _dtypes(declaration: type[Operator], target: Target) -> str:
    """Returns the dtypes of the first operand, or else of the result, that some kernel supports."""
    if not candidates(declaration.kind):
        return "folded by the compiler"
    found = []
    for dtype in DTYPES:
        if any(True for case in declaration.cases for _ in _realised(declaration, _retyped(case, dtype), target)):
            found.append(dtype)
    small = [dtype for dtype in DTYPES if dtype not in ORDINARY]
    if not set(small) - set(found):
        found = [dtype for dtype in found if dtype in ORDINARY] + ["small"]
    return ", ".join(dtype if dtype in ("bool", "small") else DTYPES[dtype].short for dtype in found)


def _kernels(declaration: type[Operator], target: Target) -> str:
    layouts: dict[str, dict[str, None]] = {}
    for case in (*declaration.cases, *_images(declaration)):
        for name, layout in _realised(declaration, case, target):
            layouts.setdefault(name, {})[layout] = None
    return "; ".join(f"{name}: {' '.join(found)}" for name, found in layouts.items())


def _images(declaration: type[Operator]) -> list[Case]:
    """Returns the first case of an elementwise operator on images, which have every layout."""
    if not issubclass(declaration, Elementwise):
        return []
    case = declaration.cases[0]
    return [Case(tuple(((2, 16, 3, 5), spec[1]) for spec in case.inputs), case.attrs)]


def _retyped(case: Case, dtype: str) -> Case:
    """Returns the case with another dtype for all operands that have the dtype of the first one."""
    first = next((spec[1] for spec in case.inputs if spec is not None), None)
    inputs = tuple(spec and (spec[0], dtype if spec[1] == first else spec[1]) for spec in case.inputs)
    attrs = dict(case.attrs) if case.inputs else {**case.attrs, "dtype": dtype}
    return Case(inputs, attrs, case.constant, case.values)


def _realised(declaration: type[Operator], case: Case, target: Target) -> Iterator[tuple[str, str]]:
    """Yields (kernel, layout of its result) for each kernel that accepts the case."""
    inputs = [spec and TensorType(spec[1], tuple(spec[0])) for spec in case.inputs]
    attrs = Attrs(case.attrs)
    try:
        outputs = declaration.infer(attrs, *inputs)
    except (MegccError, ValueError, KeyError, TypeError):
        return
    names = tuple(f"i{index}" if type_ is not None else "" for index, type_ in enumerate(inputs))
    op = Op(declaration.kind, attrs, names, tuple(f"o{index}" for index in range(len(outputs))))
    site = Site(op, tuple(inputs), outputs, Context(target), frozenset(case.constant))
    for kernel in candidates(declaration.kind):
        for placed in placements(site, kernel):
            if refusal(placed, kernel) is None:
                yield kernel.name, str(placed.y.layout)


if __name__ == "__main__":
    print(markdown(), end="")
