# SPDX-License-Identifier: Apache-2.0
"""What templates are told is typed: a dataclass for a template, whose fields are just the names that it uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cache

import jinja2.meta
import numpy as np
import pytest
from jinja2 import nodes

from tests.kernels.kernel_harness import jobs_of
from tvm_megcc.codegen.c_source.render import environment, render_kernel
from tvm_megcc.context import Context
from tvm_megcc.ir.graph import Attrs, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.kernels.conv2d.geometry import ConvParameters
from tvm_megcc.kernels.elementwise.loops import LoopParameters
from tvm_megcc.kernels.integer.requantize import Requantization
from tvm_megcc.kernels.parameters import Parameters
from tvm_megcc.kernels.site import Site
from tvm_megcc.kernels.support import placements, refusal
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.paths import PACKAGE
from tvm_megcc.target import TARGETS

#: What `codegen/c_source/render.py` tells every template.
GIVEN = {"entry", "isa", "ep", "known", "fixed", "microkernel", "compact", "symbol", "float",
         "stored"}
PLAIN = ConvParameters(3, 3, 1, 1, 1, 1, True)


def lowered() -> Iterator[tuple[str, Parameters]]:
    """What every kernel is lowered to: over all cases of its operators, with vectors and without, and with
    products by fours of bytes, by pairs or of two pixels."""
    for kind, declaration in OPERATORS.items():
        for case in declaration.cases:
            types = tuple(spec and TensorType(spec[1], tuple(spec[0])) for spec in case.inputs)
            op = Op(kind, Attrs(case.attrs), tuple(f"i{n}" if type_ else "" for n, type_ in enumerate(types)), ("y",))
            outputs = declaration.infer(op.attrs, *types)
            known = {index: np.resize(case.values[index], types[index].shape).astype(types[index].dtype)
                     for index in case.constant if index in case.values and types[index]}
            for target in ("c", "x86-64-v4", "x86-64-v4-vnni", "arm64", "arm64-v82", "cortex-m4", "cortex-m55",
                           "riscv64", "riscv64-v"):
                placed = Site(op, types, outputs, Context(TARGETS[target], half=target == "arm64-v82"),
                              frozenset(case.constant), known)
                for kernel in declaration.kernels:
                    for site in placements(placed, kernel):
                        if refusal(site, kernel) is None:
                            call = kernel.lower(site)
                            yield call.template, call.params


@cache
def parameters_of() -> dict[str, set[type]]:
    """Template -> the classes of its parameters."""
    found: dict[str, set[type]] = {}
    for template, parameters in lowered():
        found.setdefault(template, set()).add(type(parameters))
    return found


TEMPLATES = sorted({f"{path.parent.name}/{path.name.split('.')[0]}" for path in (PACKAGE / "kernels").glob("*/*.c.j2")
                    if "{{ entry }}" in path.read_text()})


def names_in(template: str) -> tuple[set[str], set[str]]:
    """Names that a template, its overrides for an ISA and the templates that they import use, and those that one of
    them defines or asks whether they are defined."""
    used: set[str] = set()
    defined: set[str] = set()
    folder, name = template.split("/")
    pending = [f"{folder}/{path.name}" for path in (PACKAGE / "kernels" / folder).glob(f"{name}.*")]
    seen = set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        text = environment().loader.get_source(environment(), path)[0]
        tree = environment().parse(text)
        used |= jinja2.meta.find_undeclared_variables(tree)
        defined |= {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
        defined |= {node.name for node in tree.find_all(nodes.Macro)}
        defined |= {node.target for node in tree.find_all(nodes.Import)}
        defined |= {node.node.name for node in tree.find_all(nodes.Test) if node.name == "defined"}
        pending += [other for other in jinja2.meta.find_referenced_templates(tree) if other]
    return used, defined


#: Modules of what templates call `microkernel`, beside `conv2d/geometry`, which makes its window.
MICROKERNELS = {"integer/dot": ("integer/dot_microkernel", "integer/neon_sums"),
                "conv2d/depthwise": ("conv2d/depthwise_tile",), "conv2d/direct": ("conv2d/register_tile",),
                "conv2d/pixels": ("conv2d/pixel_tile",), "matmul/panel": ("matmul/packed",),
                "integer/panel": ("integer/panel",), "conv2d/winograd": ("conv2d/winograd", "conv2d/winograd_tile"),
                "attention/columns": ("attention/tiles",), "attention/few_queries": ("attention/tiles",),
                "rnn/steps": ("rnn/steps_tile",), "matmul/nbits_int8": ("matmul/nbits_int8_tile",),
                "matmul/nbits_rows": ("matmul/nbits_rows_tile",),
                "matmul/nbits_int8_arm": ("matmul/nbits_int8_arm_tile",),
                **{f"integer_depthwise/depthwise{name}": ("integer_depthwise/tiles",)
                   for name in ("", "_pairs", "_quads", "_int16", "_dot4", "_wide")}}


def read_by_microkernel(template: str) -> set[str]:
    """Attributes that these modules read."""
    texts = [(PACKAGE / "kernels" / f"{name}.py").read_text()
             for name in ("conv2d/geometry", *MICROKERNELS.get(template, ()))]
    return {node.attr for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}


def test_every_template_is_told_something_by_a_case():
    """So that the tests below see them all; and none is left over."""
    assert set(TEMPLATES) == parameters_of().keys()


@pytest.mark.parametrize("template", TEMPLATES)
def test_fields_are_what_the_template_uses(template):
    (cls,) = parameters_of()[template]
    names = {field.name for field in fields(cls)}
    used, defined = names_in(template)
    printed = names & read_by_microkernel(template) if "microkernel" in used else set()
    assert names <= used | printed, f"no template uses {names - used - printed}"
    assert used - defined <= names | GIVEN, f"nobody says what {used - defined - names - GIVEN} are"


def test_values_have_their_types():
    with pytest.raises(TypeError, match=r"ConvParameters\.kh is '3', not of"):
        replace(PLAIN, kh="3")
    with pytest.raises(TypeError, match=r"ConvParameters\.kh is True"):
        replace(PLAIN, kh=True)
    with pytest.raises(FrozenInstanceError):
        PLAIN.kh = 5


def test_they_are_an_identity():
    assert PLAIN == replace(PLAIN) and hash(PLAIN) == hash(replace(PLAIN)) and PLAIN != replace(PLAIN, bias=False)


@dataclass(frozen=True)
class Told(Parameters):
    names: tuple[str, ...]
    varies: tuple[tuple[bool, ...], ...]
    windows: tuple[tuple[str, int], ...]
    zero: int
    flag: bool
    other: bool
    formula: str = field(repr=False)


@dataclass(frozen=True)
class Said(LoopParameters):
    said: tuple[str, ...]


@dataclass(frozen=True)
class Closed(Parameters):
    requantization: Requantization


def test_facts():
    told = Told(("x0", "x1"), ((True, False), (True, True)), (("H", 3), ("W", 2)), 0, True, False, "a0 + a1")
    assert told.facts() == ("names = x0 x1", "varies = 10 11", "windows = (H 3) (W 2)", "zero = 0", "flag")
    assert PLAIN.facts() == ("kernel = 3x3", "stride = 1x1", "dilation = 1x1", "bias")


def test_facts_of_a_part():
    """In words, not as Python writes a value."""
    told = Closed(Requantization("fixed", "e1[c]", "-7", int8_shifts=True, zero=-1, lower=-128, upper=127))
    assert told.facts() == (
        "requantization = kind fixed multiplier e1[c] shift -7 int8_shifts zero -1 lower -128 upper 127",)


def test_the_head_of_a_kernel_lists_them():
    """As many as there are, in lines that fit; and no text gets out of the comment."""
    spec = next(jobs_of("add", OPERATORS["add"].cases[0], 0, TARGETS["c"], "speed")).bound.spec
    assert "\n * names = x0 x1, varies = 1" in render_kernel(spec)
    names = (*(f"name_{n}" for n in range(50)), "*/ int x; /*", "a" * 300, "\n#include <x>", "b\\")
    text = render_kernel(replace(spec, params=Said(**vars(spec.params), said=names)))
    head = text[:text.index('\n#include "kernels.h"')]
    assert all(line.startswith(("/* ", " * ", " */")) and len(line) <= 120 for line in head.split("\n"))
    assert head.count("*/") == 1 == head.count("/*") and "name_0 name_1" in head and "name_49" in head
    assert not any(sign in head for sign in '\\<>?"')
