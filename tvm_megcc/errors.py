# SPDX-License-Identifier: Apache-2.0
"""The errors that a user of the package can meet. Each says what, where, why and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

#: Findings of a model that a message lists.
MOST_FINDINGS = 50
#: Characters of a name, and of a line, that a message shows.
_NAME, _LINE = 120, 2000
#: What a terminal would obey or turn round, and halves of characters; a line ends where we end it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_QUOTED = re.compile(f"'([^'\n]{{{_NAME},}})'")


def shortened(text: str, longest: int = 80) -> str:
    """The text with its middle left out where it is long."""
    kept = longest - 3
    return text if len(text) <= longest else f"{text[:kept - kept // 3]}...{text[len(text) - kept // 3:]}"


def quoted(name: object) -> str:
    """A name of the model as messages show it."""
    return f"'{shortened(_CONTROL.sub('_', str(name)).replace(chr(10), '_'), _NAME)}'"


def readable(message: str) -> str:
    """A message without what its names may bring along: no control characters, nothing of endless length."""
    message = _QUOTED.sub(lambda found: quoted(found[1]), _CONTROL.sub("_", message))
    return "\n".join(shortened(line, _LINE) for line in message.split("\n"))


class MegccError(Exception):
    """Something the user can fix: the message says how. The command exits with 1."""

    def __init__(self, message: str = ""):
        super().__init__(readable(message))


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
        lines += [f"  - {finding}" for finding in self.findings[:MOST_FINDINGS]]
        if len(self.findings) > MOST_FINDINGS:
            lines.append(f"  - and {len(self.findings) - MOST_FINDINGS} more")
        if advice:
            lines.append(f"  {advice}")
        super().__init__("\n".join(lines))


class ShapeError(MegccError):
    """Shapes contradict each other, or an input does not have the shape, dtype or name that the model wants."""


class ToolError(MegccError):
    """A program we need (compiler, emulator) is missing or failed."""


class MissingTool(ToolError):
    """A program that is not there. What can do without it goes on; where one fails, nothing does."""


class InternalError(MegccError):
    """A bug of ours. The command exits with 70 and asks for the stage dumps."""


#: What to do where the system refuses something.
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or write elsewhere"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
                    "choose another --output; $MEGCC_CACHE names another cache"),
    errno.ENAMETOOLONG: "give a shorter name, with --name or --output",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close files, or raise the limit (ulimit -n)"),
    errno.ENOENT: "is the path right?",
    **dict.fromkeys((errno.EISDIR, errno.EEXIST), "choose another path"),
}


def refused_by_system(error: OSError, what: str = "") -> MegccError:
    """What the system refused to do, by default with a file, and what to do about it."""
    what = what or (str(error.filename) if error.filename is not None else "input or output")
    reason = error.strerror or (str(error.args[0]) if error.args else "it failed")
    advice = _ADVICE.get(error.errno)
    return MegccError(f"{what}: {reason}" + (f"; {advice}" if advice else ""))
