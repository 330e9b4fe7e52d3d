# SPDX-License-Identifier: Apache-2.0
"""Building, running and comparing Relay modules."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from .relay_or_skip import WITHOUT

os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # TVM would look for schedules in the network
pytest.importorskip("tvm", reason=WITHOUT)
relay = pytest.importorskip("tvm.relay", reason=WITHOUT)

import tvm  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402
from tvm.runtime import vm  # noqa: E402

import tvm_megcc.frontends.relay as megcc  # noqa: E402
from tests.tvm_cases import assert_same  # noqa: E402

TARGET = "megcc-c"
"""Scalar code compiles fast."""
#: TVM's own code, without the optimiser of LLVM: tests compile many modules and run each once.
LLVM = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def module(build, *operands) -> tvm.IRModule:
    """A module whose main is `build(*variables)`. operands: shapes, with None for Any, or (shape, dtype)."""
    variables = []
    for index, operand in enumerate(operands):
        shape, dtype = operand if operand and isinstance(operand[0], tuple) else (operand, "float32")
        variables.append(relay.var(f"x{index}", shape=[relay.Any() if d is None else d for d in shape], dtype=dtype))
    result = build(*variables)
    if isinstance(result, (tuple, list)):
        result = relay.Tuple(list(result))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, result)))


def weights(*shape: int, seed: int = 0):
    """A constant with values that keep activations in range."""
    generator = np.random.default_rng(seed + sum(shape))
    factor = np.sqrt(2 / (int(np.prod(shape[1:])) or 1))
    return relay.const((generator.standard_normal(shape) * factor).astype("float32"))


def conv_relu(x, channels: int = 8, seed: int = 0):
    """A convolution of three channels with its bias and activation."""
    y = relay.nn.conv2d(x, weights(channels, 3, 3, 3, seed=seed), padding=(1, 1))
    return relay.nn.relu(relay.nn.bias_add(y, weights(channels, seed=seed)))


def random_inputs(mod, extents: dict | None = None, seed: int = 0) -> list[np.ndarray]:
    """Seeded arrays for the parameters of main. extents: of axes that are Any, by parameter and axis."""
    generator = np.random.default_rng(seed)
    arrays = []
    for parameter in mod["main"].params:
        type_ = parameter.checked_type
        shape = [int(dim) if isinstance(dim, tvm.tir.IntImm) else extents[f"{parameter.name_hint}_{axis}"]
                 for axis, dim in enumerate(type_.shape)]
        if type_.dtype.startswith("float"):
            arrays.append(generator.standard_normal(shape).astype(type_.dtype))
        else:
            arrays.append(generator.integers(0, 5, shape).astype(type_.dtype))
    return arrays


def flat(result) -> list[np.ndarray]:
    return [result.numpy()] if hasattr(result, "numpy") else [array for item in result for array in flat(item)]


def evaluated(function, arrays) -> list[np.ndarray]:
    """The results of a function by TVM alone."""
    machine = vm.VirtualMachine(relay.vm.compile(tvm.IRModule.from_expr(function), target=LLVM), tvm.cpu())
    return flat(machine.run(*arrays))


def exported(library, folder: Path | None = None):
    """The library as a file, loaded again: what users deploy."""
    with tempfile.TemporaryDirectory(prefix="megcc-relay-") as scratch:
        path = (folder or Path(scratch)) / "model.so"
        library.export_library(str(path))
        return tvm.runtime.load_module(str(path))


def run_graph(partitioned, inputs, target=TARGET, folder: Path | None = None) -> list[np.ndarray]:
    """By relay.build and the graph executor."""
    library = exported(relay.build(partitioned, target=target), folder)
    return outputs_of(library, inputs, [parameter.name_hint for parameter in partitioned["main"].params])


def outputs_of(library, inputs, names=("x0",)) -> list[np.ndarray]:
    """Of a library for the graph executor, in memory or loaded."""
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, array in zip(names, inputs, strict=True):
        executor.set_input(name, array)
    executor.run()
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def machine_of(partitioned, target=TARGET, folder: Path | None = None) -> vm.VirtualMachine:
    """By relay.vm.compile and TVM's virtual machine."""
    return vm.VirtualMachine(exported(relay.vm.compile(partitioned, target=target).mod, folder), tvm.cpu())


def run_vm(partitioned, inputs, target=TARGET) -> list[np.ndarray]:
    return flat(machine_of(partitioned, target).run(*inputs))


def run_aot(partitioned, inputs, target=TARGET) -> list[np.ndarray]:
    """By relay.build and the AOT executor."""
    library = exported(relay.build(partitioned, target=target, executor=relay.backend.Executor("aot")))
    executor = tvm.runtime.executor.AotModule(library["default"](tvm.cpu()))
    executor.set_input(**{parameter.name_hint: array
                          for parameter, array in zip(partitioned["main"].params, inputs, strict=True)})
    executor.run()
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def check(mod, share: float | None = 1.0, target=TARGET, run=run_graph, inputs=None, extents: dict | None = None) \
        -> megcc.Report:
    """Builds with us and with TVM alone, compares the results, and checks our share of the MACs."""
    inputs = random_inputs(mod, extents) if inputs is None else inputs
    partitioned = megcc.partition_for_megcc(mod, target=target)
    report = megcc.report(partitioned)
    assert_same(run(partitioned, inputs, target), evaluated(mod["main"], inputs))
    if share is not None:
        assert report.share == share, str(report)
    return report
