# SPDX-License-Identifier: Apache-2.0
"""Functions with an If: a region of their own if all of it is ours, else regions around and inside it."""

from __future__ import annotations

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax  # noqa: E402
from tvm.script import ir as I  # noqa: E402
from tvm.script import relax as R  # noqa: E402

import tvm_megcc  # noqa: E402
from tvm_megcc import partition_for_megcc  # noqa: E402
from tvm_megcc.frontends.relax import is_ours, report  # noqa: E402

from .modules import assert_same, megcc, run  # noqa: E402

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@I.ir_module
class Chosen:
    """Both branches and what is around them are ours; `wide` is computed outside, and only one branch reads it."""

    @R.function
    def main(x: R.Tensor((3, 8), "float32"), above: R.Tensor((), "bool")) -> R.Tensor((3, 8), "float32"):
        wide = R.exp(x)
        scaled = R.multiply(x, R.const(2.0, "float32"))
        if above:
            result = R.add(wide, scaled)
        else:
            result = R.tanh(scaled)
        last = R.negative(result)
        return last


@I.ir_module
class Mixed:
    """One branch calls a function of the user's."""

    @R.function
    def main(x: R.Tensor((3, 8), "float32"), above: R.Tensor((), "bool")) -> R.Tensor((3, 8), "float32"):
        wide = R.exp(x)
        if above:
            result = R.call_dps_packed("tests.twice", (wide,), R.Tensor((3, 8), "float32"))
        else:
            result = R.tanh(wide)
        return result


def results(mod, target: str):
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    return [machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(np.array(above))).numpy()
            for above in (True, False)]


def expected():
    return [-(np.exp(X) + 2 * X), -np.tanh(2 * X)]


@pytest.mark.parametrize("target", ["megcc-c", pytest.param("megcc-native", marks=pytest.mark.slow)])
def test_the_whole_function_is_a_region(target):
    mod = partition_for_megcc(Chosen, target=target)
    assert len(mod.functions) == 2 and sum(map(is_ours, mod.functions.values())) == 1 and not report(mod).theirs
    for found, wanted in zip(results(mod, target), expected(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert tvm_megcc.partition_for_megcc(mod, target=target).functions.keys() == mod.functions.keys()


def test_the_stand_alone_compiler_takes_it(tmp_path):
    session = tvm_megcc.load(tvm_megcc.compile(Chosen, "c").save(tmp_path / "chosen"))
    for above, wanted in zip((True, False), expected(), strict=True):
        (found,) = session.run({"x": X, "above": np.array(above)}).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_tvm_keeps_splits_it():
    tvm.register_global_func("tests.twice", lambda x, result: result.copyfrom(2 * x.numpy()), override=True)
    mod = partition_for_megcc(Mixed, target="megcc-c")
    assert sum(map(is_ours, mod.functions.values())) == 2
    for found, wanted in zip(results(mod, "megcc-c"), (2 * np.exp(X), np.tanh(np.exp(X))), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@I.ir_module
class Branches:
    @R.function
    def main(flag: R.Tensor((), "bool"), x: R.Tensor((3, 8), "float32")) -> R.Tensor((3, 8), "float32"):
        if flag:
            a = R.nn.relu(x)
            y = R.multiply(a, a)
        else:
            b = R.exp(R.tanh(x))
            y = R.nn.softmax(b)
        return y


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag):
    """A function with an If is one region (TVM's own build of this module crashes: its memory plan shares storage
    between the branches)."""
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    report = megcc.report(megcc.partition_for_megcc(Branches))
    assert not report.theirs and len(report.regions) == 1
    exponents = np.exp(np.exp(np.tanh(x)))
    expected = np.maximum(x, 0) ** 2 if flag else exponents / exponents.sum(1, keepdims=True)
    assert_same(run(megcc.build(Branches, "megcc-c"), [np.array(flag), x]), [expected])
