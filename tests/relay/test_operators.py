# SPDX-License-Identifier: Apache-2.0
"""Every spelling of Relay's operators becomes a graph of ours that computes what TVM computes. Without Relay, by what
TVM 0.19 has recorded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.relay.expressions import is_operator, post_order, type_of
from tvm_megcc.frontends.relay.importer import import_region
from tvm_megcc.frontends.relay.ops import IMPORTERS
from tvm_megcc.runtime.reference import run

from . import recorded, stand_in
from .operators import CASES, REFUSED, Case
from .relay_or_skip import needs_relay

RESULTS = np.load(recorded.RESULTS)
BY_NAME = [pytest.param(case, id=case.name) for case in CASES]


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, tolerance, tolerance * max(float(np.abs(expected).max()), 1))
    else:
        np.testing.assert_array_equal(actual, expected)


def graph_of(case: Case):
    """(graph, inputs by name) of a case as recorded."""
    expr, inputs = recorded.call_of(case)
    variables = sorted(variables_of(expr), key=lambda variable: variable.name_hint)
    function = stand_in.Function(None, params=variables, body=expr)
    arrays = dict(zip((f"x{i}" for i, operand in enumerate(case.operands) if not operand.constant), inputs,
                      strict=True))
    return import_region(function, "case"), {variable.name_hint: arrays[variable.name_hint] for variable in variables}


def variables_of(expr) -> set:
    return {part for part in post_order(expr) if type(part).__name__ == "Var"}


@pytest.mark.parametrize("case", BY_NAME)
def test_graph_computes_what_tvm_recorded(case):
    graph, inputs = graph_of(case)
    (result,) = run(graph, inputs).values()
    assert_close(result, RESULTS[case.name], max(case.tolerance, 1e-5))


def test_every_importer_has_a_case():
    """Those of Relay's own operators, and those that Relax spells alike and Relay has."""
    calls = json.loads(recorded.CALLS.read_text())
    cases = set()
    for text in calls.values():
        while "of" in text:
            text = text["of"]
        cases.add(text["op"])
    others = {name for name in IMPORTERS if name.removesuffix("1d").removesuffix("3d") + "2d" in cases}
    relax_only = {"permute_dims", "concat", "matmul", "nn.gelu", "quantize", "dequantize", "square", "ewise_fma",
                  "nn.leakyrelu", "flatten", "astype", "gather_elements"}
    untested = set(IMPORTERS) - cases - others - relax_only - {"round"}  # which has a test below
    assert untested == {"annotation.stop_fusion", "collapse_sum_like"}


@pytest.mark.parametrize(("case", "reason"), [pytest.param(*row, id=row[0].name) for row in REFUSED])
def test_what_stays_with_tvm_says_why(case, reason):
    with pytest.raises(MegccError, match=reason):
        graph_of(case)


@needs_relay
@pytest.mark.parametrize("case", [*BY_NAME, *(pytest.param(case, id=case.name) for case, _ in REFUSED)])
def test_the_recording_is_what_this_tvm_makes(case):
    """Names of operators and attributes, and what the attributes are."""
    expected = json.loads(recorded.CALLS.read_text())[case.name]
    assert recorded.description(recorded.relay_call(case).body) == expected


@needs_relay
@pytest.mark.slow
@pytest.mark.parametrize("case", BY_NAME)
def test_kernels_compute_what_tvm_computes(case):
    from . import modules

    function = recorded.relay_call(case)
    arrays = case.arrays()
    constants = {index for index, operand in enumerate(case.operands) if operand.constant}
    body = modules.relay.bind(function.body, {function.params[index]: modules.relay.const(arrays[index])
                                              for index in constants})
    parameters = [p for index, p in enumerate(function.params) if index not in constants]
    mod = modules.tvm.IRModule.from_expr(modules.relay.Function(parameters, body))
    partitioned = modules.megcc.partition_for_megcc(mod, target=modules.TARGET)
    report = modules.megcc.report(partitioned)
    assert not report.theirs and len(report.regions) == 1, str(report)
    inputs = [array for index, array in enumerate(arrays) if index not in constants]
    (result,) = modules.run_graph(partitioned, inputs)
    assert_close(result, modules.evaluated(function, arrays)[0], max(case.tolerance, 1e-5))


def test_extents_that_change():
    """Any is a symbol with the name of the input; what follows from it is known, what does not is refused."""
    x = stand_in.var("data", (None, 3, 4))
    relu = stand_in.call("nn.relu", [x], stand_in.TensorType((None, 3, 4)))
    flat = stand_in.call("reshape", [relu], stand_in.TensorType((None, 12)), {"newshape": [0, -1], "allowzero": False})
    graph = import_region(stand_in.Function(None, params=[x], body=flat), "open")
    assert [str(type_) for type_ in map(graph.types.get, (*graph.inputs, *graph.outputs))] == [
        "float32[data_0,3,4]", "float32[data_0,12]"]
    odd = stand_in.call("reshape", [relu], stand_in.TensorType((None, 6)),
                        {"newshape": [-4, 2, -1], "allowzero": False})
    with pytest.raises(MegccError, match="operand with unknown extents"):
        import_region(stand_in.Function(None, params=[x], body=odd), "open")


def test_classes_of_the_stand_in():
    """What `is_operator` and `type_of` see is the same on either side."""
    call = stand_in.call("nn.relu", [stand_in.var("x", (2,))], stand_in.TensorType((2,)))
    assert is_operator(call) and type_of(call).shape == [2]


def test_halves_are_rounded_away_from_zero():
    """As this TVM rounds them, by llvm.round; ONNX and Relax round them to the even number."""
    values = np.array([-2.5, -1.5, -0.5, -0.4, 0.0, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, np.inf, np.nan], np.float32)
    x = stand_in.var("x", values.shape)
    function = stand_in.Function(None, params=[x], body=stand_in.call("round", [x], x.checked_type))
    (result,) = run(import_region(function, "case"), {"x": values}).values()
    np.testing.assert_array_equal(result, [-3, -2, -1, 0, 0, 0, 1, 2, 3, 8388609.0, np.inf, np.nan])
