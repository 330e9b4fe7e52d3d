# SPDX-License-Identifier: Apache-2.0
"""The errors that a user of the package can meet. Each says what, where, why and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: The largest number of findings about a model that a message lists.
MAX_FINDINGS = 50
#: The largest number of characters of a name, and of a line, that a message shows.
_MAX_NAME, _MAX_LINE = 120, 2000
# Patterns are compiled when they are first used, since TVM imports this module with `import tvm`, which must be quick.

#: Characters that a terminal would interpret (controls, text direction), surrogates, and line ends.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
#: The largest number of characters of an extent that is an expression.
_MAX_EXTENT = 40
#: A shape after a dtype or a space, such as the "[1,n + 1]" of float32[1,n + 1].
_SHAPE = r"(?<=[a-z0-9 ])\[([^\[\]'\"]+)\]"
#: A quoted name that is too long.
_QUOTED = f"'([^'\n]{{{_MAX_NAME},}})'"


def shortened(text: str, longest: int = 80) -> str:
    """Returns the text; if it has more than `longest` characters, "..." replaces its middle."""
    length = longest - len("...")
    return text if len(text) <= longest else f"{text[:length - length // 3]}...{text[len(text) - length // 3:]}"


def quoted(name: object) -> str:
    """Returns a name of the model as messages show it."""
    return f"'{shortened(re.sub(_CONTROL, '_', str(name)).replace(chr(10), '_'), _MAX_NAME)}'"


def readable(message: str) -> str:
    """Returns a message without the control characters and overlong parts that names of a model may bring into it."""
    message = re.sub(_QUOTED, lambda found: quoted(found[1]), re.sub(_CONTROL, "_", message))
    message = re.sub(_SHAPE, _short_extents, message)
    return "\n".join(shortened(line, _MAX_LINE) for line in message.split("\n"))


def _short_extents(shape: re.Match[str]) -> str:
    """Returns a shape with "?" for extents that are long expressions: nobody could read them."""
    extents, depth = [""], 0
    for character in shape[1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            extents.append("")
        else:
            extents[-1] += character
    return f"[{','.join('?' if len(extent) > _MAX_EXTENT and '(' in extent else extent for extent in extents)}]"


def one_line(report: Any) -> Any:
    """Returns a report in which "_" replaces the control characters and line ends that names of a model may have."""
    if isinstance(report, str):
        return re.sub(_CONTROL, "_", report).replace("\n", "_")
    if isinstance(report, dict):
        return {one_line(name): one_line(value) for name, value in report.items()}
    return [one_line(value) for value in report] if isinstance(report, (list, tuple)) else report


def report_text(report: dict[str, Any], text: Callable[[dict[str, Any]], str]) -> str:
    """Returns the text of a report for a terminal. text: formats the report."""
    return readable(text(one_line(report)))


#: Option of the command -> argument in Python, for messages that name it. `options.py` adds those of compilation.
ARGUMENTS = {
    "--input-shapes": "input_shapes", "--dispatch": "dispatch", "--dim": "dims", "--input": "inputs",
    "--output-names": "output_names", "--constant": "constants", "--bound": "bounds", "--state": "states",
    "--extern": "extern", "--log": "log", "--threads": "threads", "--keep-inputs": "keep_inputs", "--ram": "ram",
    "--flash": "flash", "--caller-inputs": "caller_inputs", "--region": "regions", "--reproducible": "reproducible",
    "--half": "half", "--stream": "stream", "--signature": "signature", "--target": "target",
    "--name": "name", "--model": "model", "--shape": "shapes", "--inputs": "arrays", "--layers": "layers",
    "--reference": "reference", "--tolerance": "tolerance", "--against": "against", "--dump": "dump"}
#: An option in a message, with its value if that is quoted, in capitals, or has the form name=value.
_OPTION = (r"""(--[a-z]+(?:-[a-z]+)*)(?![=\w-])"""
           r"""(?: ("[^"]*"|'[^'\n]*'|[A-Z]{2}[\w.=,…]*[\w…]|[\w.*/]+=[^\s"';,)]*[^\s"';,.)]))?""")
#: Text to type in a shell: a line that is indented, one of our commands in quotes.
_COMMAND_LINE = r"(?m)(^ {6}[^\n]*|'megcc [^'\n]*')"
#: The same argument twice in a row: the values can be joined by ";".
_TWICE = r'(\w+)="([^"]*)" \1="([^"]*)"'
#: Whether messages name options of the command (one element, which `for_the_command` sets).
_for_command = [False]


@contextmanager
def for_the_command() -> Iterator[None]:
    """Within the block, messages name options of the command; elsewhere, arguments of Python."""
    before = _for_command[0]
    _for_command[0] = True
    try:
        yield
    finally:
        _for_command[0] = before


def _in_python(message: str) -> str:
    """Returns the message with names of arguments instead of options, except in command lines."""
    return "".join(part if re.fullmatch(_COMMAND_LINE, part) else _with_arguments(part)
                   for part in re.split(_COMMAND_LINE, message))


def _with_arguments(message: str) -> str:
    """Returns the text with `--dim n=1` as `dims="n=1"`, and so on for all `ARGUMENTS`."""
    def argument(found: re.Match[str]) -> str:
        name = ARGUMENTS.get(found[1])
        if name is None:
            return found[0]
        return name if found[2] is None else f'{name}="{found[2].strip(chr(34) + chr(39))}"'

    message = re.sub(_OPTION, argument, message)
    while (merged := re.sub(_TWICE, r'\1="\2;\3"', message)) != message:
        message = merged
    return message


class MegccError(Exception):
    """An error that the user can fix; the message says how. The command exits with 1."""

    def __init__(self, message: str = ""):
        message = readable(message if _for_command[0] else _in_python(message))
        # Lines after the first are indented, so that a line end in a name cannot fake a message.
        super().__init__(re.sub(r"\n(?! )", "\n  ", message))


class MegccWarning(UserWarning):
    """A warning that something is done differently than the user may expect."""

    def __init__(self, message: str = ""):
        super().__init__(readable(message if _for_command[0] else _in_python(message)))


class ModelError(MegccError):
    """A model cannot be compiled. The message lists the problems of all its operators.

    Args:
        subject: the model's name or path.
        findings: a line for each problem, which names the operator of the source model.
        advice: the remedy.
    """

    def __init__(self, subject: str, findings: Sequence[str], advice: str = ""):
        self.findings = tuple(findings)
        lines = [f"{subject}: {len(self.findings)} problem{'s' * (len(self.findings) != 1)}"]
        lines += [f"  - {finding}" for finding in self.findings[:MAX_FINDINGS]]
        if len(self.findings) > MAX_FINDINGS:
            lines.append(f"  - and {len(self.findings) - MAX_FINDINGS} more")
        if advice:
            lines.append(f"  {advice}")
        super().__init__("\n".join(lines))


class ShapeError(MegccError):
    """Shapes contradict each other, or an input does not have the shape, dtype or name that the model requires."""


class ToolError(MegccError):
    """A program that is needed (compiler, emulator) is missing or failed."""


class MissingTool(ToolError):
    """A program is not installed. A caller that can do without it catches this error; a program that fails is a
    `ToolError`, which ends the command."""


class InternalError(MegccError):
    """A bug of the compiler. The command exits with 70 and asks for the stage dumps."""


#: errno of an error of the operating system -> advice.
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space there, or write elsewhere"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
                    "choose another place to write to; $MEGCC_CACHE names that of the cache"),
    errno.ENAMETOOLONG: "give a shorter name, with --name or --output",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close files, or raise the limit (ulimit -n)"),
    errno.ENOENT: "is the path right?",
    **dict.fromkeys((errno.EISDIR, errno.EEXIST), "choose another path"),
}


def refused_by_system(error: OSError, what: str = "") -> MegccError:
    """Returns a MegccError with the reason of an error of the operating system, and advice. what: subject of the
    message; default: the file that the error names."""
    what = what or (str(error.filename) if error.filename is not None else "input or output")
    reason = error.strerror or (str(error.args[0]) if error.args else "it failed")
    advice = _ADVICE.get(error.errno or 0)
    return MegccError(f"{what}: {reason}" + (f"; {advice}" if advice else ""))
