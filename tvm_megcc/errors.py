# SPDX-License-Identifier: Apache-2.0
"""The errors that a user of the package can meet. Each says what, where, why and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class MegccError(Exception):
    """Something the user can fix: the message says how. The command exits with 1."""


class ModelError(MegccError):
    """The model cannot be compiled; lists every offending operator at once.

    Args:
        subject: the model's name or path.
        findings: one line an offence, each naming the source operator.
        advice: what to do about it.
    """

    def __init__(self, subject: str, findings: Sequence[str], advice: str = ""):
        self.findings = tuple(findings)
        lines = [f"{subject}: {len(self.findings)} problem{'s' * (len(self.findings) != 1)}"]
        lines += [f"  - {finding}" for finding in self.findings]
        if advice:
            lines.append(f"  {advice}")
        super().__init__("\n".join(lines))


class ShapeError(MegccError):
    """Shapes contradict each other, or an input does not have the shape, dtype or name that the model wants."""


class ToolError(MegccError):
    """A program we need (compiler, emulator) is missing or failed."""


class InternalError(MegccError):
    """A bug of ours. The command exits with 70 and asks for the stage dumps."""
