# SPDX-License-Identifier: Apache-2.0
"""Docstrings say what something does in their first words, and public ones have the parts that a caller needs."""

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

import tvm_megcc
import tvm_megcc.api
from tests.unit.project.sources import PACKAGE, definitions, modules
from tvm_megcc import dispatch

#: A docstring has a subject and a verb: "Returns the extents", not "Of an operand" or "What an operand has".
REFUSED = re.compile(r"(Of|What) ")


def docstrings() -> Iterator[tuple[str, str]]:
    """Place and text of each docstring of the package."""
    for path in modules():
        for node in definitions(path):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(PACKAGE.parent)}:{node.body[0].lineno}", text


def test_docstrings_begin_with_their_subject():
    found = list(docstrings())
    assert len(found) > 2000
    wrong = [f"{place} {text[:60]}" for place, text in found if REFUSED.match(text)]
    assert not wrong, "begin with a verb or the thing itself, not with 'Of' or 'What': " + "; ".join(wrong)


def public_functions() -> dict[str, object]:
    """The functions that a caller uses, and the public methods of the classes that they give, by name."""
    found: dict[str, object] = {}
    for name in tvm_megcc.__all__:
        if name in ("build", "build_megcc_kernels", "partition_for_megcc", "tune_megcc_kernels"):
            continue   # these need TVM; they are functions of tvm_megcc.frontends
        value = getattr(tvm_megcc, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            found[name] = value
            found |= {f"{name}.{method}": member for method, member in vars(value).items()
                      if inspect.isfunction(member) and not method.startswith("_")}
        elif inspect.isfunction(value):
            found[name] = value
    found |= {f"dispatch.{name}": member for name, member in vars(dispatch).items()
              if not name.startswith("_") and getattr(member, "__module__", "") == dispatch.__name__
              and (inspect.isfunction(member) or inspect.isclass(member))}
    return found


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_public_docstrings_are_complete(name: str):
    """A docstring that names each parameter, and the errors that the body itself raises."""
    member = public_functions()[name]
    text = inspect.getdoc(member) or ""
    assert text, f"{name} has no docstring"
    assert text.split("\n\n")[0].rstrip().endswith((".", ":")), f"{name}: the first paragraph is a sentence"
    if not inspect.isfunction(member):
        return
    code = inspect.unwrap(member)
    names = [p.name for p in inspect.signature(code).parameters.values()
             if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    lacking = [each for each in names if not re.search(rf"\b{re.escape(each.rstrip('_'))}\b", text)]
    assert not lacking, f"{name}: say what {', '.join(lacking)} is"
    raised = {node.exc.func.id for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(code))))
              if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)}
    unsaid = [each for each in raised if each not in text]
    assert not unsaid, f"{name}: list {', '.join(unsaid)} under 'Raises:'"
