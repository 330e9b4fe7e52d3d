# SPDX-License-Identifier: Apache-2.0
"""The page of what drawn models have tested: python -m tests.differential.coverage LOG... [--refused FILE]

Logs are those of `python -m tests.differential --log`. The page goes to docs/coverage.md.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .result import ROOT, Result

PAGE = ROOT / "docs" / "coverage.md"
#: A line for each operator and reason of a refusal.
REFUSED = Path(__file__).with_name("refused.txt")
TITLES = {"onnx": "ONNX", "chains": "Graphs of several operators", "ml": "ai.onnx.ml", "contrib": "com.microsoft",
          "tflite": "TFLite", "relax": "Relax"}
_HEAD = """\
# Coverage of drawn models

`make graphs` generates random models from the schemas of their formats. It computes each in numpy and compiled for one
target after the other, and compares the results with a reference: ONNX Runtime without optimisation and ONNX's
reference evaluator, or LiteRT's reference kernels, or TVM's own build. `python -m tests.differential.coverage LOG...`
writes this page from its logs.

The first table has the cases of each family. "Otherwise" are cases without a reference, cases where the references
differ from each other and the specification's text decides, graphs that amplify a rounding error, and cases that an
emulator cannot run. A case that failed was run again after its repair.

In the other tables a row is an operator. Its columns are the number of right cases and of cases with a reference, in
numpy and on each target; the dtypes of its operands; the values of its attributes; and its refusals, by reason.
"""
_TABLE = "| operator | right of cases | dtypes | attributes | refused |\n|---|---|---|---|---|\n"


@dataclass
class Row:
    """right, checked: cases by target, "" for numpy. refused: reason -> cases."""

    right: collections.Counter[str] = field(default_factory=collections.Counter)
    checked: collections.Counter[str] = field(default_factory=collections.Counter)
    dtypes: set[str] = field(default_factory=set)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    refused: collections.Counter[str] = field(default_factory=collections.Counter)


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Result]]:
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            family, *result = json.loads(line)
            yield family, Result.of(result)


def collected(found: Iterable[tuple[str, Result]]) -> dict[tuple[str, str], Row]:
    """By family and operator."""
    rows: dict[tuple[str, str], Row] = {}
    for family, result in found:
        for feature in result.features:
            row = rows.setdefault((family, feature.operator.rpartition("::")[2]), Row())
            if result.outcome in ("right", "wrong", "crash"):
                row.checked[result.target] += 1
                row.right[result.target] += result.outcome == "right"
                row.dtypes |= set(feature.dtypes)
                for text in feature.attributes:
                    name, _, value = text.partition("=")
                    row.attributes.setdefault(name, set()).add(value)
            elif result.outcome == "refused" and len(result.features) == 1:
                row.refused[f"{result.target and result.target + ': '}{result.reason}"] += 1
    return rows


def totals(found: Iterable[tuple[str, Result]]) -> str:
    """A table of families and targets: cases by result."""
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for family, result in found:
        if result.outcome != "not drawn":
            counts.setdefault((family, result.target), collections.Counter())[result.outcome] += 1
    named = ("right", "refused", "wrong", "crash")
    columns = ("family", "target", "cases", *named, "otherwise")
    parts = [f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"]
    for (family, target), row in sorted(counts.items()):
        cells = [TITLES.get(family, family), target or "numpy", f"{row.total():,}",
                 *(f"{row[name]:,}" for name in named), f"{row.total() - sum(row[name] for name in named):,}"]
        parts.append("| " + " | ".join(cells) + " |\n")
    return "".join(parts)


def page(rows: dict[tuple[str, str], Row], summary: str = "") -> str:
    parts = [_HEAD, summary]
    for family in dict.fromkeys(family for family, _ in sorted(rows)):
        parts.append(f"\n## {TITLES.get(family, family)}\n\n{_TABLE}")
        for (own, operator), row in sorted(rows.items()):
            if own == family:
                cells = (f"`{operator}`", _counts(row), ", ".join(sorted(row.dtypes)), _attributes(row),
                         "<br>".join(f"{reason}: {count}" for reason, count in sorted(row.refused.items())))
                parts.append("| " + " | ".join(_cell(text) for text in cells) + " |\n")
    return "".join(parts)


def _counts(row: Row) -> str:
    return "<br>".join(f"{target or 'numpy'}: {row.right[target]:,} of {count:,}"
                       for target, count in sorted(row.checked.items()))


def _attributes(row: Row) -> str:
    return "<br>".join(f"{name}: {_values(values)}" for name, values in sorted(row.attributes.items()))


def _values(values: set[str]) -> str:
    """Words as they are, and lists by the numbers of their elements."""
    lengths = sorted(int(text.split()[0]) for text in values if text.endswith(" values"))
    words = sorted(text for text in values if not text.endswith(" values"))
    lists = [f"lists of {lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "")] if lengths else []
    return ", ".join([*words[:12], *lists])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("&lt;br>", "<br>").replace("\n", " ")


def refusals(found: Iterable[tuple[str, Result]]) -> list[str]:
    """Lines of the list: family, operator, reason."""
    return sorted({f"{family} {feature.operator.rpartition('::')[2]}: {result.reason}"
                   for family, result in found if result.outcome == "refused" and len(result.features) == 1
                   for feature in result.features})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--refused", type=Path, help="keep of this list what the logs still refuse")
    args = parser.parse_args()
    found = list(read(args.logs))
    args.output.write_text(page(collected(found), totals(found)), "utf-8")
    if args.refused:
        now, known = refusals(found), args.refused.read_text("utf-8").splitlines() if args.refused.exists() else None
        kept = now if known is None else [line for line in known if line in now]
        args.refused.write_text("".join(f"{line}\n" for line in kept), "utf-8")
        new = [line for line in now if line not in kept]
        print("\n".join(["refused, and not in the list:", *new] if new else ["no new refusal"]))
        return int(bool(new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
