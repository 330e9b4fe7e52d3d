# SPDX-License-Identifier: Apache-2.0
"""The errors that a user of the package can meet. Each says what, where, why and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: The most findings of a model that a message lists.
MOST_FINDINGS = 50
#: The most characters of a name, and of a line, that a message shows.
_NAME, _LINE = 120, 2000
#: Characters that a terminal would interpret (controls, text direction), surrogates, and line ends.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: The most characters of an extent in a shape, and of a shape, that a message shows.
_EXTENT = 40
_SHAPE = re.compile(r"(?<=[a-z0-9 ])\[([^\[\]'\"]+)\]")
_QUOTED = re.compile(f"'([^'\n]{{{_NAME},}})'")


def shortened(text: str, longest: int = 80) -> str:
    """Returns the text with its middle left out where it is long."""
    length = longest - 3
    return text if len(text) <= longest else f"{text[:length - length // 3]}...{text[len(text) - length // 3:]}"


def quoted(name: object) -> str:
    """Returns a name of the model as messages show it."""
    return f"'{shortened(_CONTROL.sub('_', str(name)).replace(chr(10), '_'), _NAME)}'"


def readable(message: str) -> str:
    """Returns a message without control characters and overlong parts, which its names may have."""
    message = _QUOTED.sub(lambda found: quoted(found[1]), _CONTROL.sub("_", message))
    message = _SHAPE.sub(_short_extents, message)
    return "\n".join(shortened(line, _LINE) for line in message.split("\n"))


def _short_extents(shape: re.Match[str]) -> str:
    """Returns a shape with "?" for extents that are long expressions: nobody could read them."""
    extents, depth = [""], 0
    for character in shape[1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            extents.append("")
        else:
            extents[-1] += character
    return f"[{','.join('?' if len(extent) > _EXTENT and '(' in extent else extent for extent in extents)}]"


def one_line(report: Any) -> Any:
    """Returns a report whose strings have no control characters and no line ends, which names of a model may have."""
    if isinstance(report, str):
        return _CONTROL.sub("_", report).replace("\n", "_")
    if isinstance(report, dict):
        return {one_line(name): one_line(value) for name, value in report.items()}
    return [one_line(value) for value in report] if isinstance(report, (list, tuple)) else report


def report_text(report: dict[str, Any], text: Callable[[dict[str, Any]], str]) -> str:
    """Returns a report as `text` writes it, for a terminal."""
    return readable(text(one_line(report)))


#: Options of the command -> their names in Python, for messages that name them; both take the same strings.
ARGUMENTS = {
    "--input-shapes": "input_shapes", "--dispatch": "dispatch", "--dim": "dims", "--input": "inputs",
    "--output-names": "output_names", "--constant": "constants", "--bound": "bounds", "--state": "states",
    "--extern": "extern", "--log": "log", "--threads": "threads", "--keep-inputs": "keep_inputs", "--ram": "ram",
    "--flash": "flash", "--caller-inputs": "caller_inputs", "--region": "regions", "--reproducible": "reproducible",
    "--half": "half", "--stream": "stream", "--signature": "signature", "--target": "target",
    "--name": "name", "--model": "model", "--shape": "shapes", "--inputs": "arrays", "--layers": "layers",
    "--reference": "reference", "--tolerance": "tolerance", "--against": "against", "--dump": "dump"}
#: An option in a message, with its value if that is quoted, in capitals, or follows a "=".
_OPTION = re.compile(r"""(--[a-z]+(?:-[a-z]+)*)(?![=\w-])"""
                     r"""(?: ("[^"]*"|'[^'\n]*'|[A-Z]{2}[\w.=,…]*[\w…]|[\w.*/]+=[^\s"';,)]*[^\s"';,.)]))?""")
#: Text to type in a shell: a line that is indented, one of our commands in quotes.
_COMMAND_LINE = re.compile(r"(^ {6}[^\n]*|'megcc [^'\n]*')", re.MULTILINE)
_TWICE = re.compile(r'(\w+)="([^"]*)" \1="([^"]*)"')
_command = [False]


@contextmanager
def for_the_command() -> Iterator[None]:
    """Within the block, messages name options of the command; elsewhere, arguments of Python."""
    before = _command[0]
    _command[0] = True
    try:
        yield
    finally:
        _command[0] = before


def _in_python(message: str) -> str:
    """Returns the message with names of arguments instead of options, except in command lines."""
    return "".join(part if _COMMAND_LINE.fullmatch(part) else _with_arguments(part)
                   for part in _COMMAND_LINE.split(message))


def _with_arguments(message: str) -> str:
    def argument(found: re.Match[str]) -> str:
        name = ARGUMENTS.get(found[1])
        if name is None:
            return found[0]
        return name if found[2] is None else f'{name}="{found[2].strip(chr(34) + chr(39))}"'

    message = _OPTION.sub(argument, message)
    while (merged := _TWICE.sub(r'\1="\2;\3"', message)) != message:
        message = merged
    return message


class MegccError(Exception):
    """Something the user can fix: the message says how. The command exits with 1."""

    def __init__(self, message: str = ""):
        message = readable(message if _command[0] else _in_python(message))
        # Lines after the first are indented, so that a line end in a name cannot fake a message.
        super().__init__(re.sub(r"\n(?! )", "\n  ", message))


class MegccWarning(UserWarning):
    """A warning that something is done differently than the user may expect."""

    def __init__(self, message: str = ""):
        super().__init__(readable(message if _command[0] else _in_python(message)))


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
    """A program that is not installed. A caller that does not need it goes on; a program that fails ends the
    command."""


class InternalError(MegccError):
    """A bug of ours. The command exits with 70 and asks for the stage dumps."""


#: Advice where the system refuses something.
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or write elsewhere"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
                    "choose another place to write to; $MEGCC_CACHE names that of the cache"),
    errno.ENAMETOOLONG: "give a shorter name, with --name or --output",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close files, or raise the limit (ulimit -n)"),
    errno.ENOENT: "is the path right?",
    **dict.fromkeys((errno.EISDIR, errno.EEXIST), "choose another path"),
}


def refused_by_system(error: OSError, what: str = "") -> MegccError:
    """Turns an error of the operating system into a message."""
    what = what or (str(error.filename) if error.filename is not None else "input or output")
    reason = error.strerror or (str(error.args[0]) if error.args else "it failed")
    advice = _ADVICE.get(error.errno or 0)
    return MegccError(f"{what}: {reason}" + (f"; {advice}" if advice else ""))
