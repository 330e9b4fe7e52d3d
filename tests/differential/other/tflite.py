# SPDX-License-Identifier: Apache-2.0
"""Files of one TFLite operator, as `tests.tflite_cases` draws them, beside LiteRT's reference kernels."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import tvm_megcc

from ..draw import Undrawn
from ..family import Family, Outputs, run_session
from ..result import Feature, Result

#: Cases that one seed has before those of the next begin.
APART = 10**9


@dataclass(frozen=True, eq=False)
class File:
    """number: the case's own, of its seed. drawn: of all that `spec_of` draws."""

    number: int
    drawn: int

    @cached_property
    def spec(self):
        from tests.tflite_case_moves import spec_of  # LiteRT may be missing where nobody asks for this family

        return spec_of(self.drawn)

    @cached_property
    def expected(self) -> Outputs:
        from tests.tflite_comparison import asked

        with contextlib.redirect_stderr(io.StringIO()):
            return asked(self.spec)

    @property
    def label(self) -> str:
        return self.spec.label


class TFLite(Family):
    name = "tflite"

    def draw(self, seed: int, number: int, operator: str = "") -> File:
        """Operators take turns: an `operator` has cases at those numbers only where it is drawn."""
        case = File(number, seed * APART + number)
        if operator and case.spec.kind != operator:
            raise Undrawn(f"another operator than {operator}")
        return case

    def check(self, case: File) -> Result:
        from tests.tflite_comparison import checked

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            return checked(case.drawn, Path(folder))._replace(number=case.number)

    def refusal(self, case: File) -> str:
        return ""

    def run(self, cases: Sequence[File], target: str, folder: Path) -> list[Outputs]:
        from tests.tflite_cases import merged

        whole, path = merged([case.spec.with_shapes(case.expected) for case in cases]), folder / "merged.tflite"
        path.write_bytes(whole.data)
        tvm_megcc.compile(path, target).save(folder / target, force=True)
        with tvm_megcc.load(folder / target, target) as session:
            found = run_session(session, whole.feeds)
        return [{name: found[f"{place}.{name}"] for name in case.expected} for place, case in enumerate(cases)]

    def compare(self, case: File, found: Outputs) -> str:
        from tests.tflite_comparison import differs

        spec = case.spec.with_shapes(case.expected)
        return next(filter(None, (differs(spec, found[name], array) for name, array in case.expected.items())), "")

    def features(self, case: File) -> tuple[Feature, ...]:
        dtypes = [("q" if hasattr(each, "scale") else "") + np.dtype(each.dtype).name
                  for name in case.spec.operators[0][3] if (each := case.spec.tensors.get(name)) is not None]
        fields = [f"{name}={value}" for name, value in case.spec.operators[0][2].items()
                  if isinstance(value, (int, bool, str))]
        return (Feature(case.spec.kind, tuple(dict.fromkeys(dtypes)), tuple(fields)),)
