#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of its variables into the comment at the head of each template, of kernels and of other files.

    python scripts/template_heads.py            # writes
    python scripts/template_heads.py --check    # fails if a head is stale, and prints its path

The sentences are those of the docstrings of parameter classes, of `Scope` and of microkernels, which are the only place
to change them. A head names its class in a line `Parameters, of PlanesParameters (planes.py):`, with the file's path
from the template's folder or from kernels/. The list after it is written by this script: the variables that the
template, and the macros and includes that see its variables, really read.

A template of codegen/templates/ names the class that describes its context, in a line `Variables, of FolderVariables
(codegen/bundle.py):` with the file's path from tvm_megcc/. The list has the variables that the template itself reads
and, for each object among them, the attributes; the types of the classes tell which object has which class.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from types import UnionType
from typing import Any

from jinja2 import meta, nodes

from tvm_megcc.codegen.c_source.render import environment
from tvm_megcc.kernels.parameters import RENDERED, Parameters, Scope
from tvm_megcc.target import Isa

KERNELS = Path(__file__).resolve().parents[1] / "tvm_megcc" / "kernels"
CODEGEN = KERNELS.parent / "codegen" / "templates"
COMMAND = "python scripts/template_heads.py"
WIDTH = 120
_OWN = re.compile(r"Parameters, of (\w+) \(([\w/]+\.py)\):")
_CONTEXT = re.compile(r"Variables, of (\w+) \(([\w/]+\.py)\):")
_COMMON = "In every template (kernels/parameters.py):"


class Unexplained(Exception):
    """A template reads a variable that nothing explains."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="changes nothing; fails if a head is stale")
    check: bool = parser.parse_args().check
    stale = []
    for path in paths():
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


def paths() -> list[Path]:
    """Returns the templates whose heads this script writes."""
    return [*sorted(KERNELS.rglob("*.j2")), *sorted(CODEGEN.rglob("*.j2"))]


def with_head(path: Path) -> str:
    """Returns the text of a template with its list of variables.

    Raises:
        Unexplained: if it reads a variable that is neither of its class nor in the words of its head.
    """
    text = path.read_text(encoding="utf-8")
    is_kernel = path.is_relative_to(KERNELS)
    head = (re.search if is_kernel else re.match)(r"\{#(.*?)#\}", text, re.S)
    if head is None:
        raise Unexplained(f"{path.relative_to(KERNELS.parent).as_posix()} has no comment at its head")
    is_block = head.group(1).startswith("\n")
    indent = "" if is_block else "   "
    words, own = _without_list(head.group(1))
    lines = _list(path, words, own) if is_kernel else _context_list(path, words, _CONTEXT.search(head.group(1)))
    body = words.rstrip()
    if lines:
        width = WIDTH - len(indent)
        body += "\n" + "\n".join(indent + line for entry in lines for line in _wrapped(entry, width))
    body += "\n" if is_block else " "
    return text[:head.start(1)] + body + text[head.end(1):]


def _without_list(comment: str) -> tuple[str, re.Match[str] | None]:
    """Returns what people wrote of a head, and the line that names the class of its parameters."""
    own = _OWN.search(comment) or _CONTEXT.search(comment)
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


def _context_list(path: Path, words: str, context: re.Match[str] | None) -> list[str]:
    """Returns the entries of the list of a template of codegen, each in one line."""
    cls = _named_class(context.group(2), context.group(1)) if context else None
    tree = _parse(path)
    names = set(meta.find_undeclared_variables(tree)) - {"range"}
    known = list(cls.__annotations__) if cls else []
    bound = {node.name for node in tree.find_all(nodes.Name) if node.ctx in ("store", "param")}
    if unknown := sorted(name for name in names - {*known} - bound if not re.search(rf"\b{name}\b", words)):
        raise Unexplained(f"{path.relative_to(KERNELS.parent)} reads {', '.join(unknown)}: name the class of its "
                          "context in the head, as `Variables, of XVariables (codegen/x.py):`")
    lines = [f"  {name}: {attribute_sentence(cls, name)}" for name in known if cls and name in names]
    for (owner, attribute), objects in Reads(tree, cls).found.items():
        names_of_object = [name for name in objects if name.isidentifier()] or objects
        lines.append(f"  {', '.join(f'{name}.{attribute}' for name in names_of_object)}: "
                     f"{attribute_sentence(owner, attribute)}")
    return [context.group(0), *lines] if context and lines else lines


class Reads:
    """The attributes that a template of codegen reads, with the classes that have them.

    found: (class, attribute) -> the expressions in the template whose attribute it is.
    """

    def __init__(self, tree: nodes.Template, context: type | None):
        self.found: dict[tuple[type, str], list[str]] = {}
        hints = typing.get_type_hints(context) if context else {}
        self._types: dict[str, Any] = {name: _without_none(hint) for name, hint in hints.items()}
        self._macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
        #: names of `loop` and of imported templates, whose attributes are not listed
        self._modules = {"loop", *(node.target for node in tree.find_all(nodes.Import))}
        self._is_last = False  # whether the types of all names are known
        for self._is_last in (False, False, False, True):  # a macro may stand before the calls that tell its types
            self._visit(tree)
        classes = list(dict.fromkeys(owner for owner, _ in self.found))
        self.found = {key: self.found[key] for key in sorted(self.found, key=lambda key: classes.index(key[0]))}

    def _visit(self, node: nodes.Node) -> None:
        """Binds the names of a node and of those in it, and notes which attributes they read."""
        if isinstance(node, nodes.For):
            self._bind(node.target, _element(self._type(node.iter)))
        elif isinstance(node, nodes.Assign):
            if isinstance(node.node, nodes.Name) and node.node.name == "loop":
                self._modules.add(_spelled(node.target))
            self._bind(node.target, self._type(node.node))
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in self._macros:
            for parameter, argument in zip(self._macros[node.node.name].args, node.args, strict=False):
                self._bind(parameter, self._type(argument))
        elif isinstance(node, nodes.Getattr):
            self._read(node.node, self._type(node.node), node.attr)
        elif isinstance(node, nodes.Filter) and node.node is not None:
            owner = _element(self._type(node.node))
            for attribute in _attributes_of_filter(node):
                self._read(node.node, owner, attribute, "[…]")
        for child in node.iter_child_nodes():
            self._visit(child)

    def _bind(self, target: nodes.Node, found: Any) -> None:
        if isinstance(target, nodes.Tuple):
            parts = typing.get_args(found) if typing.get_origin(found) is tuple else ()
            for name, part in zip(target.items, (*parts, *[None] * len(target.items)), strict=False):
                self._bind(name, part)
        elif isinstance(target, nodes.Name) and found is not None:
            self._types[target.name] = found

    def _read(self, node: nodes.Expr, owner: Any, attribute: str, item: str = "") -> None:
        if not self._is_last or (isinstance(node, nodes.Name) and node.name in self._modules):
            return
        if owner is None:
            raise Unexplained(f"nothing tells the class of {_spelled(node)}, of which line {node.lineno} reads "
                              f"{attribute}")
        if _has_sentences(owner):
            objects = self.found.setdefault((owner, attribute), [])
            if (text := _spelled(node) + item) not in objects:
                objects.append(text)

    def _type(self, node: nodes.Expr | None) -> Any:
        """Returns the type of an expression; None if it is not known."""
        if isinstance(node, nodes.Name):
            return self._types.get(node.name)
        if isinstance(node, nodes.Getattr):
            return _type_of_attribute(self._type(node.node), node.attr)
        if isinstance(node, nodes.Getitem):
            owner = self._type(node.node)
            return owner if isinstance(node.arg, nodes.Slice) else _item(owner, node.arg)
        if isinstance(node, nodes.Filter):
            return self._type_of_filter(node)
        if isinstance(node, nodes.CondExpr):
            return self._type(node.expr1)
        if isinstance(node, nodes.Add | nodes.Or):
            return self._type(node.left)
        if isinstance(node, nodes.Tuple | nodes.List):
            return tuple[tuple(self._type(item) or Any for item in node.items)]  # type: ignore[misc]
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr == "items":
            return list[tuple[typing.get_args(self._type(node.node.node))]]  # type: ignore[misc]
        return type(node.value) if isinstance(node, nodes.Const) else str

    def _type_of_filter(self, node: nodes.Filter) -> Any:
        given = self._type(node.node)
        if node.name == "map":
            attributes = _attributes_of_filter(node)
            return list[_type_of_attribute(_element(given), attributes[0])] if attributes else list[str]  # type: ignore[misc]
        if node.name in ("first", "last"):
            return _element(given)
        return given if node.name in ("list", "selectattr", "rejectattr", "sort", "unique") else str


def _attributes_of_filter(node: nodes.Filter) -> list[str]:
    """Returns the attributes of the elements that a filter reads."""
    named = [keyword.value for keyword in node.kwargs if keyword.key == "attribute"]
    if node.name in ("selectattr", "rejectattr"):
        named += node.args[:1]
    return [value.value for value in named if isinstance(value, nodes.Const)]


def _spelled(node: nodes.Node) -> str:
    """Returns an expression of a template as it is written."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{_spelled(node.node)}.{node.attr}"
    if isinstance(node, nodes.Getitem):
        return f"{_spelled(node.node)}[{_spelled(node.arg)}]"
    if isinstance(node, nodes.Slice):
        return ":".join("" if end is None else _spelled(end) for end in (node.start, node.stop))
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _spelled(node.node)
    if isinstance(node, nodes.Add):
        return f"({_spelled(node.left)} + {_spelled(node.right)})"
    return str(node.value) if isinstance(node, nodes.Const) else "…"


def _element(found: Any) -> Any:
    """Returns the type of the elements of a sequence, and of the keys of a mapping."""
    arguments = typing.get_args(found)
    return arguments[0] if arguments else None if found is None else str


def _item(owner: Any, index: nodes.Node) -> Any:
    """Returns the type of an item of a sequence or mapping."""
    arguments = typing.get_args(owner)
    if not arguments:
        return None if owner is None else str
    if isinstance(typing.get_origin(owner), type) and issubclass(typing.get_origin(owner), Mapping):
        return arguments[1]
    is_fixed = typing.get_origin(owner) is tuple and Ellipsis not in arguments
    return arguments[index.value if is_fixed and isinstance(index, nodes.Const) else 0]


def _type_of_attribute(owner: Any, name: str) -> Any:
    """Returns the type of an attribute; None if it is not known."""
    if not _has_sentences(owner):
        return None if owner is None else str
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, cached_property):
        hint = typing.get_type_hints(found.func).get("return")
    elif isinstance(found, property) and found.fget:
        hint = typing.get_type_hints(found.fget).get("return")
    else:
        hint = typing.get_type_hints(owner).get(name)
    return _without_none(hint)


def _without_none(hint: Any) -> Any:
    """Returns a type without `| None`."""
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _has_sentences(owner: Any) -> bool:
    """Whether a type is a class of ours, and not one of Python."""
    is_class = isinstance(owner, type) and typing.get_origin(owner) is None
    return is_class and owner.__module__.partition(".")[0] not in sys.stdlib_module_names


def attribute_sentence(cls: type, name: str) -> str:
    """Returns the sentence that explains an attribute: of a property its own, else that of the class.

    Raises:
        Unexplained: if there is none.
    """
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, cached_property | property):
        return first_sentence(found)
    for base in cls.__mro__:
        named = [name, *getattr(base, "__annotations__", ())]
        if base is not object and name in (entries := _entries(inspect.cleandoc(base.__doc__ or ""), named, base)):
            return entries[name][1]
    raise Unexplained(f"{cls.__name__} ({cls.__module__}) does not explain {name}")


def _named_class(file: str, name: str) -> type:
    """Returns a class by its name and by its file, relative to tvm_megcc/."""
    module = importlib.import_module(".".join(("tvm_megcc", *Path(file).with_suffix("").parts)))
    found: type = getattr(module, name)
    return found


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
    return environment().parse(path.read_text(encoding="utf-8"))


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
    """Returns field -> (the names that share a sentence, the sentence), by the docstrings of a dataclass and its bases,
    or of a TypedDict.

    Raises:
        Unexplained: if a field has none.
    """
    names = _fields(cls)
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        if base is cls or is_dataclass(base):
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
    """Returns `field_docs` of the dataclass or the TypedDict with this name and these fields."""
    for module, contents in list(sys.modules.items()):
        cls = getattr(contents, name, None) if module.startswith("tvm_megcc") else None
        if isinstance(cls, type) and {*members} <= {*getattr(cls, "__annotations__", ()), *_fields(cls)}:
            return field_docs(cls)
    raise Unexplained(f"no class {name} has the fields {', '.join(members)}")


def _fields(cls: type) -> list[str]:
    """Returns the fields of a dataclass, or the keys of a TypedDict."""
    return [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls.__annotations__)


def _common() -> dict[str, str]:
    """Returns the sentences of the variables that every template has."""
    return {name: sentence for name, (_, sentence) in field_docs(Scope).items()} | dict(RENDERED)


def _isa(path: Path) -> list[str]:
    """Returns the entries of the attributes of the instruction set that a template reads."""
    return [f"  isa.{member}: {attribute_sentence(Isa, member)}" for member in _members(path, "isa")]


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
