# SPDX-License-Identifier: Apache-2.0
"""Modules with loops, closures, data types and references: what is data flow in them is ours wherever it stands, the
rest stays with TVM, and the results are TVM's."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ..onnx_models import graph_proto, model, node
from .modules import LLVM, TARGET, assert_same, flat, megcc, relay, run_graph, tvm, vm, weights

SHAPE = (2, 4)
TENSOR = relay.TensorType(SHAPE)
FUNCTION = relay.FuncType([TENSOR], TENSOR)


def tensor(name: str) -> relay.Var:
    return relay.var(name, TENSOR)


def of_main(*arguments, functions=None) -> tvm.IRModule:
    """arguments: the parameters of main, and its body."""
    mod = tvm.IRModule({relay.GlobalVar(name): function for name, function in (functions or {}).items()})
    mod["main"] = relay.Function(list(arguments[:-1]), arguments[-1])
    return mod


def layer(x):
    return relay.nn.relu(relay.nn.dense(x, weights(4, 4)))


def loop() -> tvm.IRModule:
    """What TVM's importers make of loops: a closure that is bound by a let and calls itself."""
    count, state, x = relay.var("count", shape=(), dtype="int32"), tensor("state"), tensor("x")
    run = relay.loops.while_loop(lambda i, _: relay.less(i, relay.const(3)), [count, state],
                                 lambda i, s: (relay.add(i, relay.const(1)), layer(s)))
    return of_main(x, relay.tanh(relay.TupleGetItem(run(relay.const(0), relay.exp(x)), 1)))


def closure_over_a_value() -> tvm.IRModule:
    x, y, f = tensor("x"), tensor("y"), relay.var("f")
    function = relay.Function([y], relay.nn.relu(relay.add(y, relay.exp(x))))
    return of_main(x, relay.Let(f, function, relay.tanh(f(f(x)))))


def function_that_returns_one() -> tvm.IRModule:
    a, y, x, g = tensor("a"), tensor("y"), tensor("x"), relay.var("g")
    mod = tvm.IRModule()
    make = relay.GlobalVar("make")
    mod[make] = relay.Function([a], relay.Function([y], relay.nn.relu(relay.add(y, relay.exp(a)))), FUNCTION)
    mod["main"] = relay.Function([x], relay.Let(g, make(x), relay.tanh(g(g(x)))))
    return mod


def function_that_is_passed() -> tvm.IRModule:
    y, z, x, f = tensor("y"), tensor("z"), tensor("x"), relay.Var("f", FUNCTION)
    mod = tvm.IRModule()
    inner, twice = relay.GlobalVar("inner"), relay.GlobalVar("twice")
    mod[inner] = relay.Function([y], layer(y), TENSOR)
    mod[twice] = relay.Function([f, z], relay.tanh(f(f(z))), TENSOR)
    mod["main"] = relay.Function([x], relay.sigmoid(twice(inner, relay.negative(x))))
    return mod


def function_that_is_chosen() -> tvm.IRModule:
    x, y, z, f = tensor("x"), tensor("y"), tensor("z"), relay.var("f")
    chosen = relay.If(relay.greater(relay.sum(x), relay.const(0.0)), relay.Function([y], layer(y)),
                      relay.Function([z], relay.tanh(z)))
    return of_main(x, relay.Let(f, chosen, relay.sigmoid(f(x))))


def function_called_in_place() -> tvm.IRModule:
    x, y = tensor("x"), tensor("y")
    return of_main(x, relay.tanh(relay.Call(relay.Function([y], layer(y)), [relay.negative(x)])))


def recursion_with_a_function() -> tvm.IRModule:
    """A global function that calls itself and what it is given."""
    repeat, f, x = relay.GlobalVar("repeat"), relay.Var("f", FUNCTION), tensor("x")
    count, state, y = relay.var("count", shape=(), dtype="int32"), tensor("state"), tensor("y")
    mod = tvm.IRModule()
    mod[repeat] = relay.Function(
        [f, count, state], relay.If(relay.less(count, relay.const(1)), state,
                                    repeat(f, relay.subtract(count, relay.const(1)), relay.nn.relu(f(state)))), TENSOR)
    mod["main"] = relay.Function([x], relay.exp(repeat(relay.Function([y], relay.tanh(y)), relay.const(3), x)))
    return mod


def any_type() -> tvm.IRModule:
    """A function for values of any type."""
    kind = relay.TypeVar("kind")
    a, b, x, second = relay.Var("a", kind), relay.Var("b", kind), tensor("x"), relay.GlobalVar("second")
    mod = tvm.IRModule()
    mod[second] = relay.Function([a, b], b, kind, [kind])
    mod["main"] = relay.Function([x], relay.tanh(second(relay.exp(x), layer(x))))
    return mod


def references() -> tvm.IRModule:
    x, cell, done = tensor("x"), relay.var("cell"), relay.var("done")
    written = relay.RefWrite(cell, layer(relay.RefRead(cell)))
    return of_main(x, relay.Let(cell, relay.RefCreate(relay.exp(x)), relay.Let(
        done, written, relay.tanh(relay.RefRead(cell)))))


def lets() -> tvm.IRModule:
    """Names for values, a tuple and another name among them."""
    x, a, both, same, c = tensor("x"), relay.var("a"), relay.var("both"), relay.var("same"), relay.var("c")
    end = relay.add(c, relay.TupleGetItem(same, 1))
    body = relay.Let(both, relay.Tuple([layer(a), a]), relay.Let(
        same, both, relay.Let(c, relay.tanh(relay.TupleGetItem(same, 0)), end)))
    return of_main(x, relay.Let(a, relay.exp(x), body))


def lets_and_branches() -> tvm.IRModule:
    x, a, b = tensor("x"), relay.var("a"), relay.var("b")
    branch = relay.If(relay.greater(relay.sum(x), relay.const(0.0)), relay.tanh(a), layer(a))
    return of_main(x, relay.Let(a, relay.exp(x), relay.Let(b, branch, relay.add(a, relay.sigmoid(b)))))


def with_lists() -> tvm.IRModule:
    mod = tvm.IRModule()
    mod.import_from_std("prelude.rly")
    return mod


def lists() -> tvm.IRModule:
    """Functions of TVM's prelude, which are given functions of ours, and a match."""
    mod = with_lists()
    _, cons, nil = mod.get_type("List")
    x, y, head = tensor("x"), tensor("y"), relay.var("head")
    mapped = mod.get_global_var("map")(relay.Function([y], layer(y)), cons(relay.exp(x), cons(x, nil())))
    first = relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternWildcard()])
    mod["main"] = relay.Function([x], relay.sigmoid(relay.Match(mapped, [
        relay.Clause(first, relay.tanh(relay.nn.relu(head))),
        relay.Clause(relay.PatternConstructor(nil, []), relay.negative(x))])))
    return mod


def a_type_of_its_own() -> tvm.IRModule:
    mod = tvm.IRModule()
    box = relay.GlobalTypeVar("box")
    full, empty = relay.Constructor("full", [TENSOR], box), relay.Constructor("empty", [], box)
    mod[box] = relay.TypeData(box, [], [full, empty])
    content, other, x = relay.GlobalVar("content"), relay.var("b", type_annotation=box()), tensor("x")
    inside = relay.var("inside")
    mod[content] = relay.Function([other], relay.Match(other, [
        relay.Clause(relay.PatternConstructor(full, [relay.PatternVar(inside)]), layer(inside)),
        relay.Clause(relay.PatternConstructor(empty, []), relay.const(np.zeros(SHAPE, "float32")))]), TENSOR)
    mod["main"] = relay.Function([x], relay.tanh(content(full(relay.exp(x)))))
    return mod


def tensor_array() -> tvm.IRModule:
    """Tensors of one shape that are written one by one, then stacked: functions of TVM's prelude."""
    mod = tvm.IRModule()
    array = relay.prelude.StaticTensorArrayOps(relay.prelude.Prelude(mod), "float32", list(SHAPE))
    array.register()
    make = array.get_ctor("tensor_constructor")
    x = tensor("x")
    cells = array.get_global_var("tensor_array")(relay.const(2))
    for index, value in enumerate((layer(x), relay.exp(x))):
        cells = array.get_global_var("tensor_array_write")(cells, relay.const(index), make(value))
    mod["main"] = relay.Function([x], array.get_global_var("tensor_array_stack")(cells))
    return mod


def prelude_beside() -> tvm.IRModule:
    """Nothing of the prelude is used."""
    mod, x = with_lists(), tensor("x")
    mod["main"] = relay.Function([x], relay.tanh(layer(x)))
    return mod


def several_callers() -> tvm.IRModule:
    mod, inner = tvm.IRModule(), relay.GlobalVar("inner")
    y, x = tensor("y"), tensor("x")
    mod[inner] = relay.Function([y], layer(y), TENSOR)
    for name in "ab":
        z = tensor("z")
        mod[name] = relay.Function([z], relay.tanh(inner(relay.exp(z))), TENSOR)
    mod["main"] = relay.Function([x], relay.add(mod.get_global_var("a")(x), mod.get_global_var("b")(inner(x))))
    return mod


MODULES = [loop, closure_over_a_value, function_that_returns_one, function_that_is_passed, function_that_is_chosen,
           function_called_in_place, recursion_with_a_function, any_type, lets, lets_and_branches, lists,
           a_type_of_its_own, tensor_array, prelude_beside, several_callers]


def run(mod, target):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32") / 2
    return flat(vm.VirtualMachine(relay.vm.compile(mod, target=target), tvm.cpu()).run(x))


@pytest.mark.parametrize("make", MODULES, ids=lambda make: make.__name__)
def test_the_same_as_tvm(make, caplog):
    mod = relay.transform.InferType()(make())
    with caplog.at_level(logging.WARNING, logger="tvm_megcc"):
        partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    report = megcc.report(partitioned)
    assert not report.theirs and sum(report.ours.values()) >= 3, str(report)
    assert not caplog.records
    assert {var.name_hint for var in mod.type_definitions} == {var.name_hint for var in partitioned.type_definitions}
    assert_same(run(partitioned, TARGET), run(mod, LLVM))


def test_references_are_left_to_the_interpreter(caplog):
    """No other executor of TVM takes them, and it takes no regions."""
    mod = relay.transform.InferType()(references())
    with caplog.at_level(logging.WARNING, logger="tvm_megcc"):
        partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    (record,) = caplog.records
    assert record.getMessage().startswith("nothing was partitioned: main has references, which of TVM's executors only")
    assert not megcc.report(partitioned).regions
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    results = [flat(relay.create_executor("debug", mod=each, device=tvm.cpu(), target=LLVM).evaluate()(x))
               for each in (partitioned, mod)]
    assert_same(*results)


def test_lets_alone_are_one_region_of_the_graph_executor():
    """They are data flow, only written down in another way."""
    mod = relay.transform.InferType()(lets())
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    assert len(megcc.report(partitioned).regions) == 1 and "let" not in str(partitioned["main"])
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    wanted = flat(vm.VirtualMachine(relay.vm.compile(mod, target=LLVM), tvm.cpu()).run(x))
    assert_same(run_graph(partitioned, [x]), wanted)


def test_a_loop_over_shapes_that_change():
    count, state = relay.var("count", shape=(), dtype="int32"), relay.var("state", shape=(relay.Any(), 4))
    x = relay.var("x", shape=(relay.Any(), 4))
    grow = relay.loops.while_loop(
        lambda i, _: relay.less(i, relay.const(2)), [count, state],
        lambda i, s: (relay.add(i, relay.const(1)), relay.concatenate([s, relay.nn.relu(s)], 0)))
    mod = relay.transform.InferType()(of_main(x, relay.tanh(relay.TupleGetItem(grow(relay.const(0), x), 1))))
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    assert not megcc.report(partitioned).theirs
    assert_same(run(partitioned, TARGET), run(mod, LLVM))


def test_a_scan_that_begins_empty():
    """An ONNX Loop collects its rows in a tensor of no rows, and may end before the first one."""
    body = graph_proto([node("Add", "state one", "next"), node("Identity", "go", "more"), node("Tanh", "next", "row")],
                       {"i": ("int64", []), "go": ("bool", []), "state": [4]},
                       {"more": ("bool", []), "next": [4], "row": [4]})
    proto = model([node("Loop", "count yes x", "last rows", body=body), node("Mul", "rows rows", "y")],
                  {"count": ("int64", []), "x": [4]}, {"last": [4], "y": [None, 4]},
                  {"yes": np.array(True), "one": np.linspace(0.1, 0.4, 4, dtype=np.float32)}, 13)
    mod, params = relay.frontend.from_onnx(proto, {"count": (), "x": (4,)}, {"count": "int64", "x": "float32"},
                                           freeze_params=True)
    partitioned = megcc.partition_for_megcc(mod, params, target=TARGET)
    assert megcc.report(partitioned).theirs == {"dyn.broadcast_to": 1}
    machines = [vm.VirtualMachine(relay.vm.compile(each, target=target, params=params), tvm.cpu())
                for each, target in ((partitioned, TARGET), (mod, LLVM))]
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    for count in (0, 3):
        ours, of_tvm = (flat(machine.run(np.asarray(count, np.int64), x)) for machine in machines)
        assert len(ours[1]) == count
        assert_same(ours, of_tvm)


def test_names_do_not_depend_on_what_was_made_before():
    """TVM counts variables through the life of a process; a region's names, and so what is cached, must not."""
    strings = [str(megcc.partition_for_megcc(relay.transform.InferType()(lets_and_branches()), target=TARGET)["main"])
             for _ in range(2)]
    assert strings[0] == strings[1]


def test_a_function_that_tvm_fails_on_is_left_to_it(caplog, monkeypatch):
    """With a warning that names it; the others are partitioned."""
    fails = relay.transform.MergeCompilerRegions

    def merge():
        @tvm.transform.module_pass(opt_level=0)
        def run(mod, _context):
            if "trunc" in str(mod["main"]):
                raise tvm.TVMError("Traceback\n  somewhere\nCheck failed: it is odd")
            return fails()(mod)
        return run

    mod, inner = tvm.IRModule(), relay.GlobalVar("inner")
    y, x = tensor("y"), tensor("x")
    mod[inner] = relay.Function([y], relay.exp(relay.trunc(y)), TENSOR)
    mod["main"] = relay.Function([x], relay.tanh(inner(x)))
    monkeypatch.setattr(relay.transform, "MergeCompilerRegions", merge)
    with caplog.at_level(logging.WARNING, logger="tvm_megcc"):
        partitioned = megcc.partition_for_megcc(relay.transform.InferType()(mod), target=TARGET)
    (record,) = caplog.records
    assert record.getMessage() == "inner is left to TVM, whose passes fail on it: Check failed: it is odd"
    report = megcc.report(partitioned)
    assert report.ours == {"tanh": 1} and report.theirs == {"exp": 1, "trunc": 1}


def test_by_itself():
    """The stand-alone compiler takes lets, and says what else there is."""
    import tvm_megcc

    artifact = tvm_megcc.compile(relay.transform.InferType()(lets()), "c")
    assert artifact.container
    with pytest.raises(tvm_megcc.MegccError, match="cannot be imported"):
        tvm_megcc.compile(relay.transform.InferType()(references()), "c")
