# SPDX-License-Identifier: Apache-2.0
"""Building and comparing Relax modules."""

from __future__ import annotations

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax  # noqa: E402

import tvm_megcc.frontends.relax as megcc  # noqa: E402
from tests.tvm_cases import assert_same  # noqa: E402
from tvm_megcc.frontends.tvm_versions import RelaxTensor, type_of  # noqa: E402

#: The release of the TVM that is installed, such as (0, 27).
RELEASE = tuple(int(number) for number in tvm.__version__.split(".")[:2])


def f32(*shape: int):
    """A float32 tensor type."""
    return RelaxTensor(shape, "float32")


def number(value: int | float):
    """A number as an argument of an operator."""
    return relax.op.clip(relax.const(np.float32(0)), value, value).args[1]


def module(build, *types, name: str = "main", mod=None) -> tvm.IRModule:
    """A module whose function is `build(emit, *variables)` in one dataflow block.

    build: gets `emit(expression)`, which binds a variable, and the parameters; returns an expression or a tuple.
    mod: the functions are added to this module.
    """
    builder = relax.BlockBuilder(mod)
    parameters = [relax.Var(f"x{index}", type_) for index, type_ in enumerate(types)]
    with builder.function(name, parameters):
        with builder.dataflow():
            result = build(builder.emit, *parameters)
            if isinstance(result, (tuple, list)):
                result = relax.Tuple(list(result))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def weights(*shape: int, seed: int = 0, scale: float | None = None):
    """A constant with values that keep activations in range."""
    generator = np.random.default_rng(seed + sum(shape))
    fan_in = int(np.prod(shape[1:])) or 1
    factor = np.sqrt(2 / fan_in) if scale is None else scale
    return relax.const((generator.standard_normal(shape) * factor).astype(np.float32))


def random_inputs(mod, name: str = "main", seed: int = 0, symbols: dict | None = None) -> list[np.ndarray]:
    """Seeded arrays for the parameters of a function."""
    generator = np.random.default_rng(seed)
    arrays = []
    for parameter in mod[name].params:
        shape = [int(dim) if str(dim).lstrip("-").isdigit() else (symbols or {})[str(dim)]
                 for dim in (int(d) if hasattr(d, "value") else d for d in type_of(parameter).shape.values)]
        dtype = str(type_of(parameter).dtype)
        if dtype.startswith("float"):
            arrays.append(generator.standard_normal(shape).astype(dtype))
        else:
            arrays.append(generator.integers(0, 5, shape).astype(dtype))
    return arrays


def tensors(arrays) -> list:
    return [tvm.runtime.tensor(array) for array in arrays]


def arrays_of(result) -> list[np.ndarray]:
    """The results of a call, tuples flattened."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for item in result for array in arrays_of(item)]


def run(executable, inputs, name: str = "main") -> list[np.ndarray]:
    return arrays_of(relax.VirtualMachine(executable, tvm.cpu())[name](*tensors(inputs)))


def reference(mod):
    """TVM's own build, by LLVM, without the optimiser of LLVM: tests compile many modules and run each once."""
    return tvm.compile(mod, target=tvm.target.Target({"kind": "llvm", "opt-level": 0}))


def check(mod, symbols: dict | None = None, share: float | None = 1.0, name: str = "main", tolerance: float = 1e-4,
          inputs=None, target: str = "megcc-native", tir: bool = False) -> megcc.Report:
    """Compiles with us and with TVM's llvm, compares the results, and checks our share of the MACs."""
    inputs = random_inputs(mod, name, symbols=symbols) if inputs is None else inputs
    partitioned = megcc.partition_for_megcc(mod, target=target, tir=tir)
    report = megcc.report(partitioned)
    executable = tvm.compile(partitioned, target=target, relax_pipeline="megcc")
    assert_same(run(executable, inputs, name), run(reference(mod), inputs, name), tolerance)
    if share is not None:
        assert report.share == share, str(report)
    return report
