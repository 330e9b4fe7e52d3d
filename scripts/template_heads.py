#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of its variables into the comment at the head of each kernel template.

    python scripts/template_heads.py            # writes
    python scripts/template_heads.py --check    # fails if a head is stale, and prints its path

The sentences are those of the docstrings of parameter classes, of `Scope` and of microkernels, which are the only place
to change them. A head names its class in a line `Parameters, of PlanesParameters (planes.py):`, with the file's path
from the template's folder or from kernels/. The list after it is written by this script: the variables that the
template, and the macros and includes that see its variables, really read.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes

from tvm_megcc.kernels.parameters import RENDERED, Parameters, Scope
from tvm_megcc.target import Isa

KERNELS = Path(__file__).resolve().parents[1] / "tvm_megcc" / "kernels"
COMMAND = "python scripts/template_heads.py"
WIDTH = 120
_OWN = re.compile(r"Parameters, of (\w+) \(([\w/]+\.py)\):")
_COMMON = "In every template (kernels/parameters.py):"
_ENVIRONMENT = jinja2.Environment()


class Unexplained(Exception):
    """A template reads a variable that nothing explains."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="changes nothing; fails if a head is stale")
    check: bool = parser.parse_args().check
    stale = []
    for path in sorted(KERNELS.rglob("*.j2")):
        old = path.read_text(encoding="utf-8")
        if (new := with_head(path)) != old:
            stale.append(path)
            if not check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(path.relative_to(KERNELS.parents[1]))
    if check and stale:
        print(f"their heads are stale: run {COMMAND}")
    return 1 if check and stale else 0


def with_head(path: Path) -> str:
    """Returns the text of a template with its list of variables.

    Raises:
        Unexplained: if it reads a variable that is neither of its class nor in the words of its head.
    """
    text = path.read_text(encoding="utf-8")
    head = re.search(r"\{#(.*?)#\}", text, re.S)
    where = path.relative_to(KERNELS).as_posix()
    if head is None:
        raise Unexplained(f"{where} has no comment at its head")
    is_block = head.group(1).startswith("\n")
    indent = "" if is_block else "   "
    words, own = _without_list(head.group(1))
    lines = _list(path, words, own)
    body = words.rstrip()
    if lines:
        width = WIDTH - len(indent)
        body += "\n" + "\n".join(indent + line for entry in lines for line in _wrapped(entry, width))
    body += "\n" if is_block else " "
    return text[:head.start(1)] + body + text[head.end(1):]


def _without_list(comment: str) -> tuple[str, re.Match[str] | None]:
    """Returns what people wrote of a head, and the line that names the class of its parameters."""
    own = _OWN.search(comment)
    begin = min((at for at in (own.start() if own else -1, comment.find(_COMMON)) if at >= 0), default=len(comment))
    return comment[:begin], own


def _list(path: Path, words: str, own: re.Match[str] | None) -> list[str]:
    """Returns the entries of the list, each in one line."""
    names = variables(path)
    parameters = _class(path, own.group(2), own.group(1)) if own else Parameters
    lines: list[str] = []
    common: list[str] = []
    sentences = field_docs(parameters)
    for names_of_sentence, sentence in dict.fromkeys(sentences[name] for name in sentences if name in names):
        lines.append(f"  {names_of_sentence}: {sentence}")
    if "microkernel" in names:
        lines += _microkernel(path, parameters)
    if own:
        lines.insert(0, own.group(0))
    for name, sentence in _common().items():
        if name in names:
            members = _isa(path) if name == "isa" else []
            common += members or [f"  {name}: {sentence}"]
    if common:
        lines += [_COMMON, *common]
    unknown = sorted(name for name in names - set(sentences) - set(_common()) - {"microkernel"} - assigned(path)
                     if not re.search(rf"\b{name}\b", words))
    if unknown:
        raise Unexplained(f"{path.relative_to(KERNELS)} reads {', '.join(unknown)}: name their class in the "
                          "head, as `Parameters, of XParameters (x.py):`, or write there who sets them")
    return lines


def variables(path: Path) -> set[str]:
    """Returns the variables that a template reads, and those of the templates that see its variables."""
    tree = _parse(path)
    names = set(meta.find_undeclared_variables(tree)) - {"range"}
    for other in _seen(tree):
        names |= variables(other)
    return names - _assigned_before_use(path, names)


def assigned(path: Path) -> set[str]:
    """Returns the names that a template and those that it imports assign or bind somewhere."""
    tree = _parse(path)
    names = {node.name for node in tree.find_all(nodes.Name) if node.ctx in ("store", "param")}
    names |= {node.name for node in tree.find_all(nodes.Macro)}
    for imported in tree.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in imported.names}
    for other in _seen(tree):
        names |= assigned(other)
    return names


def _assigned_before_use(path: Path, names: set[str]) -> set[str]:
    """Returns which of the names a template sets for those that it includes."""
    return {name for name in names if any(
        isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name) and node.target.name == name
        for node in _parse(path).body)}


def _seen(tree: nodes.Template) -> Iterator[Path]:
    """Yields the templates that see the variables of one: it includes them, or imports them with its context."""
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport)):
        assert isinstance(node, (nodes.Include, nodes.Import, nodes.FromImport))
        if node.with_context and isinstance(node.template, nodes.Const):
            yield KERNELS / node.template.value


@cache
def _parse(path: Path) -> nodes.Template:
    return _ENVIRONMENT.parse(path.read_text(encoding="utf-8"))


def _members(path: Path, variable: str) -> list[str]:
    """Returns the attributes of a variable that a template, and those that see its variables, read."""
    tree = _parse(path)
    names = [node.attr for node in tree.find_all(nodes.Getattr)
             if isinstance(node.node, nodes.Name) and node.node.name == variable]
    for other in _seen(tree):
        names += _members(other, variable)
    return list(dict.fromkeys(names))


def _class(path: Path, file: str, name: str) -> type[Parameters]:
    """Returns a class by its name and by its file, relative to the template's folder or to kernels/."""
    module = next(found for found in ((path.parent / file).resolve(), KERNELS / file) if found.is_file())
    parts = module.relative_to(KERNELS.parents[1]).with_suffix("").parts
    found: type[Parameters] = getattr(importlib.import_module(".".join(parts)), name)
    return found


@cache
def field_docs(cls: type) -> dict[str, tuple[str, str]]:
    """Returns field -> (the names that share a sentence, the sentence), by the docstrings of a dataclass and its bases.

    Raises:
        Unexplained: if a field has none.
    """
    names = [field.name for field in fields(cls)]
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            found |= _entries(inspect.cleandoc(base.__doc__ or ""), names, base)
    if missing := [name for name in names if name not in found]:
        raise Unexplained(f"{cls.__name__} does not explain {', '.join(missing)}")
    return {name: found[name] for name in names}


def _entries(text: str, names: list[str], cls: type) -> dict[str, tuple[str, str]]:
    """Returns the entries `name, name: sentence` of a docstring."""
    starts = [match for match in re.finditer(r"(?:(?<=[.:])\s+|^[ ]*)((?:\w+, )*\w+): ", text, re.M)
              if set(match.group(1).split(", ")) <= set(names)]
    found = {}
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=False):
        sentence = text[match.end():end].partition("\n\n")[0]
        sentence = " ".join(sentence.split())
        for name in match.group(1).split(", "):
            found[name] = (match.group(1), sentence)
        if other := re.fullmatch(r"as in `(\w+)`\.", sentence):
            there = _named(other.group(1), match.group(1).split(", "))
            found |= {name: there[name] for name in match.group(1).split(", ")}
    return found


def _named(name: str, members: list[str]) -> dict[str, tuple[str, str]]:
    """Returns `field_docs` of the dataclass of kernels with this name and these fields."""
    for module, contents in list(sys.modules.items()):
        cls = getattr(contents, name, None) if module.startswith("tvm_megcc.kernels") else None
        if is_dataclass(cls) and isinstance(cls, type) and {*members} <= {field.name for field in fields(cls)}:
            return field_docs(cls)
    raise Unexplained(f"no dataclass {name} of kernels has the fields {', '.join(members)}")


def _common() -> dict[str, str]:
    """Returns the sentences of the variables that every template has."""
    return {name: sentence for name, (_, sentence) in field_docs(Scope).items()} | dict(RENDERED)


def _isa(path: Path) -> list[str]:
    """Returns the entries of the attributes of the instruction set that a template reads."""
    sentences = field_docs(Isa)
    return [f"  isa.{member}: {sentences[member][1]}" for member in _members(path, "isa") if member in sentences]


def _microkernel(path: Path, parameters: type[Parameters]) -> list[str]:
    """Returns the entries of the variable `microkernel` and of its attributes that the template reads."""
    method = parameters.microkernel
    if method.__doc__ and method is not Parameters.microkernel:
        return [f"  microkernel: {first_sentence(method)}"]
    cls = inspect.signature(method).return_annotation
    if isinstance(cls, str):
        cls = method.__globals__.get(cls)
    if not isinstance(cls, type):
        raise Unexplained(f"{parameters.__name__}.microkernel needs a docstring, or a class as its type")
    file = Path(inspect.getfile(cls)).relative_to(KERNELS)
    file_name = file.name if file.parent == path.parent.relative_to(KERNELS) else file.as_posix()
    lines = [f"  microkernel ({cls.__name__}, {file_name}): {first_sentence(cls)}"]
    for member in _members(path, "microkernel"):
        lines.append(f"  microkernel.{_member(cls, member)}")
    return lines


def _member(cls: type, name: str) -> str:
    """Returns `name(parameters): sentence` of a method, `name: sentence` of an attribute."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, staticmethod):
        found = found.__func__
    if inspect.isfunction(found):
        arguments = [argument for argument in inspect.signature(found).parameters if argument != "self"]
        return f"{name}({', '.join(arguments)}): {first_sentence(found)}"
    if isinstance(found, property) or hasattr(found, "func"):
        return f"{name}: {first_sentence(found)}"
    for base in cls.__mro__:
        for group, sentence in _entries(inspect.cleandoc(base.__doc__ or ""), [*_attributes(cls), name], base).values():
            if name in group.split(", "):
                return f"{name}: {sentence}"
        comment = re.search(rf"((?:^ +#: .*\n)+) +(?:self\.\w+, )*self\.{name}\b", inspect.getsource(base), re.M) \
            if base is not object else None
        if comment:
            lines = [line.strip().removeprefix("#: ") for line in comment.group(1).splitlines()]
            return f"{name}: {_uncapitalized(' '.join(lines))}"
    subclasses: list[type] = cls.__subclasses__()
    for derived in subclasses:
        with suppress(Unexplained):
            return _member(derived, name)
    raise Unexplained(f"{cls.__name__} does not explain {name}")


def _attributes(cls: type) -> list[str]:
    """Returns the names that the docstring of a class may explain."""
    return [name for base in cls.__mro__ for name in re.findall(r"\b\w+\b", base.__doc__ or "")]


def first_sentence(thing: Any) -> str:
    """Returns the first sentence of a docstring, in one line."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    if not text:
        raise Unexplained(f"{getattr(thing, '__qualname__', thing)} has no docstring")
    return _uncapitalized(re.split(r"(?<=\.) (?=[A-Z`])", text)[0])


def _uncapitalized(sentence: str) -> str:
    """Returns a sentence with a small letter first, except after "C, …" and the like."""
    return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _wrapped(entry: str, width: int) -> list[str]:
    spaces = " " * (len(entry) - len(entry.lstrip()) + 2)
    return textwrap.wrap(entry, width, subsequent_indent=spaces, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    sys.exit(main())
