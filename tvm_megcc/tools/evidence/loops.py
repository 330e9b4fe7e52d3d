# SPDX-License-Identifier: Apache-2.0
"""The most iterations of every loop of a C function, by abstract interpretation of its text over ranges of integers.

The walk follows the statements in order with a range for each integer variable. Where paths meet it takes the least
range of both, and conditions narrow the ranges of their branches (conditions.py). In a loop, a variable that only grows
is at least what it was before, and at most that and its largest steps in all iterations; the loop forgets the other
variables that it changes. So every range holds in every run (P. Cousot and R. Cousot, "Abstract interpretation", POPL
1977, with the widest widening). Calls of functions in the same text are walked with the ranges of their arguments.
Memory is unknown but for constant tables, and so are pointers, except for differences such as that of `end` and `p`
after `end = p + n`.

The text is that of the target's own preprocessor. pycparser reads C99, so GNU's attributes are removed first, and an
assembler statement makes its outputs unknown. A loop in assembler has at most as many iterations as the parameter
`n` of its function says, by the convention of c_runtime/include/simd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pycparser import c_ast, c_generator, c_parser

from .changes import LOOPS, changes, changing, literal, nodes, step_of, steps_of_all_iterations
from .conditions import element_type, memory_key, narrow, type_names
from .induction import induction_variables, joined
from .ranges import BOOLEAN, Range, binary, known, union
from .tables import Table, element, tables

#: Text up to a closing parenthesis, with strings and at most two levels of parentheses in it.
_NESTED = r"(?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\))*"
_ASSEMBLER = re.compile(rf"\b(?:__asm__|__asm|asm)\b\s*(?:volatile|__volatile__)?\s*\(({_NESTED})\)")
_ATTRIBUTE = re.compile(rf"\b__attribute__\s*\(({_NESTED})\)")
_KEYWORDS = re.compile(r"\b__(?:inline|restrict|extension|const|volatile)(?:__)?\b")
_BUILTIN_TYPE = re.compile(r"\b__builtin_va_list\b")
#: A branch back to a numbered label of an assembler statement, which is a loop.
_BACKWARDS = re.compile(r"\bb[a-z]* (?:\w+, ){0,2}\d+b\b")
#: The call that `plain_c` writes in place of an assembler statement: its number of loops, and the addresses of its
#: outputs.
_MARKER = "__assembler_statement"
#: How deep calls are walked.
_DEEPEST = 12
#: As many iterations are no bound: only the type of a variable limits it.
_NO_BOUND = 1 << 29
#: Types whose arithmetic wraps below zero; narrower unsigned types are converted to int.
_UNSIGNED = ("unsigned", "uint32_t", "uint64_t", "size_t", "uintptr_t")


@dataclass(frozen=True)
class Loop:
    """A loop.

    function: the function that it stands in.
    place: file and line.
    head: its text.
    at_most: the most iterations each time that it is reached; None: unknown. It is None for a `goto` too, which may be
        a loop.
    """

    function: str
    place: str
    head: str
    at_most: int | None


@dataclass
class _Found:
    """A loop, and the most iterations so far, over all calls of its function."""

    function: str
    node: c_ast.Node
    at_most: int | None = 0


def loops(preprocessed: str, entry: str | Sequence[str], arguments: Mapping[str, Range],
          fields: Mapping[str, Range] = MappingProxyType({})) -> list[Loop]:
    """Returns the loops that a function reaches, or several, in the order of the text.

    Args:
        preprocessed: C with line markers, as `gcc -E` prints it.
        entry: the name of the function, or of each.
        arguments: the ranges of its parameters; others are unknown.
        fields: the ranges of members of structs, by the end of the expression that reads one, such as "rows[0].count",
            and of results of functions, such as "count_of()", where the text does not tell them.

    Raises:
        ValueError: if the text is not C99, or has no such function.
    """
    entries = [entry] if isinstance(entry, str) else list(entry)
    try:
        tree = c_parser.CParser().parse(plain_c(preprocessed), "<preprocessed>")
    except Exception as error:  # pycparser's ParseError differs between versions
        raise ValueError(f"the preprocessed text is not C99: {error}") from None
    functions = {node.decl.name: node for node in tree.ext if isinstance(node, c_ast.FuncDef)}
    if missing := next((name for name in entries if name not in functions), None):
        raise ValueError(f"there is no function {missing}")
    walk = Walk(functions, _constants(tree), tables(tree), fields)
    for name in entries:
        walk.call(name, dict(arguments))
    printer = c_generator.CGenerator()
    rows = [Loop(row.function, f"{row.node.coord.file}:{row.node.coord.line}", _head(printer, row.node), row.at_most)
            for row in walk.found.values()]
    return sorted(rows, key=lambda loop: (loop.function not in entries, loop.function,
                                          int(loop.place.rpartition(":")[2])))


def plain_c(text: str) -> str:
    """Returns C99 without GNU's attributes and assembler, with as many lines."""
    def outputs(match: re.Match[str]) -> str:
        names = re.findall(r'"[=+][^"]*"\s*\((\w+)\)', match[1])
        loops_within = len(_BACKWARDS.findall(re.sub(r"\\[nt]", " ", match[1])))
        return f"{_MARKER}({loops_within}{''.join(f', &{name}' for name in names)})" + "\n" * match[0].count("\n")

    text = _ATTRIBUTE.sub(lambda match: "\n" * match[0].count("\n"), _ASSEMBLER.sub(outputs, text))
    return _BUILTIN_TYPE.sub("int", _KEYWORDS.sub("", text))


def _constants(tree: c_ast.FileAST) -> dict[str, int]:
    """Returns the constants of enumerations, but for names that have several values."""
    found: dict[str, set[int]] = {}
    for node in nodes(tree):
        enum = node if isinstance(node, c_ast.Enum) else None
        following = 0
        for row in (enum.values.enumerators if enum is not None and enum.values else ()):
            value = literal(row.value) if row.value is not None else following
            if value is None:
                break
            found.setdefault(row.name, set()).add(value)
            following = value + 1
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _head(printer: c_generator.CGenerator, node: c_ast.Node) -> str:
    def text(part: c_ast.Node | None) -> str:
        return "" if part is None else str(printer.visit(part)).strip()

    if isinstance(node, c_ast.FuncCall):
        return "loop in assembler"
    if isinstance(node, c_ast.Goto):
        return f"goto {node.name}"
    if isinstance(node, c_ast.For):
        return f"for ({text(node.init)}; {text(node.cond)}; {text(node.next)})"
    return f"{'do … ' if isinstance(node, c_ast.DoWhile) else ''}while ({text(node.cond)})"


#: The ranges of variables by name, and of differences of pointers by (minuend, subtrahend).
_Ranges = dict[Any, Range]


def _assign(ranges: _Ranges, name: str, value: Range) -> None:
    """Gives a variable a new range, and forgets its differences to others."""
    for key in [key for key in ranges if isinstance(key, tuple) and name in key]:
        del ranges[key]
    ranges[name] = value


@dataclass
class Walk:
    """The walk over the functions of a text.

    functions: name -> definition.
    constants: name -> value.
    tables: the constant arrays of integers.
    fields: the ranges of members of structs, by the end of the expression, and of results of functions.
    found: the loops so far, by place in the tree.
    stack: the functions that are being walked, outermost first.
    returned: the ranges that the innermost one returns, one for each `return` so far.
    types: the types of its variables.
    exposed: its variables whose values may change through pointers, so they are never known.
    seen: (function, ranges of its arguments) -> the range of its result.
    steps: the ranges of the numbers that `+=` and `-=` add to variables, by place in the tree.
    narrows_memory: whether a condition holds that has narrowed elements of memory.
    """

    functions: Mapping[str, c_ast.FuncDef]
    constants: Mapping[str, int]
    tables: Mapping[str, Table]
    fields: Mapping[str, Range]
    found: dict[int, _Found] = field(default_factory=dict)
    stack: list[str] = field(default_factory=list)
    returned: list[Range] = field(default_factory=list)
    types: dict[str, c_ast.Node] = field(default_factory=dict)
    exposed: set[str] = field(default_factory=set)
    seen: dict[tuple[Any, ...], Range] = field(default_factory=dict)
    steps: dict[int, Range] = field(default_factory=dict)
    narrows_memory: bool = False

    def call(self, name: str, ranges: _Ranges) -> Range:
        """Walks a function. Returns the range of its result. ranges: those of its arguments by parameter."""
        if name in self.stack:  # recursion, which is another property of the evidence
            return None
        if len(self.stack) >= _DEEPEST:
            self.record_unknown(name)
            return None
        key = (name, tuple(sorted((variable, value) for variable, value in ranges.items() if value)))
        if key not in self.seen:
            kept = self.returned, self.types, self.exposed
            declared = self.functions[name].decl.type
            parameters = declared.args.params if declared.args else ()
            self.returned, self.types = [], {parameter.name: parameter.type for parameter in parameters
                                             if isinstance(parameter, c_ast.Decl)}
            self.exposed = _exposed(self.functions[name].body)
            self.stack.append(name)
            arguments = {parameter: _converted(value, self.types[parameter]) if parameter in self.types else value
                         for parameter, value in ranges.items()}
            self.statement(self.functions[name].body, arguments)
            self.stack.pop()
            result = self.returned[0] if self.returned else None
            for value in self.returned[1:]:
                result = union(result, value)
            result = _converted(result, declared.type)
            self.returned, self.types, self.exposed = kept
            self.seen[key] = result
        return self.seen[key]

    def record_unknown(self, name: str) -> None:
        """Notes the loops of a function that is not walked, and of those that it calls, as loops without a bound."""
        waiting, reached = [name], set()
        while waiting:
            function = waiting.pop()
            if function in reached or function not in self.functions:
                continue
            reached.add(function)
            for node in nodes(self.functions[function].body):
                if isinstance(node, (*LOOPS, c_ast.Goto)):
                    self.found.setdefault(id(node), _Found(function, node)).at_most = None
                elif isinstance(node, c_ast.FuncCall) and isinstance(node.name, c_ast.ID):
                    waiting.append(node.name.name)

    def is_unsigned(self, node: c_ast.Node) -> bool:
        """Whether the arithmetic of an expression may be unsigned."""
        for part in nodes(node):
            if isinstance(part, c_ast.ID) and part.name in self.types:
                names = type_names(self.types[part.name])
            elif isinstance(part, c_ast.Cast):
                names = type_names(part.to_type)
            elif isinstance(part, c_ast.FuncCall) and getattr(part.name, "name", "") in self.functions:
                names = type_names(self.functions[part.name.name].decl.type.type)
            elif isinstance(part, c_ast.Constant) and "u" in part.value.lower() and "int" in part.type:
                names = list(_UNSIGNED)
            elif isinstance(part, c_ast.ArrayRef):
                type_ = element_type(self, part)
                names = list(_UNSIGNED) if type_ is None else type_names(type_)
            else:
                continue
            if set(names) & set(_UNSIGNED):
                return True
        return False

    # --- statements: they change `ranges`, the range of each variable ---------------------------------------------

    def statement(self, node: c_ast.Node | None, ranges: _Ranges) -> None:
        if node is None:
            return
        if isinstance(node, c_ast.Compound):
            for part in node.block_items or ():
                self.statement(part, ranges)
        elif isinstance(node, LOOPS):
            self.loop(node, ranges)
        elif isinstance(node, c_ast.Goto):
            self.record(node, None)
        elif isinstance(node, c_ast.If):
            self.branch(node, ranges)
        elif isinstance(node, (c_ast.Switch, c_ast.Label, c_ast.Case, c_ast.Default)):
            self.forget(node, ranges)
            for _, part in node.children():
                self.statement(part, dict(ranges))
        elif isinstance(node, c_ast.DeclList):
            for part in node.decls:
                self.statement(part, ranges)
        elif isinstance(node, c_ast.Decl):
            self.types[node.name] = node.type
            value = self.value(node.init, ranges) if node.init is not None else None
            _assign(ranges, node.name, _converted(value, node.type))
            self.difference(node.name, node.init, ranges)
        elif isinstance(node, c_ast.Return):
            self.returned.append(self.value(node.expr, ranges) if node.expr is not None else None)
        else:
            self.value(node, ranges)

    def forget(self, node: c_ast.Node | None, ranges: _Ranges) -> None:
        """Makes the variables that a statement changes unknown."""
        for name in changes(node):
            _assign(ranges, name, None)

    def branch(self, node: c_ast.If, ranges: _Ranges) -> None:
        truth = self.value(node.cond, ranges)
        outcomes = []
        may_hold = truth != (0, 0)
        may_fail = truth is None or truth[0] <= 0 <= truth[1]
        for possible, part in ((may_hold, node.iftrue), (may_fail, node.iffalse)):
            if possible:
                after = dict(ranges)
                narrow(self, node.cond, part is node.iftrue, after)
                self.statement(part, after)
                if not _leaves(part):
                    outcomes.append(after)
        if outcomes:    # else no path leads to the next statement
            for name in list(ranges):
                value = outcomes[0].get(name)
                for other in outcomes[1:]:
                    value = union(value, other.get(name))
                ranges[name] = value

    def loop(self, node: c_ast.Node, ranges: _Ranges) -> None:
        if isinstance(node, c_ast.DoWhile) and literal(node.cond) == 0:     # the statement of a macro
            self.once(node.stmt, ranges)
            return
        inner = dict(ranges)
        if isinstance(node, c_ast.For):
            self.statement(node.init, inner)
        changers = changing(node.stmt)
        for name, parts in [*changing(node.cond).items(), *changing(getattr(node, "next", None)).items()]:
            changers[name] = changers.get(name, []) + parts
        changers |= {name: changers.get(name, []) for name in self.exposed}
        begin = dict(inner)
        for name in changers:
            _assign(inner, name, None)
        inductions = induction_variables(self, node, begin, inner, changers)
        inner |= {name: row.any_time for name, row in inductions.items()}
        steps: dict[str, Sequence[Range]] = {
            name: inductions[name].steps if name in inductions else [None] if name in self.exposed else
            [None if (step := step_of(part)) is None else (step, step) for part in parts]
            for name, parts in changers.items()}
        most, counter = _most(self, node, begin, inner, steps)
        self.record(node, most)
        inner |= {name: row.after(most) for name, row in inductions.items()}
        if counter:
            inner[counter.name] = joined(counter.at_start, inner[counter.name])
        if most != 0:
            self.iteration(node, dict(inner))
        started = dict(inner)   # as an iteration starts
        narrow(self, node.cond, True, started)
        for name in changers:
            found = inductions.get(name)
            at_end = joined(found.after(most), found.next(started[name])) if found else None
            if counter and counter.name == name and name in ranges:
                at_end = joined(counter.at_end, at_end)
            _assign(ranges, name, union(begin.get(name), at_end))

    def once(self, body: c_ast.Node, ranges: _Ranges) -> None:
        """Walks a body that runs once, and may end early by `break` or `continue`."""
        if any(isinstance(part, (c_ast.Break, c_ast.Continue)) for part in nodes(body)):
            self.statement(body, dict(ranges))
            self.forget(body, ranges)
        else:
            self.statement(body, ranges)

    def iteration(self, node: c_ast.Node, ranges: _Ranges) -> None:
        """Walks an iteration of a loop. ranges: those at its start, before the condition."""
        if isinstance(node, c_ast.DoWhile):
            self.statement(node.stmt, ranges)
            self.value(node.cond, ranges)
            return
        self.value(node.cond, ranges)
        narrow(self, node.cond, True, ranges)
        self.statement(node.stmt, ranges)
        if isinstance(node, c_ast.For) and node.next is not None:
            self.value(node.next, ranges)

    def record(self, node: c_ast.Node, most: int | None) -> None:
        """Notes the most iterations of a loop in one call of its function."""
        if most is not None and most >= _NO_BOUND:
            most = None
        row = self.found.setdefault(id(node), _Found(self.stack[-1], node))
        row.at_most = None if most is None or row.at_most is None else max(row.at_most, most)

    # --- expressions ----------------------------------------------------------------------------------------------

    def value(self, node: c_ast.Node | None, ranges: _Ranges) -> Range:
        """Returns the range of an expression, and walks the functions that it calls."""
        number = literal(node) if node is not None else None
        if number is not None:
            return number, number
        if isinstance(node, c_ast.ID) and node.name in self.exposed:
            return None
        if isinstance(node, c_ast.ArrayRef):
            return self.element(node, ranges)
        if isinstance(node, c_ast.StructRef):
            return self.field_of_struct(node, ranges)
        if isinstance(node, c_ast.ID):
            constant = self.constants.get(node.name)
            return ranges.get(node.name, None if constant is None else (constant, constant))
        if isinstance(node, c_ast.BinaryOp) and node.op in ("&&", "||"):
            self.value(node.left, ranges)
            self.value_in_some_cases(node.right, ranges)
            return BOOLEAN
        if isinstance(node, c_ast.BinaryOp):
            operands = self.value(node.left, ranges), self.value(node.right, ranges)
            result = binary(node.op, *operands)
            wraps = result is not None and not 0 <= result[0] <= result[1] < 1 << 32
            if node.op in ("<", "<=", ">", ">=") or wraps:
                return self.unsigned_result(node, result, operands)
            return result
        if isinstance(node, c_ast.UnaryOp):
            return self.unary(node, ranges)
        if isinstance(node, c_ast.TernaryOp):
            return self.choice(node, ranges)
        if isinstance(node, c_ast.Cast):
            return _converted(self.value(node.expr, ranges), node.to_type)
        if isinstance(node, c_ast.Assignment):
            value = self.value(node.rvalue, ranges)
            if isinstance(node.lvalue, c_ast.ID):
                name = node.lvalue.name
                if node.op in ("+=", "-="):
                    step = value if node.op == "+=" else _negated(value)
                    self.steps[id(node)] = union(self.steps[id(node)], step) if id(node) in self.steps else step
                value = value if node.op == "=" else binary(node.op[:-1], ranges.get(name), value)
                _assign(ranges, name, _converted(value, self.types[name]) if name in self.types else value)
                if node.op == "=":
                    self.difference(name, node.rvalue, ranges)
                return ranges[name]
            self.value(node.lvalue, ranges)
            return value
        if isinstance(node, c_ast.FuncCall):
            return self.called(node, ranges)
        for _, part in node.children() if node is not None else ():
            self.statement(part, ranges)
        return None

    def field_of_struct(self, node: c_ast.StructRef, ranges: _Ranges) -> Range:
        """Returns the range of a member, if it is one of those given."""
        self.value(node.name, ranges)
        if not self.fields:
            return None
        text = re.sub(r"->", ".", c_generator.CGenerator().visit(node))
        return next((found for end, found in self.fields.items() if f".{text}".endswith(f".{end}")), None)

    def element(self, node: c_ast.ArrayRef, ranges: _Ranges) -> Range:
        """Returns the range of an element of a constant table, or of one that a condition has narrowed."""
        if self.narrows_memory and (key := memory_key(node)) in ranges:
            return ranges[key]
        subscripts: list[Range] = []
        array: c_ast.Node = node
        while isinstance(array, c_ast.ArrayRef):
            subscripts.insert(0, self.value(array.subscript, ranges))
            array = array.name
        if not isinstance(array, c_ast.ID):
            self.value(array, ranges)
        elif array.name in self.tables:
            return element(self.tables[array.name],
                           [row[0] if row and row[0] == row[1] else None for row in subscripts])
        return None

    def value_in_some_cases(self, node: c_ast.Node, ranges: _Ranges) -> Range:
        """Returns the range of an expression that is not always computed, and forgets the variables that it changes."""
        value = self.value(node, dict(ranges))
        self.forget(node, ranges)
        return value

    def unsigned_result(self, node: c_ast.BinaryOp, result: Range, operands: tuple[Range, Range]) -> Range:
        """Returns the range of a comparison, or of a result that 32 bits without a sign do not hold: unsigned
        arithmetic wraps, and converts negative operands."""
        if not self.is_unsigned(node):
            return result
        if node.op not in ("<", "<=", ">", ">="):
            return None
        return result if all(operand and operand[0] >= 0 for operand in operands) else BOOLEAN

    def difference(self, name: str, node: c_ast.Node | None, ranges: _Ranges) -> None:
        """Notes the difference of two variables after an assignment such as `name = other + n`."""
        if isinstance(node, c_ast.BinaryOp) and node.op == "+" and isinstance(node.left, c_ast.ID) \
                and not any(isinstance(part, c_ast.ID) and part.name == name for part in nodes(node)):
            ranges[name, node.left.name] = self.value(node.right, ranges)

    def unary(self, node: c_ast.UnaryOp, ranges: _Ranges) -> Range:
        if node.op == "sizeof":
            return None
        value = self.value(node.expr, ranges)
        if node.op in ("++", "p++", "--", "p--"):
            after = binary("+" if "+" in node.op else "-", value, (1, 1))
            if isinstance(node.expr, c_ast.ID):
                name = node.expr.name
                _assign(ranges, name, _converted(after, self.types[name]) if name in self.types else after)
            return value if node.op[0] == "p" else after
        if node.op == "-":
            return binary("-", (0, 0), value)
        if node.op == "!":
            return binary("==", value, (0, 0))
        return value if node.op == "+" else None

    def choice(self, node: c_ast.TernaryOp, ranges: _Ranges) -> Range:
        """Returns the range of `condition ? a : b`, which is often a minimum or a maximum."""
        truth = self.value(node.cond, ranges)
        first, second = (self.chosen(node, part, ranges) for part in (node.iftrue, node.iffalse))
        if truth in ((1, 1), (0, 0)):
            return first if truth == (1, 1) else second
        if isinstance(node.cond, c_ast.BinaryOp) and node.cond.op in ("<", "<=", ">", ">="):
            printer = c_generator.CGenerator()
            left, right, one, other = (printer.visit(part) for part in (node.cond.left, node.cond.right, node.iftrue,
                                                                        node.iffalse))
            if {left, right} == {one, other}:
                sides = (self.value(part, dict(ranges)) for part in (node.iftrue, node.iffalse))
                least = (node.cond.op[0] == "<") == (left == one)
                return joined(union(first, second), (_least if least else _greatest)(*sides))
        return union(first, second)

    def chosen(self, node: c_ast.TernaryOp, part: c_ast.Node, ranges: _Ranges) -> Range:
        """Returns the range of one side of `condition ? a : b`, where the condition says which one it is."""
        inner, kept = dict(ranges), self.narrows_memory
        writes = any(isinstance(each, (c_ast.FuncCall, c_ast.Assignment)) for each in nodes(node))
        narrow(self, node.cond, part is node.iftrue, inner, memory=not writes)
        self.narrows_memory = not writes
        value = self.value(part, inner)
        self.narrows_memory = kept
        self.forget(part, ranges)
        return value

    def called(self, node: c_ast.FuncCall, ranges: _Ranges) -> Range:
        arguments = node.args.exprs if node.args is not None else []
        values = [self.value(argument, ranges) for argument in arguments]
        self.forget(node.args, ranges)
        kept, self.narrows_memory = self.narrows_memory, False
        result = self.result(node, values, ranges)
        self.narrows_memory = kept
        return result

    def result(self, node: c_ast.FuncCall, values: Sequence[Range], ranges: _Ranges) -> Range:
        """Walks a function that is called with such values."""
        name = node.name.name if isinstance(node.name, c_ast.ID) else ""
        if name == _MARKER and values[0] != (0, 0):
            n = ranges.get("n")
            self.record(node, max(0, n[1]) if n else None)
        if name not in self.functions:
            return None
        parameters = self.functions[name].decl.type.args
        names = [parameter.name for parameter in (parameters.params if parameters else ()) if parameter.name]
        found = self.call(name, dict(zip(names, values, strict=False)))
        return self.fields.get(f"{name}()") if found is None else found


def _exposed(body: c_ast.Node) -> set[str]:
    """Returns the variables of a function whose addresses are kept. An address that is an argument is not: `called`
    forgets the value that the function may have written there."""
    calls = [part for part in nodes(body) if isinstance(part, c_ast.FuncCall) and part.args is not None]
    arguments = {id(argument) for call in calls for argument in call.args.exprs}
    return {part.expr.name for part in nodes(body) if isinstance(part, c_ast.UnaryOp) and part.op == "&"
            and isinstance(part.expr, c_ast.ID) and id(part) not in arguments}


def _leaves(node: c_ast.Node | None) -> bool:
    """Returns whether a statement has no next one, since it ends the function or the iteration of a loop."""
    if isinstance(node, c_ast.Compound):
        return bool(node.block_items) and _leaves(node.block_items[-1])
    return isinstance(node, (c_ast.Return, c_ast.Continue, c_ast.Break))


def _least(a: Range, b: Range) -> Range:
    return known(min(a[0], b[0]), min(a[1], b[1])) if a and b else None


def _negated(a: Range) -> Range:
    return (-a[1], -a[0]) if a else None


def _greatest(a: Range, b: Range) -> Range:
    return known(max(a[0], b[0]), max(a[1], b[1])) if a and b else None


def _converted(value: Range, type_: c_ast.Node) -> Range:
    """Returns the range after a conversion: unknown if the type does not hold it, or is not one of integers."""
    names = type_names(type_)
    if {"float", "double"} & set(names):
        return None
    unsigned = any(name.startswith(("uint", "unsigned", "size_t")) for name in names)
    bits = next((int(size[0]) for name in names if (size := re.findall(r"int(\d+)_t", name))), 32 if names else 64)
    lower, upper = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)
    return value if value and lower <= value[0] and value[1] <= upper else None


def _conditions(walk: Walk, node: c_ast.Node | None, inner: _Ranges) -> Iterator[c_ast.Node]:
    """Yields the parts of a condition that all hold. inner: the ranges in every iteration."""
    if isinstance(node, c_ast.BinaryOp) and node.op == "&&":
        yield from _conditions(walk, node.left, inner)
        yield from _conditions(walk, node.right, inner)
    elif isinstance(node, c_ast.BinaryOp) and node.op == "||":
        otherwise = dict(inner)
        narrow(walk, node.left, False, otherwise)
        if walk.value(node.right, otherwise) == (0, 0):     # it never holds without the left part
            yield from _conditions(walk, node.left, inner)
    elif node is not None:
        yield node


@dataclass(frozen=True)
class _Counter:
    """The variable that bounds a loop.

    at_start: its range when an iteration starts, before the condition is computed.
    at_end: its range after the loop, unless no iteration took place.
    """

    name: str
    at_start: Range = None
    at_end: Range = None


def _most(walk: Walk, node: c_ast.Node, begin: _Ranges, inner: _Ranges,
          changed: Mapping[str, Sequence[Range]]) -> tuple[int | None, _Counter | None]:
    """Returns the most iterations of a loop, and its counter; None if they are unknown.

    Args:
        begin: the ranges before the first iteration.
        inner: those in every iteration, in which variables that the loop changes are unknown.
        changed: the variables that it changes, and the range of the number that each change adds.
    """
    best: tuple[int | None, _Counter | None] = (None, None)
    every_iteration = steps_of_all_iterations(node)
    for part in _conditions(walk, node.cond, inner):
        found = _counted(walk, node, part, begin, inner, changed)
        if found and found[1].name in every_iteration and (best[0] is None or found[0] < best[0]):
            best = found
    return best


def _counted(walk: Walk, node: c_ast.Node, part: c_ast.Node, begin: _Ranges, inner: _Ranges,
             changed: Mapping[str, Sequence[Range]]) -> tuple[int, _Counter] | None:
    """Returns the most iterations by one part of a loop's condition that compares a counter with a limit, and the
    counter; None if it is no such comparison. The other arguments are those of `_most`."""
    if not isinstance(part, c_ast.BinaryOp) or part.op not in ("<", "<=", ">", ">=", "!="):
        return None
    first_is_certain = isinstance(node, c_ast.DoWhile)  # the condition is computed after the first iteration
    for side, limit_node, operator in ((part.left, part.right, part.op),
                                       (part.right, part.left, part.op.translate(str.maketrans("<>", "><")))):
        counter = next((each for each in nodes(side) if isinstance(each, c_ast.ID) and each.name in changed), None)
        steps = [step for step in changed[counter.name] if step] if counter is not None else []
        if counter is None or not steps or len(steps) != len(changed[counter.name]):
            continue    # a step is unknown
        up = min(step[0] for step in steps) > 0
        if (not up and max(step[1] for step in steps) >= 0) or operator[0] not in ("<!" if up else ">!"):
            continue    # a step may be 0
        if up and (most := _to_pointer(node, side, limit_node, operator, begin, changed)) is not None:
            return most, _Counter(counter.name)
        first, offset, limit = begin.get(counter.name), _offset(walk, side, counter.name), walk.value(limit_node, inner)
        if first is None or offset is None or limit is None:
            continue
        # A counter that goes down is one that goes up with all signs changed.
        rising, target, shift = (first, limit, offset) if up else \
            ((-first[1], -first[0]), (-limit[1], -limit[0]), -offset)
        is_one = steps in ([(1, 1)], [(-1, -1)])
        if operator == "!=" and (not is_one or rising[1] + shift + first_is_certain > target[0]):
            continue    # the counter may be beyond the limit when the two are first compared
        last = target[1] - shift - (operator not in ("<=", ">="))   # the greatest for which the condition may hold
        most = max(0, (last - rising[0]) // min(_sizes(steps)[0]) + 1) + first_is_certain
        found = _counter(node, counter.name, rising, last, _sizes(steps)[1], up)
        at_end = found.at_end
        if walk.is_unsigned(part) and (at_end is None or min(at_end[0], limit[0]) < 0 or at_end[1] >= 1 << 32):
            continue    # the counter may wrap, or the limit is converted
        return most, found
    return None


def _counter(node: c_ast.Node, name: str, first: tuple[int, int], last: int, steps: list[int], up: bool) -> _Counter:
    """Returns the counter of a loop with its ranges. Each step takes place at most once in an iteration, those in the
    condition once more when it fails.

    Args:
        first: the range before the first iteration; with the other sign if the counter goes down, as `last`.
        last: the greatest value with which the condition may hold.
        steps: the absolute values of all steps.
        up: whether the counter goes up.
    """
    first_is_certain = isinstance(node, c_ast.DoWhile)
    in_condition = max(steps) * len(changes(node.cond).get(name, ()))
    is_repeated = any(name in changes(part) for part in nodes(node.stmt) if isinstance(part, LOOPS))
    at_start: Range = (first[0], max(first[first_is_certain], last))
    at_end: Range = (first[0], max(first[1] + first_is_certain * sum(steps), last + sum(steps)) + in_condition)
    if first_is_certain and in_condition:
        at_start = None     # the first iteration starts before the steps of the condition, the others after them
    if is_repeated:
        at_end = None       # a loop in the body takes a step several times
    return _Counter(name, at_start, at_end) if up else _Counter(name, _negated(at_start), _negated(at_end))


def _sizes(steps: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Returns the least and the greatest absolute value of each step; all go the same way."""
    return [min(map(abs, step)) for step in steps], [max(map(abs, step)) for step in steps]


def _to_pointer(node: c_ast.Node, side: c_ast.Node, limit: c_ast.Node, operator: str, begin: _Ranges,
                changed: Mapping[str, Sequence[Range]]) -> int | None:
    """Returns the most iterations of a loop in which the pointer `side` goes up to another one, `limit`; None if their
    difference at the beginning is not known. `begin` and `changed` are those of `_most`."""
    if not (isinstance(side, c_ast.ID) and isinstance(limit, c_ast.ID)) or limit.name in changed:
        return None
    length, steps = begin.get((limit.name, side.name)), [step[0] for step in changed[side.name] if step]
    first_is_certain = isinstance(node, c_ast.DoWhile)
    if length is None:
        return None
    if operator == "!=":    # the pointer has to be equal to the other one after some iteration
        is_met = length[0] == length[1] and len(steps) == 1 and length[0] % steps[0] == 0 \
            and length[0] >= first_is_certain
        return length[0] // steps[0] + first_is_certain if is_met else None
    return max(0, -(-length[1] // min(steps))) + (operator == "<=") + first_is_certain


def _offset(walk: Walk, side: c_ast.Node, counter: str) -> int | None:
    """Returns the number that one side of a comparison adds to the counter; None for any other expression of it."""
    at = [walk.value(side, {counter: (value, value)}) for value in (0, 1000)]
    if at[0] is None or at[1] is None or at[0][0] != at[0][1] or at[1] != (at[0][0] + 1000, at[0][1] + 1000):
        return None
    return at[0][0]
