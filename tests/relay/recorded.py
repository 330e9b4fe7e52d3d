# SPDX-License-Identifier: Apache-2.0
"""What TVM 0.19 makes of the calls in `operators.py`: names, attributes and types as JSON, results as arrays.

`python -m tests.relay.recorded` writes both files, where TVM has Relay.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from . import stand_in
from .operators import CASES, REFUSED, Case

CALLS, RESULTS = Path(__file__).with_name("calls.json"), Path(__file__).with_name("results.npz")


def plain(value):
    """A value of an attribute as JSON has it."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__len__"):
        return [plain(item) for item in value]
    number = getattr(value, "value", value)
    return float(number) if isinstance(number, float) or "Float" in type(value).__name__ else int(number)


def description(expr) -> dict:
    """An expression whose operands are variables and constants as JSON. Variables by name, scalars by value."""
    kind = type(expr).__name__
    if kind == "Var":
        return {"var": expr.name_hint, "type": type_text(expr.checked_type)}
    if kind == "Constant":
        return {"constant": plain(expr.data.numpy().tolist()), "dtype": expr.data.dtype}
    if kind == "Tuple":
        return {"tuple": [description(field) for field in expr.fields]}
    if kind == "TupleGetItem":
        return {"field": int(expr.index), "of": description(expr.tuple_value)}
    attrs = None if expr.attrs is None else {key: plain(getattr(expr.attrs, key)) for key in expr.attrs.keys()}
    return {"op": expr.op.name, "attrs": attrs, "type": type_text(expr.checked_type),
            "args": [description(argument) for argument in expr.args]}


def type_text(type_) -> list:
    if type(type_).__name__ == "TupleType":
        return [type_text(field) for field in type_.fields]
    return [[int(extent) for extent in type_.shape], str(type_.dtype)]


def stand_in_for(text: dict, variables: dict):
    """The expression of a description. variables: by name, made as they are met; constants with their arrays."""
    if "var" in text:
        shape, dtype = text["type"]
        if text["var"] not in variables:
            variables[text["var"]] = stand_in.var(text["var"], shape, dtype)
        return variables[text["var"]]
    if "constant" in text:
        return stand_in.const(np.array(text["constant"], text["dtype"]))
    if "tuple" in text:
        return stand_in.Tuple(None, fields=[stand_in_for(field, variables) for field in text["tuple"]])
    if "field" in text:
        return stand_in.TupleGetItem(None, tuple_value=stand_in_for(text["of"], variables), index=text["field"])
    return stand_in.call(text["op"], [stand_in_for(argument, variables) for argument in text["args"]],
                         stand_in_type(text["type"]), text["attrs"])


def stand_in_type(type_):
    if isinstance(type_[1], str):
        return stand_in.TensorType(*type_)
    return stand_in.TupleType([stand_in_type(field) for field in type_])


def call_of(case: Case):
    """(expression, inputs in order) of a case from the recording; constant operands are constants."""
    text = json.loads(CALLS.read_text())[case.name]
    arrays = case.arrays()
    variables = {f"x{index}": stand_in.const(array) for index, (operand, array) in
                 enumerate(zip(case.operands, arrays, strict=True)) if operand.constant}
    expr = stand_in_for(text, variables)
    return expr, [array for operand, array in zip(case.operands, arrays, strict=True) if not operand.constant]


def relay_call(case: Case):
    """The call as TVM makes it, with types; all operands are variables."""
    import tvm
    from tvm import relay

    variables = [relay.var(f"x{index}", shape=operand.shape, dtype=operand.dtype)
                 for index, operand in enumerate(case.operands)]
    built = case.build(relay, *variables)
    mod = tvm.IRModule.from_expr(relay.Function(variables, built if isinstance(built, relay.Expr) else built.astuple()))
    return relay.transform.InferType()(mod)["main"]


def record() -> None:
    from .modules import evaluated

    calls, results = {}, {}
    for case in (*CASES, *(case for case, _ in REFUSED)):
        function = relay_call(case)
        calls[case.name] = description(function.body)
        if case in CASES:
            (results[case.name],) = evaluated(function, case.arrays())
    CALLS.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in calls.items())
                     + "\n}\n")
    np.savez_compressed(RESULTS, **results)


if __name__ == "__main__":
    record()
