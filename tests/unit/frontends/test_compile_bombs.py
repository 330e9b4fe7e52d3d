# SPDX-License-Identifier: Apache-2.0
"""Small files that ask for much: work and memory of a compilation are bounded by what the model holds."""

import itertools
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import onnx_models
from tvm_megcc.compiler import compile_graph, lower
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError, ModelError, ShapeError
from tvm_megcc.frontends.onnx import folding, import_onnx, nodes
from tvm_megcc.ir import expr
from tvm_megcc.ir.dims import Symbol, dim_max, dim_min, to_c
from tvm_megcc.ir.graph import Attrs, Op, toposort
from tvm_megcc.ir.types import TensorType
from tvm_megcc.kernels.integer import tiles
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

node = helper.make_node


def model(nodes, inputs=(("x", [4]),), outputs=("y",), constants=(), functions=()) -> bytes:
    return onnx_models.model(nodes, dict(inputs), outputs, dict(constants), opset=18,
                             functions=functions).SerializeToString()


def chain(op_type: str, count: int, operands: int = 1) -> list[onnx.NodeProto]:
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    return [node(op_type, [before] * operands, [after]) for before, after in itertools.pairwise(names)]


def agrees(nodes, x=1e-9, **more) -> None:
    """The graph that comes out of the passes computes what the imported one does."""
    graph = import_onnx(model(nodes, **more))
    lowered = lower(graph, Context(TARGETS["c"])).plan.graph
    fused = [op.attrs.expr for op in lowered.ops if op.kind == "elementwise"]
    fused += [op.epilogue for op in lowered.ops if op.epilogue is not None]
    assert fused and all(expr.size(expression) <= expr.MAX_EXPRESSION_CALLS for expression in fused)
    assert len(lowered.ops) < len(graph.ops)
    feeds = {name: np.full(graph.types[name].shape, x, np.float32) for name in graph.inputs}
    for wanted, given in zip(run(graph, feeds).values(), run(lowered, feeds).values(), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-4)


@pytest.mark.parametrize("op_type, count, operands", [("Add", 60, 2), ("Mul", 9, 2), ("Abs", 400, 1), ("Neg", 1000, 1)])
def test_chains_are_fused_in_pieces(op_type, count, operands):
    agrees(chain(op_type, count, operands), 0.9)


def test_epilogues_are_too():
    doubled = chain("Add", 40, 2)
    doubled[0] = node("Conv", ["x", "w"], ["v1"])
    agrees(doubled, inputs=[("x", [1, 4, 3, 3])], constants={"w": np.ones((4, 4, 1, 1), np.float32)})


def test_a_kernel_of_a_long_chain():
    """Through the whole compiler, in the default recursion limit of Python."""
    artifact = compile_graph(import_onnx(model(chain("Sin", 700))), [TARGETS["c"]])
    assert len(artifact.sources) <= 4


def test_nodes_may_come_in_any_order():
    """Backwards, each node would have to wait for all others to be looked at once more."""
    graph = import_onnx(model(chain("Abs", 4000)[::-1]))
    assert len(graph.ops) == 4000 and graph.ops[0].inputs == ("x",)


def function(name: str, callees, attribute: str = "") -> onnx.FunctionProto:
    names = ["x", *(f"v{index}" for index in range(len(callees) - 1)), "y"]
    nodes = [node(callee, [before], [after], domain="my" if callee.startswith("F") else "")
             for callee, (before, after) in zip(callees, itertools.pairwise(names), strict=True)]
    return helper.make_function("my", name, ["x"], ["y"], nodes,
                                [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)])


def test_functions_that_double(monkeypatch):
    monkeypatch.setattr("tvm_megcc.frontends.onnx.nodes.NODE_BUDGET", 1000)
    functions = [function(f"F{index}", [f"F{index + 1}"] * 2) for index in range(25)] + [function("F25", ["Abs"])]
    with pytest.raises(ModelError, match=r"expand to more than [\d,]+ nodes"):
        import_onnx(model([node("F0", ["x"], ["y"], domain="my")], functions=functions))


def test_functions_within_functions():
    functions = [function(f"F{index}", [f"F{index + 1}"]) for index in range(300)] + [function("F300", ["Abs"])]
    with pytest.raises(ModelError, match="functions call functions 40 deep"):
        import_onnx(model([node("F0", ["x"], ["y"], domain="my")], functions=functions))
    graph = import_onnx(model([node("F270", ["x"], ["y"], domain="my")], functions=functions))
    assert [op.kind for op in graph.ops] == ["abs"]


def test_functions_may_be_used_often():
    functions = [function("F0", ["Abs"] * 20)]
    assert len(import_onnx(model([node("F0", ["x"], [f"y{index}"], domain="my") for index in range(50)],
                                 outputs=[f"y{index}" for index in range(50)], functions=functions)).ops) == 1000


INT64 = np.int64
BOMBS = {
    "constant of shape": ([node("ConstantOfShape", ["s"], ["c"])], {"s": INT64([500_000_000])}),
    "of eight": ([*(node("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(40)),
                  node("Sum", [f"c{i}" for i in range(40)], ["c"])], {"s": INT64([15_000_000])}),
    "range": ([node("Range", ["a", "b", "d"], ["c"])],
              {"a": np.float32(0), "b": np.float32(1e9), "d": np.float32(1)}),
    "endless range": ([node("Range", ["a", "b", "d"], ["c"])],
                      {"a": np.float32(0), "b": np.float32(np.inf), "d": np.float32(1)}),
    "eye": ([node("ConstantOfShape", ["s"], ["z"]), node("EyeLike", ["z"], ["c"])], {"s": INT64([12000, 12000])}),
    "one hot": ([node("OneHot", ["i", "n", "v"], ["c"])],
                {"i": INT64([[1] * 100]), "n": INT64(10_000_000), "v": np.float32([0, 1])}),
    "negative": ([node("ConstantOfShape", ["s"], ["c"])], {"s": INT64([-4])}),
    "overflow": ([node("ConstantOfShape", ["s"], ["c"])], {"s": INT64([2**40, 2**40])}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_constants_of_gigabytes_are_refused(name):
    nodes, constants = BOMBS[name]
    with pytest.raises(ModelError):
        import_onnx(model([*nodes, node("ReduceSum", ["c"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])],
                          constants=constants))


@pytest.mark.parametrize("nodes, constants", [
    ([node("Expand", ["o", "s"], ["c"])], {"s": INT64([300, 300, 300])}),
    ([node("Tile", ["o", "s"], ["c"])], {"s": INT64([300, 300, 300])}),
    ([node("Pad", ["o", "s"], ["c"])], {"s": INT64([0, 0, 0, 300, 300, 300])}),
    ([node("Resize", ["o", "", "", "s"], ["c"])], {"s": INT64([300, 300, 300])})],
    ids=["expand", "tile", "pad", "resize"])
def test_what_grows_is_computed_by_the_model(nodes, constants):
    """Where there is a kernel for it, no constant of a hundred megabytes is made."""
    graph = import_onnx(model([*nodes, node("ReduceSum", ["c"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])],
                              constants={"o": np.ones((1, 1, 1), np.float32), **constants}))
    assert sum(array.nbytes for array in graph.constants.values()) < folding.MAX_RESULT_BYTES


#: Nodes that ask for tables by attributes and extents, as (inputs of the model, constants, node): each is refused, or
#: the model makes the table in every run.
TABLES = {
    "dft": ([("x", [1, 60_000, 1])], {}, node("DFT", ["x"], ["y"])),
    "dft length": ([("x", [1, 8, 1])], {"n": INT64(2**40)}, node("DFT", ["x", "n"], ["y"])),
    "dft of pairs": ([("x", [1, 8, 1])], {"n": INT64(2**27)}, node("DFT", ["x", "n"], ["y"], onesided=1)),
    "stft": ([("x", [1, 2_000_000, 1])], {"s": INT64(1), "w": np.ones(4000, np.float32)},
             node("STFT", ["x", "s", "w"], ["y"])),
    "mel": ([("x", [1])], {"b": INT64(100_000), "l": INT64(100_000), "r": INT64(8000), "f": np.float32(0),
                           "t": np.float32(4000)}, node("MelWeightMatrix", list("blrft"), ["y"])),
    "resize": ([("x", [1, 1, 1, 1])], {"s": INT64([1, 1, 1, 2_000_000_000])},
               node("Resize", ["x", "", "", "s"], ["y"], mode="linear")),
    "antialias": ([("x", [1, 1, 1, 300_000_000])], {"s": np.float32([1, 1, 1, 1e-6])},
                  node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)),
    "crop": ([("x", [1, 1, 1, 1])], {"r": np.float32([0, 0, 0, 0, 1, 1, 1, 2]), "s": INT64([1, 1, 1, 2_000_000_000])},
             node("Resize", ["x", "r", "", "s"], ["y"], coordinate_transformation_mode="tf_crop_and_resize")),
    "one hot": ([("x", [1])], {"d": INT64(2**40), "v": np.float32([0, 1])}, node("OneHot", ["x", "d", "v"], ["y"])),
    "hardmax": ([("x", [500_000_000])], {}, node("Hardmax", ["x"], ["y"], axis=0)),
    "triangle": ([("x", [20_000, 20_000])], {}, node("Trilu", ["x"], ["y"])),
    "long triangle": ([("x", [500_000_000, 1])], {}, node("Trilu", ["x"], ["y"])),
    "eye": ([("x", [20_000, 20_000])], {}, node("EyeLike", ["x"], ["y"])),
    "diagonal": ([("x", [20_000, 20_000])], {}, node("Einsum", ["x"], ["y"], equation="ii->i")),
    "dropout": ([("x", [500_000_000])], {}, node("Dropout", ["x"], ["z", "y"])),
    "bias": ([("x", [1, 1]), ("b", [1, 400_000_000])], {"c": np.ones(1, np.float32)},
             node("Gemm", ["x", "b", "c"], ["y"])),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_bounded(name):
    inputs, constants, asked = TABLES[name]
    try:
        graph = import_onnx(model([asked], inputs, constants=constants))
    except ModelError as error:
        assert "contradict" not in str(error)
    else:
        assert sum(array.nbytes for array in graph.constants.values()) < folding.MAX_REQUIRED_BYTES


def test_many_tables_are_bounded():
    nodes = [node("EyeLike", ["x"], [f"e{index}"]) for index in range(40)]
    with pytest.raises(ModelError, match="too much with others"):
        import_onnx(model([*nodes, node("Sum", [f"e{index}" for index in range(40)], ["y"])], [("x", [2000, 2000])]))


def test_weights_are_folded_whatever_their_size():
    """What grows with the model is no bomb: a table of weights, transposed, scaled and converted."""
    nodes = [node("Transpose", ["w"], ["t"]), node("Mul", ["t", "t"], ["u"]), node("Mul", ["x", "u"], ["y"])]
    graph = import_onnx(model(nodes, [("x", [1, 4])], constants={"w": np.ones((4, 5_000_000), np.float32)}))
    assert [op.kind for op in graph.ops] == ["mul"]


def test_folding_stops_when_enough_was_computed():
    work = folding.FoldingBudget()
    operands = [np.broadcast_to(np.float32(1), (1 << 22,))] * 2
    types = [import_onnx(model([node("Abs", ["x"], ["y"])], [("x", [1 << 22])])).types["x"]] * 2
    taken = [work.charge("add", Attrs(), operands, types, types[:1]) for _ in range(100)]
    assert taken.count(True) == folding.WORK_BUDGET // (3 << 24) and sorted(taken, reverse=True) == taken
    small = [np.zeros(4, np.float32)] * 2
    assert work.charge("add", Attrs(), small, [TensorType("float32", (4,))] * 2, [TensorType("float32", (4,))])


def test_extents_stay_formulas_that_can_be_used():
    n, m = Symbol("n"), Symbol("m")
    with pytest.raises(ShapeError, match="too long a formula"):
        square = n + m + 1
        for _ in range(20):
            square = square * square
    with pytest.raises(ShapeError, match="too long a formula"):
        turns = n
        for step in range(200):
            turns = dim_min(dim_max(turns, m + step) + 1, m * 2)
    assert to_c(n + m + 1) == "megcc_size_add(m, megcc_size_add(n, 1))"


def test_shapes_that_square_themselves():
    nodes = [node("Shape", ["x"], ["s0"])]
    nodes += [node("Mul", [f"s{index}"] * 2, [f"s{index + 1}"]) for index in range(12)]
    nodes += [node("Expand", ["o", "s12"], ["e"]), node("ReduceSum", ["e"], ["r"], keepdims=0),
              node("Add", ["x", "r"], ["y"])]
    with pytest.raises(MegccError):
        import_onnx(model(nodes, [("x", ["n"])], constants={"o": np.ones(1, np.float32)}))


def test_numbers_beside_symbols_stay_small():
    """[n, 3] squared again and again, with n put back each time: 3 to the power of 2^30."""
    nodes = [node("Shape", ["x"], ["n"]), node("Concat", ["n", "three"], ["s0"], axis=0),
             node("Concat", ["n", "n"], ["nn"], axis=0)]
    for index in range(30):
        nodes += [node("Mul", [f"s{index}"] * 2, [f"q{index}"]),
                  node("Where", ["first", "nn", f"q{index}"], [f"s{index + 1}"])]
    nodes += [node("Expand", ["o", "s30"], ["e"]), node("ReduceSum", ["e"], ["r"], keepdims=0),
              node("Add", ["x", "r"], ["y"])]
    with pytest.raises(ModelError, match="in too long a formula"):
        import_onnx(model(nodes, [("x", ["n"])], constants={
            "three": INT64([3]), "first": np.array([True, False]), "o": np.ones((1, 1), np.float32)}))


@pytest.mark.slow
def test_many_results_are_renamed_at_once():
    """10,000 results of one node, and as many of other names: quadratic work would be minutes."""
    count = 10_000
    parts, names = [f"p{index}" for index in range(count)], [f"y{index}" for index in range(count)]
    nodes = [node("Split", ["x"], parts, num_outputs=count), *map(node, ["Identity"] * count, zip(parts), zip(names))]
    graph = import_onnx(model(nodes, [("x", [count])], names))
    assert graph.outputs == tuple(names) and len(graph.ops) == count


def test_operators_are_sorted_in_one_pass():
    count = 20_000
    ops = [Op("neg", Attrs(), (f"v{index}",), (f"v{index + 1}",)) for index in range(count)]
    assert toposort(ops[::-1]) == tuple(ops)
    with pytest.raises(ValueError, match="neg"):
        toposort([*ops, Op("neg", Attrs(), (f"v{count}",), ("v0",))])


@pytest.mark.slow
def test_a_small_file_of_large_weights_is_compiled_within_4_gb(tmp_path):
    """The largest tables that two hundred bytes can ask for, compiled to the end, by a process of its own."""
    nodes = [node("ConstantOfShape", ["s"], ["w"]), node("ConstantOfShape", ["t"], ["v"]),
             node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["y"])]
    depth = 16384
    width = folding.MAX_REQUIRED_BYTES // 4 // depth - 1
    rest = (folding.WORK_BUDGET - folding.MAX_REQUIRED_BYTES) // 4 // width - 1
    constants = {"s": np.array([depth, width], np.int64), "t": np.array([width, rest], np.int64)}
    (tmp_path / "model.onnx").write_bytes(model(nodes, [("x", [1, depth])], constants=constants.items()))
    program = ("import resource, tvm_megcc; tvm_megcc.compile('model.onnx', 'c').save('made');"
               "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "made").is_dir() and int(found.stdout) < 4 << 20  # KB


def test_loops_deep_within_each_other(monkeypatch):
    """Each is imported more than once: to find out what goes round in it, and for good."""
    monkeypatch.setattr(nodes, "NODE_BUDGET", 100)

    def body(depth: int) -> onnx.GraphProto:
        names = [f"{name}{depth}" for name in ("turn", "going", "v", "on", "w")]
        inner = node("Add", [names[2], names[2]], [names[4]]) if depth == 0 else \
            node("Loop", ["n", "", names[2]], [names[4]], body=body(depth - 1))
        values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in zip(
            names, (TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.FLOAT),
            ([], [], [4], [], [4]), strict=True)]
        nodes = [node("Identity", [names[1]], [names[3]]), inner]
        return helper.make_graph(nodes, f"body{depth}", values[:3], values[3:])

    def nested(depth: int) -> bytes:
        given = helper.make_tensor_value_info("n", TensorProto.INT64, [])
        graph = helper.make_graph([node("Loop", ["n", "", "x"], ["y"], body=body(depth))], "nested",
                                  [given, helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()

    import_onnx(nested(2))
    with pytest.raises(ModelError, match=r"have more than 400 nodes"):
        import_onnx(nested(30))


def test_long_rows_of_tiles():
    """Tiles are added up one by one, of long rows some of them."""
    tile, isa = tiles.Tile(2, 0, (4, 3, 1)), TARGETS["c"].isa
    assert tiles._cycles(tile, isa, "", 4, 8, 2**40) == tiles._cycles(tile, isa, "", 4, 8, tiles._MAX_PIXELS)
