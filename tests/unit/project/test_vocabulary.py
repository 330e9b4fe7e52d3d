# SPDX-License-Identifier: Apache-2.0
"""Names in the words of the field: the table of docs/glossary.md says which, and how often each other word is left."""

import ast
import collections
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.project.sources import PACKAGE, definitions, modules

GLOSSARY = PACKAGE.parent / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (?P<word>[^|]+) \| (?P<source>[^|]+) \| (?P<others>[^|]+) \| (?P<left>\d+) \|$", re.MULTILINE)


def names() -> Iterator[tuple[str, Path]]:
    """Every module, class, function and parameter of the package, and every template; no deprecated aliases."""
    for path in modules():
        yield path.stem, path
        for node in definitions(path):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                if not (ast.get_docstring(node) or "").startswith("Deprecated: "):
                    yield node.name, path
            elif isinstance(node, ast.arg):
                yield node.arg, path
            if isinstance(node, ast.ClassDef):
                yield from ((field.target.id, path) for field in node.body
                            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name))
    for path in PACKAGE.rglob("*.j2"):
        yield path.name.partition(".")[0], path


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+\d*|\d+", name)}


def test_names_are_words_of_the_field():
    rows = list(_ROW.finditer(GLOSSARY.read_text()))
    assert len(rows) > 5
    found = collections.defaultdict(list)
    for name, path in names():
        for word in words_of(name):
            found[word].append(f"{name} in {path.relative_to(PACKAGE)}")
    for row in rows:
        left = [place for other in row["others"].split(", ") for place in found[other]]
        assert len(left) <= int(row["left"]), (
            f"say '{row['word']}' for {row['others']} (docs/glossary.md): {'; '.join(sorted(left))}")


def _prose() -> Iterator[tuple[str, Path]]:
    """The docstrings and comments of the package and the runtime, each as one line."""
    for path in sorted(path for folder in (PACKAGE, PACKAGE.parent / "c_runtime") for path in folder.rglob("*")):
        if path.suffix == ".py":
            text = path.read_text()
            for node in definitions(path):
                if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
                    yield ast.get_docstring(node) or "", path
            found = re.findall(r"(?:^[ \t]*#:? .*\n)+", text, re.MULTILINE)
            yield from ((re.sub(r"\n?[ \t]*#:? ", " ", comment).strip(), path) for comment in found)
        elif path.suffix in (".c", ".h", ".j2"):
            for comment in re.findall(r"/\*(.*?)\*/|\{#(.*?)#\}", path.read_text(), re.DOTALL):
                yield re.sub(r"\s+\*?\s*", " ", "".join(comment)).strip(), path


@functools.cache
def prose() -> tuple[tuple[str, Path], ...]:
    return tuple(_prose())


def variables(path: Path) -> set[str]:
    """Names that a file of the package binds."""
    return {node.id for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def test_variables_say_what_they_are():
    """Not that a value was made, or is kept, or belongs to something: what it is."""
    vague = {"made", "held", "skewed", "weighed", "listed", "apart", "less"}
    wrong = [f"{path.relative_to(PACKAGE)}: {', '.join(sorted(found))}" for path in sorted(PACKAGE.rglob("*.py"))
             if (found := variables(path) & vague)]
    assert not wrong, "\n".join(wrong)


def test_sentences_begin_with_their_subject():
    """Not with `Of those …`, and not with a clause such as `What is left is …`."""
    wrong = [f"{path.relative_to(PACKAGE.parent)}: {' '.join(text.split())[:80]}" for text, path in prose()
             if re.search(r"(?:^|[.;:] )(?:Of|What) [a-z]", " ".join(text.split()))]
    assert not wrong, "\n".join(wrong)


def test_prose_is_in_words_of_the_field():
    """`strings` for texts, `floats` for reals, `int4` for nibbles."""
    others = re.compile(r"\b(?:texts|reals|nibbles)\b")
    wrong = [f"{path.relative_to(PACKAGE.parent)}: {' '.join(text.split())[:80]}" for text, path in prose()
             if others.search(re.sub(r"`[^`]*`", "", text))]
    assert not wrong, "\n".join(wrong)
