# SPDX-License-Identifier: Apache-2.0
"""Translates JSON schemas to GBNF. The strings are those that the package llguidance allows: properties in the order of
the schema, and spaces and line breaks between the signs of JSON, but not around the whole text. Where llguidance does
more, such as regular expressions, a keyword is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any
from urllib.parse import unquote

from ....errors import MegccError, quoted
from .formats import format_rule
from .gbnf import MAX_REPETITIONS
from .pattern import pattern_rule

#: The deepest nesting of schemas.
_MAX_DEPTH = 100
#: Keywords that do not change which strings match.
_ANNOTATIONS = frozenset((
    "$anchor", "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "default", "definitions",
    "description", "examples", "id", "readOnly", "title", "writeOnly"))
#: The keywords of each type.
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "null": (), "boolean": (), "number": (), "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "string": ("minLength", "maxLength", "format", "pattern"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties")}
#: Keywords that stand alone, beside annotations, in the order in which they are looked for.
_ALONE = ("$ref", "anyOf", "oneOf", "allOf")
#: The types of a schema without `type`.
_TYPES = ("null", "boolean", "number", "string", "array", "object")

_FIXED = {
    "space": r"[ \n\r\t]*",
    "integer": '"-"? ("0" | [1-9] [0-9]*)',
    "number": 'integer ("." [0-9]+)? ([eE] [+-]? [0-9]+)?',
    # Control characters may be escaped by their numbers, others may not.
    "letter": r'''[^"\\\x00-\x1f\x7f] | "\\" ([nrbtf"\\] | "u00" ([01] [0-9a-fA-F] | "7" [fF]))''',
    "string": r'"\"" letter* "\""',
    # The letters of names that no property has: with all characters by their numbers, as UTF-16.
    "escape": r'''"\\" ([nrbtf"\\] | "u" ([0-9a-ce-fA-CE-F] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}
    | [dD] [89aAbB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}))''',
    "rest": r'''([^"\\\x00-\x1f\x7f] | escape)* "\""''',
    "any": '"null" | "true" | "false" | number | string | "[" space (any (space "," space any)* space)? "]" '
           '| "{" space (member (space "," space member)* space)? "}"',
    "member": 'string space ":" space any'}


class _Unsatisfiable(MegccError):
    """No text matches a schema."""


def gbnf_of(text: str) -> str:
    """Returns a JSON schema as a grammar in GBNF.

    Raises:
        MegccError: for what is no JSON schema, one that no text matches, and keywords that are not supported.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MegccError(f"the JSON schema cannot be read: {error}") from None
    writer = _Writer(schema)
    root = writer.rule_of(schema, 0)
    writer.finish()
    return "".join(f"{name} ::= {parts}\n" for name, parts in {"root": root, **writer.rules}.items())


def string(text: str) -> str:
    """Returns a string of GBNF."""
    return '"' + "".join(f"\\x{ord(each):02x}" if each in '"\\' or ord(each) < 32 else each for each in text) + '"'


class _Writer:
    """Writes the rules of a schema. rules: their parts by their names, without `root`."""

    def __init__(self, root: object):
        self.root = root
        self.rules = dict(_FIXED)
        self.references: dict[str, str] = {}
        self.pending: list[str] = []

    def finish(self) -> None:
        """Writes the rules of schemas that others refer to."""
        while self.pending:
            reference = self.pending.pop()
            self.rules[self.references[reference]] = self.parts_of(_referenced(self.root, reference), 0)

    def new_rule(self, parts: str) -> str:
        name = f"r{len(self.rules)}"
        self.rules[name] = parts
        return name

    def rule_of(self, schema: object, depth: int) -> str:
        return self.new_rule(self.parts_of(schema, depth + 1))

    def parts_of(self, schema: object, depth: int) -> str:
        """Returns the alternatives of a schema."""
        if depth > _MAX_DEPTH:
            raise MegccError(f"schemas are nested deeper than {_MAX_DEPTH}")
        if schema is True:
            return "any"
        if schema is False:
            raise _Unsatisfiable("no text matches the schema false")
        if not isinstance(schema, dict):
            raise MegccError("a schema is an object or a boolean")
        used = [keyword for keyword in schema if keyword not in _ANNOTATIONS]
        if not used:
            return "any"
        alone = next((keyword for keyword in _ALONE if keyword in used), None)
        if alone:
            if len(used) > 1:
                others = ", ".join(quoted(each) for each in used if each != alone)
                raise MegccError(f"{quoted(alone)} beside {others} is not supported")
            return self.alone(alone, schema[alone], depth)
        types = _list_of(schema.get("type", list(_TYPES)), "type", str)
        _require_known(types, used)
        if "enum" in schema or "const" in schema:
            return self.constants(schema, types, used, depth)
        return self.any_of((lambda type_=each: self.typed(type_, schema, depth)) for each in types)  # type: ignore[misc]

    def any_of(self, options: Iterable[Callable[[], str]]) -> str:
        """Returns the alternatives of several schemas; those that no text matches are left out."""
        found, error = [], _Unsatisfiable("no text matches a schema without alternatives")
        for option in options:
            try:
                found.append(f"({option()})")
            except _Unsatisfiable as unsatisfiable:
                error = unsatisfiable
        if not found:
            raise error
        return " | ".join(found)

    def alone(self, keyword: str, value: object, depth: int) -> str:
        if keyword == "$ref":
            return self.reference(value)
        options = _list_of(value, keyword, object)
        if keyword == "allOf" and len(options) > 1:
            raise MegccError("'allOf' with several schemas is not supported")
        if keyword == "oneOf" and not all(_are_disjoint(*pair) for pair in combinations(options, 2)):
            raise MegccError("'oneOf' is supported if its schemas differ in types or constants, so that no text "
                             "matches two of them; 'anyOf' is supported")
        return self.any_of((lambda option=each: self.rule_of(option, depth)) for each in options)  # type: ignore[misc]

    def reference(self, reference: object) -> str:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise MegccError(f"'$ref' to {quoted(str(reference))} is not supported; '#/…' in the same file is")
        if reference not in self.references:
            _referenced(self.root, reference)
            self.references[reference] = self.new_rule("any")
            self.pending.append(reference)
        return self.references[reference]

    def constants(self, schema: Mapping[str, Any], types: Sequence[str], used: Sequence[str], depth: int) -> str:
        """Returns the strings of `const` or `enum`, of the types that the schema has."""
        others = [keyword for keyword in used if keyword not in ("const", "enum", "type")]
        if others or ("const" in schema and "enum" in schema):
            raise MegccError(f"'const' or 'enum' beside {quoted([*others, 'enum'][0])} is not supported")
        values = [schema["const"]] if "const" in schema else _list_of(schema["enum"], "enum", object)
        given = [value for value in values if _type_of(value) in types
                 or (_type_of(value) == "integer" and "number" in types)]
        return self.any_of((lambda value=each: self.constant(value, depth)) for each in given)  # type: ignore[misc]

    def constant(self, value: object, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise MegccError(f"schemas are nested deeper than {_MAX_DEPTH}")
        if isinstance(value, str):
            return _quoted_text(value)
        if isinstance(value, list):
            return self.array([self.constant(each, depth + 1) for each in value], None, len(value), len(value))
        if isinstance(value, dict):
            members = [(self.member(name, self.constant(each, depth + 1)), True) for name, each in value.items()]
            return self.object(members, None)
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                raise MegccError("a constant is no number of JSON")
            shown = repr(value)
            if "e" in shown or value == int(value):
                raise MegccError(f"the constant {shown} is not supported; write whole numbers without a point")
            return string(shown)
        return string(json.dumps(value))

    def typed(self, type_: str, schema: Mapping[str, Any], depth: int) -> str:
        """Returns the strings of one type."""
        if type_ == "null":
            return '"null"'
        if type_ == "boolean":
            return '"true" | "false"'
        if type_ == "number":
            for keyword in _KEYWORDS["integer"]:
                if keyword in schema:
                    raise MegccError(f"{quoted(keyword)} is supported for the type integer only")
            return "number"
        if type_ == "integer":
            return _integers(schema)
        if type_ == "string":
            for keyword, rule in (("format", format_rule), ("pattern", pattern_rule)):
                if keyword in schema:
                    other = next((each for each in _KEYWORDS["string"] if each in schema and each != keyword), None)
                    if other:
                        raise MegccError(f"{quoted(keyword)} beside {quoted(other)} is not supported")
                    return rf'"\"" ({rule(schema[keyword])}) "\""'
            least, most = _limits(schema, "minLength", "maxLength")
            return rf'"\"" letter{{{least},{"" if most is None else most}}} "\""' if least or most is not None \
                else "string"
        return self.arrays(schema, depth) if type_ == "array" else self.objects(schema, depth)

    def arrays(self, schema: Mapping[str, Any], depth: int) -> str:
        least, most = _limits(schema, "minItems", "maxItems")
        items, prefix = schema.get("items", True), _list_of(schema.get("prefixItems", []), "prefixItems", object)
        if isinstance(items, list):     # before the draft of 2020
            items, prefix = schema.get("additionalItems", True), items
        elif "additionalItems" in schema:
            prefix = []
        try:
            other: str | None = self.rule_of(items, depth)
        except _Unsatisfiable:
            other = None
        first: list[str] = []
        for item in prefix[:most]:
            try:
                first.append(self.rule_of(item, depth))
            except _Unsatisfiable:
                most, other = len(first), None
                break
        if least > len(first) and other is None:
            raise _Unsatisfiable(f"no array has {least} items that match")
        return self.array(first, other, least, most)

    def array(self, first: Sequence[str], other: str | None, least: int, most: int | None) -> str:
        """Returns arrays. first: the first items. other: all other items; None: there are none."""
        if other is None:
            most = len(first) if most is None else min(most, len(first))
        if most == 0:
            return '"[" space "]"'
        first = [f"({each})" for each in first]
        # Each item with the rest of the array, from the last of `first` on.
        count, rest = len(first), ""
        if other is not None and (most is None or most > count):
            limit = "" if most is None else str(most - max(count, 1))
            rest = f'(space "," space {other}){{{max(least - max(count, 1), 0)},{limit}}}'
            first = first or [other]
        for index in range(len(first) - 1, 0, -1):
            rest = self.new_rule(f'space "," space {first[index]} {rest}')
            rest = rest if index < least else f"{rest}?"
        items = f"{first[0]} {rest} space"
        return f'"[" space {items} "]"' if least else f'"[" space ({items})? "]"'

    def objects(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            raise MegccError("'properties' is no object")
        required, additional = _list_of(schema.get("required", []), "required", str), schema.get(
            "additionalProperties", True)
        names = [*properties, *(name for name in dict.fromkeys(required) if name not in properties)]
        members = []
        for name in names:
            try:
                value = self.rule_of(properties.get(name, additional), depth)
            except _Unsatisfiable:
                if name in required:
                    raise _Unsatisfiable(f"no text matches the required property {quoted(name)}") from None
                continue
            members.append((self.member(name, value), name in required))
        try:
            other = self.rule_of(additional, depth)
        except _Unsatisfiable:
            return self.object(members, None)
        return self.object(members, self.new_rule(f'{self.other_name(names)} space ":" space {other}'))

    def member(self, name: str, value: str) -> str:
        return self.new_rule(f'{string(json.dumps(name, ensure_ascii=False))} space ":" space ({value})')

    def object(self, members: Sequence[tuple[str, bool]], other: str | None) -> str:
        """Returns objects. members: rules of properties, and whether they are required. other: any other property."""
        rest = f'(space "," space {other})*' if other else ""    # properties after others
        alternatives = [f'{other} {rest}'] if other else []      # of those from some property on, none before it
        optional = True
        for rule, is_required in reversed(members):
            alternatives = ([] if is_required else alternatives) + [f"{rule} {rest}"]
            optional = optional and not is_required
            rest = self.new_rule(f'space "," space {rule} {rest}' if is_required
                                 else f'(space "," space {rule})? {rest}' if rest else f'(space "," space {rule})?')
        if not alternatives:
            return '"{" space "}"'
        return f'"{{" space (({" | ".join(alternatives)}) space){"?" if optional else ""} "}}"'

    def other_name(self, names: Sequence[str]) -> str:
        """Returns the names that are none of these, with quotes: a trie of the names, and what leaves it."""
        if not names:
            return "string"
        trie: dict[str, Any] = {}
        for name in names:
            if json.dumps(name, ensure_ascii=False) != f'"{name}"' or "\x7f" in name:
                raise MegccError(f"the property {quoted(name)}, which JSON escapes, is supported only with "
                                 "\"additionalProperties\": false")
            node = trie
            for letter in name:
                node = node.setdefault(letter, {})
            node[""] = {}
        return r'"\"" ' + self.leaves(trie)

    def leaves(self, trie: Mapping[str, Any]) -> str:
        """Returns what follows a node of the trie in names that are not in it, with the quote at their end."""
        pending, parts = [(self.new_rule(""), trie)], ""
        first = pending[0][0]
        while pending:
            rule, node = pending.pop()
            children = [letter for letter in node if letter]
            parts = "escape rest" if "" in node else r'"\"" | escape rest'
            excluded = "".join(f"\\U{ord(letter):08x}" for letter in children)
            parts += rf' | [^"\\\x00-\x1f\x7f{excluded}] rest'
            for letter in children:
                following = self.new_rule("")
                pending.append((following, node[letter]))
                parts += f" | {string(letter)} {following}"
            self.rules[rule] = parts
        return first


def _require_known(types: Sequence[str], used: Sequence[str]) -> None:
    """Refuses types and keywords that are not supported."""
    for type_ in types:
        if type_ not in _KEYWORDS:
            raise MegccError(f"there is no type {quoted(type_)}")
    known = {"type", "const", "enum", *(keyword for keywords in _KEYWORDS.values() for keyword in keywords)}
    for keyword in used:
        if keyword not in known:
            raise MegccError(f"the keyword {quoted(keyword)} is not supported")


def _list_of(value: object, name: str, kind: type) -> list[Any]:
    """Returns a list whose elements are of one kind; `type` may be one string."""
    if name == "type" and isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise MegccError(f"{quoted(name)} is no list of {'strings' if kind is str else 'values'}")
    return value


def _limits(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    """Returns two limits of lengths: 0 and None if there are none."""
    found = [schema.get(least, 0), schema.get(most)]
    for name, value in zip((least, most), found, strict=True):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)
                                  or not 0 <= value <= MAX_REPETITIONS):
            raise MegccError(f"{quoted(name)} is no whole number from 0 to {MAX_REPETITIONS:,}")
    if found[1] is not None and found[0] > found[1]:
        raise _Unsatisfiable(f"{quoted(least)} is greater than {quoted(most)}")
    return found[0], found[1]


def _referenced(root: object, reference: str) -> object:
    """Returns the schema at a JSON pointer (RFC 6901)."""
    found: Any = root
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise MegccError(f"'$ref' to {quoted(reference)}: there is no such schema")
    return found


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {type(None): "null", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _are_disjoint(left: object, right: object) -> bool:
    """Whether it is sure that no text matches both schemas, by their types, constants, or those of a property that one
    of them requires."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return left is False or right is False
    values = [_constants(left), _constants(right)]
    if values[0] is not None and values[1] is not None:
        return not set(map(_key, values[0])) & set(map(_key, values[1]))
    types = [{"number" if each == "integer" else each for each in (
        map(_type_of, constants) if constants is not None else _list_of(schema.get("type", list(_TYPES)), "type", str))}
        for schema, constants in zip((left, right), values, strict=True)]
    if not types[0] & types[1]:
        return not {"$ref", "anyOf", "oneOf", "allOf"} & (left.keys() | right.keys())
    names = {*left.get("required", []), *right.get("required", [])}
    return types[0] == types[1] == {"object"} and any(
        _are_disjoint(left.get("properties", {}).get(name, True), right.get("properties", {}).get(name, True))
        for name in names)


def _constants(schema: Mapping[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _quoted_text(text: str) -> str:
    """Returns a string of JSON. Control characters may be escaped by their numbers."""
    named = {"\n": "n", "\r": "r", "\b": "b", "\t": "t", "\f": "f"}
    parts = ['"\\x22"']
    for letter in text:
        code = ord(letter)
        if 0xd800 <= code < 0xe000:
            raise MegccError("a constant has a surrogate, which is no character")
        if code < 32 or code == 127:
            digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else string(digit)
                             for digit in f"{code:02x}")
            parts.append(f'"\\x5c" ("u00" {digits}' + (f" | {string(named[letter])})" if letter in named else ")"))
        else:
            parts.append(string(f"\\{letter}" if letter in '"\\' else letter))
    return " ".join([*parts, '"\\x22"'])


def _integers(schema: Mapping[str, Any]) -> str:
    """Returns the integers between the limits of a schema."""
    bounds: dict[str, int | None] = {}
    for side, sign in (("inimum", -1), ("aximum", 1)):
        inclusive, exclusive = schema.get(f"m{side}"), schema.get(f"exclusiveM{side}")
        if isinstance(exclusive, bool):     # before the draft of 2019
            inclusive, exclusive = (None, inclusive) if exclusive else (inclusive, None)
        found = []
        for name, value in ((f"m{side}", inclusive), (f"exclusiveM{side}", exclusive)):
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10 ** 18:
                    raise MegccError(f"{quoted(name)} is no whole number up to 10^18")
                found.append(value - (sign if name != f"m{side}" else 0))
        bounds[side] = (max(found) if sign < 0 else min(found)) if found else None
    least, most = bounds["inimum"], bounds["aximum"]
    if least is not None and most is not None and least > most:
        raise _Unsatisfiable(f"no integer is between {least} and {most}")
    return _between(least, most)


def _between(least: int | None, most: int | None) -> str:
    if least is None and most is None:
        return "integer"
    if least is None:
        assert most is not None
        return f'({_between(0, most)} | "-" {_between(1, None)})' if most >= 0 else f'"-" {_between(-most, None)}'
    if most is None:
        if least < 0:
            return f"({_between(least, -1)} | {_between(0, None)})"
        digits = len(str(least))
        return f"({_between(least, 10 ** digits - 1)} | [1-9] [0-9]{{{digits},}})"
    if least < 0:
        # "-0" is an integer from below 0 on if 0 is one.
        return f'"-" {_between(-most, -least)}' if most < 0 else f'("-" {_between(0, -least)} | {_between(0, most)})'
    parts = []
    for digits in range(len(str(least)), len(str(most)) + 1):
        low, high = max(least, 10 ** (digits - 1) if digits > 1 else 0), min(most, 10 ** digits - 1)
        parts.append(_digits(str(low), str(high)))
    return f"({' | '.join(parts)})"


def _digits(low: str, high: str) -> str:
    """Returns the numbers from low to high, which have equally many digits."""
    if low == high:
        return string(low)
    if len(low) == 1:
        return f"[{low}-{high}]"
    if low[0] == high[0]:
        return f"{string(low[0])} {_digits(low[1:], high[1:])}"
    count = len(low) - 1
    parts, first, last = [], int(low[0]), int(high[0])
    if low[1:] != "0" * count:
        parts.append(f"{string(low[0])} ({_digits(low[1:], '9' * count)})")
        first += 1
    if high[1:] != "9" * count:
        parts.append(f"{string(high[0])} ({_digits('0' * count, high[1:])})")
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}] [0-9]{{{count}}}")
    return f"({' | '.join(parts)})"
