# SPDX-License-Identifier: Apache-2.0
"""Small models that others published, by package or repository, path and digest, and what the compiler does with each.

`models.json` has {source: [row, …]}. A source is "pypi:NAME==VERSION", "npm:NAME@VERSION" or
"github:OWNER/NAME@COMMIT". No model lies in this repository: `sources` fetches them, `outcomes` compiles and compares
each in a process of its own, and `python -m tests.models.collection` prints the table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("models.json")
_SOURCE = re.compile(r"pypi:[\w.-]+==[\w.]+|npm:(@[\w.-]+/)?[\w.-]+@[\w.-]+|github:[\w.-]+/[\w.-]+@[0-9a-f]{40}")


@dataclass(frozen=True)
class Row:
    """A model of the list.

    path: within the package or repository. sha256: of the file.
    options: of `megcc compile` and `megcc compare`, such as sizes of open dimensions. compare: of `megcc compare` only.
    note: why an input is not drawn as usual, or a tolerance is not the usual one.
    refused: a part of the message that refuses the model; "" where it is compiled and the results are equal.
    why: a reason for the refusal that a user accepts.
    """

    source: str
    path: str
    sha256: str
    options: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    note: str = ""
    refused: str = ""
    why: str = ""

    @property
    def label(self) -> str:
        """The source without its version, and the path."""
        return f"{re.split('==|(?<=.)@', self.source.partition(':')[2])[0]} {self.path}"


def read(path: Path = LIST) -> tuple[Row, ...]:
    """The rows in the order of the list.

    Raises:
        ValueError: a row that lacks what it must have, or says too little or twice the same.
    """
    rows = [Row(source, **{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
            for source, rows in json.loads(path.read_text()).items() for row in rows]
    for row in rows:
        if not _SOURCE.fullmatch(row.source):
            raise ValueError(f"{row.source}: no source that is fixed to a version")
        if not re.fullmatch("[0-9a-f]{64}", row.sha256):
            raise ValueError(f"{row.label}: no SHA-256")
        if bool(row.refused) != bool(row.why):
            raise ValueError(f"{row.label}: a refusal has a message and a reason")
        if any(option.startswith(("--tolerance", "--value", "--allow", "--reference")) for option in row.compare) \
                and not row.note:
            raise ValueError(f"{row.label}: an input or tolerance of its own needs a note")
    digests = [row.sha256 for row in rows]
    if twice := {row.label for row in rows if digests.count(row.sha256) > 1}:
        raise ValueError(f"the same file twice: {', '.join(sorted(twice))}")
    return tuple(rows)
