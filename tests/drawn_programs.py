# SPDX-License-Identifier: Apache-2.0
"""Random ONNX programs with data-dependent extents and nested branches, loops and scans.

The inputs are x [6, 4] and y [5] of float32, n, i and j [1] of int64, and a bool flag. All computed values are float32
(integer results are cast) of rank 1 or 2, so that most steps accept any value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from tests.onnx_models import graph_proto, model, node, value

ROWS, COLUMNS, LENGTH = 6, 4, 5
INPUTS = {"x": ("float32", [ROWS, COLUMNS]), "y": ("float32", [LENGTH]), "n": ("int64", [1]), "i": ("int64", [1]),
          "j": ("int64", [1]), "flag": ("bool", [])}
CONSTANTS = {"zero": [0], "one": [1], "two": [2], "three": [3], "minus": [-1], "far": [2**40], "scalar_one": 1,
             "scalar_zero": 0, "columns": [COLUMNS], "as_rows": [-1, COLUMNS], "nothing": np.array([], np.int64),
             "first": [1], "last": [-1], "five": [5], "four": 4, "yes": True,
             "half": np.float32(0.5), "none": np.float32(0), "unit": np.float32(1),
             "share": np.array([0.4], np.float32), "least": np.array([0.1], np.float32)}


@dataclass(frozen=True)
class Value:
    """A float32 value.

    columns: the extent of axis 1, which is COLUMNS or, if it is only known at run time, 0. None for a value of rank 1.
    rows: the extent of axis 0, None if it is only known at run time.
    """

    name: str
    columns: int | None
    rows: int | None = None


@dataclass
class Scope:
    """A graph under construction. values: those that its nodes may read, of outer graphs too. depth: of nesting."""

    values: list[Value]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    depth: int = 0


class Program:
    """Constructs a program. made: the number of names given. scope: the graph that nodes are added to."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.made = 0
        self.scope = Scope([Value("x", COLUMNS, ROWS), Value("y", None, LENGTH)])
        self.constants = {name: np.asarray(array) for name, array in CONSTANTS.items()}
        self.constants["matrix"] = self.random.normal(size=(COLUMNS, COLUMNS)).astype(np.float32) / 2
        self.constants["row"] = self.random.normal(size=COLUMNS).astype(np.float32)

    # Random choices.

    def any_of(self, choices):
        return choices[int(self.random.integers(len(choices)))]

    def name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def add(self, kind: str, inputs: str, **attributes) -> str:
        result = self.name()
        self.scope.nodes.append(node(kind, inputs, result, **attributes))
        return result

    def pick(self, rank: int | None = None, columns: bool = False) -> Value:
        """Returns a random value, more often one of the last four. columns: whether its columns must be known."""
        fits = [each for each in self.scope.values
                if (rank is None or (rank == 1) == (each.columns is None)) and (not columns or each.columns)]
        return self.any_of(fits[-4:] if self.random.random() < 0.7 else fits)

    def extent(self, of: Value, axis: int = 0) -> str:
        """Returns an extent of a value, int64 [1]."""
        shape = self.add("Shape", of.name)
        return self.add("Slice", f"{shape} zero one" if axis == 0 else f"{shape} one two")

    def scalar(self, one: str) -> str:
        return self.add("Reshape", f"{one} nothing")

    def number(self) -> str:
        """Returns a number from 0 to 4 that is computed at run time, int64 [1]."""
        kind = self.random.integers(4)
        if kind == 0:
            return "n"
        if kind == 1:
            return self.add("Mod", f"{self.extent(self.pick())} three")
        if kind == 2:
            some = self.add("ReduceSum", self.add("Cast", self.add("Greater", f"{self.pick().name} half"), to=7),
                            keepdims=0)
            return self.add("Reshape", f"{self.add('Mod', some + ' four')} one")
        return self.add("Min", f"n {self.extent(self.pick())}")

    def ramp(self, of: Value) -> str:
        """Returns the vector 0.5, 1, 1.5, … with as many elements as a value has rows."""
        halves = self.add("ConstantOfShape", self.extent(of), value=helper.make_tensor("value", 1, [1], [0.5]))
        return self.add("CumSum", f"{halves} scalar_zero")

    def condition(self) -> str:
        kind = self.random.integers(3)
        if kind == 0:
            return "flag"
        if kind == 1:
            total = self.add("ReduceSum", self.pick().name, keepdims=0)
            return self.add("Greater", f"{total} none")
        return self.add("Reshape", f"{self.add('Less', f'{self.number()} two')} nothing")

    def floats(self, integers: str) -> str:
        return self.add("Cast", integers, to=1)

    # Steps: each adds nodes and returns a value.

    def step(self) -> None:
        """Adds a random step. Control flow is nested at most two deep."""
        steps = STEPS + CONTROL * (2 if self.scope.depth == 0 else 1) if self.scope.depth < 2 else STEPS
        self.scope.values.append(getattr(self, self.any_of(steps))())

    def unary(self) -> Value:
        x = self.pick()
        kind = self.any_of(["Tanh", "Neg", "Abs", "Sigmoid", "Relu", "Floor"])
        return Value(self.add(kind, x.name), x.columns, x.rows)

    def with_itself(self) -> Value:
        x = self.pick()
        other = self.add(self.any_of(["Tanh", "Neg", "Sin"]), x.name)
        return Value(self.add(self.any_of(["Add", "Mul", "Sub", "Max"]), f"{x.name} {other}"), x.columns, x.rows)

    def with_row(self) -> Value:
        x = self.pick(2, columns=True)
        if self.random.random() < 0.5:
            return Value(self.add("Tanh", self.add("MatMul", f"{x.name} matrix")), COLUMNS, x.rows)
        return Value(self.add("Add", f"{x.name} row"), COLUMNS, x.rows)

    def product(self) -> Value:
        x = self.pick(2, columns=True)
        across = self.add("MatMul", f"{x.name} {self.add('Transpose', x.name, perm=[1, 0])}")
        return Value(self.add("Softmax", across, axis=1), 0, x.rows)

    def joined(self) -> Value:
        if self.random.random() < 0.5:
            x, y = self.pick(1), self.pick(1)
            return Value(self.add("Concat", f"{x.name} {y.name}", axis=0), None)
        x, y = self.pick(2, columns=True), self.pick(2, columns=True)
        return Value(self.add("Concat", f"{x.name} {y.name}", axis=0), COLUMNS)

    def reduced(self) -> Value:
        x = self.pick(2)
        axis = int(self.random.integers(2))
        kind = self.any_of(["ReduceSum", "ReduceL1", "ReduceSumSquare"])
        if kind == "ReduceSum":
            kept = self.add(kind, f"{x.name} {'one' if axis else 'zero'}", keepdims=1 - axis)
        else:
            kept = self.add(kind, x.name, axes=[axis], keepdims=1 - axis)
        return Value(kept, None, x.rows) if axis else Value(kept, x.columns, 1)

    def compressed(self) -> Value:
        x = self.pick()
        if x.columns is None:
            return Value(self.add("Compress", f"{x.name} {self.add('Less', f'{x.name} half')}", axis=0), None)
        kind = self.random.integers(3)
        if kind == 0:
            flat = self.add("Reshape", f"{self.add('Greater', f'{x.name} none')} minus")
            return Value(self.add("Compress", f"{x.name} {flat}"), None)
        total = self.add("ReduceSum", f"{x.name} one" if kind == 1 else f"{x.name} zero", keepdims=0)
        chosen = self.add("Compress", f"{x.name} {self.add('Less', f'{total} half')}", axis=0 if kind == 1 else 1)
        return Value(chosen, x.columns if kind == 1 else 0)

    def found(self) -> Value:
        x = self.pick()
        places = self.add("Transpose", self.add("NonZero", self.add("Relu", x.name)))
        if self.random.random() < 0.4:
            wide = self.floats(places)
            return Value(self.add("Reshape", f"{wide} minus"), None)
        return Value(self.add("GatherND", f"{x.name} {places}"), None)

    def best(self) -> Value:
        x = self.pick()
        axis = 0 if x.columns is None else int(self.random.integers(2))
        count = self.add("Min", f"{self.number()} {self.extent(x, axis)}")
        values, indices = self.name(), self.name()
        self.scope.nodes.append(node("TopK", f"{x.name} {count}", f"{values} {indices}", axis=axis,
                                     largest=int(self.random.integers(2))))
        result = values if self.random.random() < 0.6 or x.name not in INPUTS else self.floats(indices)
        return Value(result, None if x.columns is None else 0 if axis else x.columns)

    def counted_up(self) -> Value:
        kind = self.random.integers(4)
        if kind == 0:
            return Value(self.floats(self.add("Range", f"scalar_zero {self.scalar(self.number())} scalar_one")), None)
        if kind == 1:
            ends = [self.scalar(self.floats(self.number())) for _ in range(2)]
            return Value(self.add("Range", f"{ends[0]} {ends[1]} half"), None)
        if kind == 2:
            ends = [self.scalar(each) for each in ("i", "j", "last")]
            return Value(self.floats(self.add("Range", " ".join(ends))), None)
        return Value(self.floats(self.add("Range", f"scalar_zero {self.scalar(self.extent(self.pick()))} scalar_one")),
                     None)

    def sliced(self) -> Value:
        x = self.pick()
        axis = 0 if x.columns is None else int(self.random.integers(2))
        axes = "zero" if axis == 0 else self.any_of(["one", "last"])
        start, end = self.any_of(["i", "zero", "one", "last"]), self.any_of(["j", "far", "i", "last"])
        step = self.any_of(["", " one", " two", " last"])
        if self.random.random() < 0.3:
            start = self.number()
        return Value(self.add("Slice", f"{x.name} {start} {end} {axes}{step}"),
                     None if x.columns is None else 0 if axis else x.columns)

    def tiled(self) -> Value:
        x = self.pick()
        often = self.add("Min", f"{self.number()} three")
        if x.columns is None:
            return Value(self.add("Tile", f"{x.name} {often}"), None)
        kind = self.random.integers(3)
        repeats = [f"{often} one", f"one {often}", f"{often} {often}"][kind]
        return Value(self.add("Tile", f"{x.name} {self.add('Concat', repeats, axis=0)}"), 0 if kind else x.columns)

    def padded(self) -> Value:
        x = self.pick()
        some = [self.number() for _ in range(2)]
        mode = self.any_of(["constant", "constant", "edge", "reflect"])
        mode = mode if x.rows else "constant"  # of no rows there is nothing to repeat
        ends = f"{some[0]} {some[1]}" if x.columns is None else f"{some[0]} zero {some[1]} zero"
        pads = self.add("Concat", ends, axis=0)
        number = " half" if mode == "constant" else ""
        return Value(self.add("Pad", f"{x.name} {pads}{number}", mode=mode), x.columns)

    def expanded(self) -> Value:
        x = self.pick()
        if x.columns is None:
            wide = self.add("Unsqueeze", f"{x.name} one")
            shape = self.add("Concat", f"one {self.any_of(['columns', self.number()])}", axis=0)
            result = self.add("Expand", f"{wide} {shape}")
            return Value(result, 0)
        row = self.add("ReduceMax", x.name, axes=[0], keepdims=1)
        shape = self.add("Concat", f"{self.number()} one", axis=0)
        return Value(self.add("Expand", f"{row} {shape}"), x.columns)

    def reshaped(self) -> Value:
        x = self.pick()
        if x.columns is None:
            both = self.add("Concat", f"{self.extent(x)} one", axis=0)
            return Value(self.add("Reshape", f"{x.name} {both}"), 0)
        kind = self.random.integers(3)
        if kind == 0:
            return Value(self.add("Reshape", f"{x.name} minus"), None)
        if kind == 1 and x.columns:
            half = self.add("Div", f"{self.add('Reshape', self.add('Size', x.name) + ' one')} two")
            flat = self.add("Reshape", f"{x.name} {self.add('Concat', f'two {half}', axis=0)}", allowzero=1)
            return Value(self.add("Reshape", f"{flat} as_rows"), COLUMNS)
        return Value(self.add("Transpose", x.name, perm=[1, 0]), 0)

    def filled(self) -> Value:
        x = self.pick()
        tensor = helper.make_tensor("value", 1, [1], [0.25])
        kind = self.random.integers(2)
        shape = self.add("Shape", x.name) if kind == 0 else self.number()
        rank1 = kind == 1 or x.columns is None
        return Value(self.add("ConstantOfShape", shape, value=tensor), None if rank1 else x.columns)

    def suppressed(self) -> Value:
        x = self.pick(2, columns=True)
        boxes = self.add("Unsqueeze", f"{x.name} zero")
        # The ramp makes scores differ by more than rounding, which would otherwise decide which boxes are kept.
        score = self.add("Add", f"{self.add('ReduceMax', x.name, axes=[1], keepdims=0)} {self.ramp(x)}")
        scores = self.add("Reshape", f"{score} {self.add('Concat', f'one one {self.extent(x)}', axis=0)}")
        most = self.any_of(["two", "five", self.number()])
        kept = self.add("NonMaxSuppression", f"{boxes} {scores} {most} share {self.any_of(['least', ''])}".strip())
        which = self.add("Squeeze", f"{self.add('Slice', f'{kept} two far one')} one")
        return Value(self.add("Gather", f"{x.name} {which}", axis=0), COLUMNS)

    def gathered(self) -> Value:
        x = self.pick()
        indices = self.add("Range", f"scalar_zero {self.scalar(self.extent(x))} scalar_one")
        backward = self.add("Slice", f"{indices} last {self.any_of(['minus', 'zero'])} zero last")
        return Value(self.add("Gather", f"{x.name} {backward}", axis=0), x.columns)

    def summed_up(self) -> Value:
        x = self.pick()
        return Value(self.add("CumSum", f"{x.name} scalar_zero"), x.columns, x.rows)

    def selected(self) -> Value:
        x = self.pick()
        other = self.add("Neg", x.name)
        return Value(self.add("Where", f"{self.add('Greater', f'{x.name} half')} {x.name} {other}"), x.columns, x.rows)

    # Control flow.

    def inside(self, values: list[Value], steps: int) -> Scope:
        """Returns a new inner graph with random steps. values: those that it may read besides the outer ones."""
        outer, self.scope = self.scope, Scope([*self.scope.values, *values], [], self.scope.depth + 1)
        for _ in range(steps):
            self.step()
        inner, self.scope = self.scope, outer
        return inner

    def within(self, scope: Scope, draw):
        """Calls `draw`, which adds nodes to an inner graph, and returns its result."""
        outer, self.scope = self.scope, scope
        result = draw()
        self.scope = outer
        return result

    def branch(self) -> Value:
        condition = self.condition()
        alike = self.random.random() < 0.5
        like, bodies, results = self.pick(), [], []
        for _ in range(2):
            scope = self.inside([], int(self.random.integers(1, 3)))
            if alike:
                def draw():
                    total = self.add("ReduceSum", self.scope.values[-1].name, keepdims=0)
                    return Value(self.add("Add", f"{like.name} {self.add('Tanh', total)}"), like.columns, like.rows)
                result = self.within(scope, draw)
            else:
                fits = [each for each in scope.values if (each.columns is None) == (like.columns is None)]
                result = self.any_of(fits[-3:])
                result = Value(self.within(scope, lambda: self.add("Identity", result.name)), result.columns)  # noqa: B023
            results.append(result)
            bodies.append(graph_proto(scope.nodes, {}, [value(result.name)], name=self.name()))
        made = self.name()
        self.scope.nodes.append(helper.make_node("If", [condition], [made], made, then_branch=bodies[0],
                                                 else_branch=bodies[1]))
        columns = {each.columns for each in results}
        return Value(made, like.columns if alike else columns.pop() if len(columns) == 1 else 0)

    def loop(self) -> Value:
        """Adds a Loop: it carries a value that keeps its shape and maybe one that grows, and has a scan output."""
        start, growing = self.pick(), self.pick()
        grows = self.random.random() < 0.5
        most = self.any_of(["", "four", "n", self.scalar(self.number())])
        most = self.scalar("n") if most == "n" else most
        counted = most == "" or self.random.random() < 0.4
        names = [self.name() for _ in range(5)]
        turn, going, kept, grown, ends = names
        inside = [Value(kept, start.columns, start.rows)] + ([Value(grown, growing.columns)] if grows else [])
        scope = self.inside(inside, int(self.random.integers(1, 3)))

        def draw() -> list[str]:
            total = self.add("Tanh", self.add("ReduceSum", self.scope.values[-1].name, keepdims=0))
            results = [self.add("Add", f"{kept} {total}")]
            if grows:
                fits = [each for each in self.scope.values if each.columns == growing.columns
                        and (each.columns or each.columns is None)] or [growing]
                extra = self.any_of([fits[-1], Value("y", None) if growing.columns is None else fits[0]])
                if growing.columns == 0:
                    results.append(self.add("Slice", f"{grown} one far zero"))
                elif self.random.random() < 0.6:
                    extra = "y" if growing.columns is None else self.add("Reshape", "row as_rows")
                    results.append(self.add("Concat", f"{grown} {extra}", axis=0))
                else:
                    few = self.add("Slice", f"{extra.name} zero two zero")
                    results.append(self.add("Concat", f"{few} {grown}", axis=0))
            stop = self.add("Less", f"{turn} scalar_{self.any_of(['one', 'zero'])}") if counted \
                else self.add("Identity", going)
            if counted and self.random.random() < 0.5:
                stop = self.add("Less", f"{turn} {self.scalar('n')}")
            results.append(self.add("Mul", f"{results[0]} half"))
            return [stop, *results]

        stop, *results = self.within(scope, draw)
        inputs = [value(turn, [], "int64"), value(going, [], "bool"), value(kept), *([value(grown)] if grows else [])]
        body = graph_proto(scope.nodes, inputs, [value(stop, [], "bool"), *map(value, results)], name=self.name())
        outputs = [self.name() for _ in results]
        self.scope.nodes.append(helper.make_node(
            "Loop", [most, self.any_of(["", "yes", "flag"]), start.name, *([growing.name] if grows else [])], outputs,
            ends, body=body))
        found = [Value(outputs[0], start.columns, start.rows)]
        if grows:
            found.append(Value(outputs[1], growing.columns))
        if start.columns is None:
            found.append(Value(outputs[-1], start.rows if start.rows == COLUMNS else 0))
        return self.any_of(found)

    def scan(self) -> Value:
        over, state = self.pick(2), self.pick(1)
        scope_names = [self.name() for _ in range(2)]
        held, row = scope_names
        backward = int(self.random.integers(2))
        scope = self.inside([Value(held, None, state.rows), Value(row, None, over.columns or None)],
                            int(self.random.integers(1, 3)))

        def draw() -> list[str]:
            total = self.add("Tanh", self.add("ReduceSum", self.scope.values[-1].name, keepdims=0))
            return [self.add("Add", f"{held} {total}"), self.add("Mul", f"{row} {total}")]

        results = self.within(scope, draw)
        body = graph_proto(scope.nodes, [value(held), value(row)], [value(name) for name in results], name=self.name())
        outputs = [self.name(), self.name()]
        self.scope.nodes.append(helper.make_node("Scan", [state.name, over.name], outputs, outputs[0], body=body,
                                                 num_scan_inputs=1, scan_input_directions=[backward],
                                                 scan_output_directions=[int(self.random.integers(2))]))
        return self.any_of([Value(outputs[0], None, state.rows), Value(outputs[1], over.columns, over.rows)])


STEPS = ["unary", "with_itself", "with_row", "product", "joined", "reduced", "compressed", "found", "best",
         "counted_up", "sliced", "tiled", "padded", "expanded", "reshaped", "filled", "suppressed", "gathered",
         "summed_up", "selected"]
CONTROL = ["branch", "loop", "scan"]


def drawn(seed: int) -> onnx.ModelProto:
    """Returns a program of a few steps, whose outputs are all values that it computes."""
    program = Program(seed)
    for _ in range(int(program.random.integers(2, 7))):
        program.step()
    outputs = [value(each.name, [f"{each.name}_{axis}" for axis in range(1 if each.columns is None else 2)])
               for each in program.scope.values[2:]]
    return model(program.scope.nodes, INPUTS, outputs, program.constants, opset=17)


def inputs(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    """Returns inputs for `count` runs of a program. x is shifted by a number that differs between runs, so that runs
    take different branches."""
    random, runs = np.random.default_rng(seed), []
    for shift in (0.0, 9.0, -9.0, 0.5)[:count]:
        runs.append({"x": (random.normal(size=(ROWS, COLUMNS)) + shift).astype(np.float32),
                     "y": random.normal(size=LENGTH).astype(np.float32), "n": random.integers(0, 5, 1),
                     "i": random.integers(-7, 7, 1), "j": random.integers(-7, 7, 1),
                     "flag": np.array(random.random() < 0.6)})
    return runs
