# SPDX-License-Identifier: Apache-2.0
"""A region's entry for TVM's older C API, called as TVM calls it, without TVM."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import WARNINGS
from tvm_megcc.compiler import compile_graph
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.graph import Attrs, Graph, Op
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.ir.types import TensorType
from tvm_megcc.runtime import tvm_module
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS

DLTENSOR, INT, NDARRAY = 7, 0, 13


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def extents(values):
    return (ctypes.c_int64 * len(values))(*values)


def tensor_of(array: np.ndarray) -> Tensor:
    code = {"f": 2, "i": 0, "u": 1}[array.dtype.kind]
    plain = array.flags.c_contiguous
    return Tensor(array.ctypes.data, 1, 0, array.ndim, code, array.itemsize * 8, 1, extents(array.shape),
                  None if plain else extents([stride // array.itemsize for stride in array.strides]), 0)


def address_only(array: np.ndarray) -> Tensor:
    """As TVM's AOT executor passes a tensor: no shape, an opaque element type."""
    return Tensor(array.ctypes.data, 1, 0, 0, 3, 64, 1, None, None, 0)


STUB = """
#include <string.h>
char last_error[4096];
__attribute__((visibility("default"))) void TVMAPISetLastError(const char *m) { strncpy(last_error, m, 4095); }
__attribute__((visibility("default"))) const char *taken_error(void) { return last_error; }
"""


def linked(parts, folder):
    """A shared library of object files, with the function of TVM that they want; that of a TVM which is loaded is not
    taken."""
    (folder / "stub.c").write_text(STUB)
    command = find_compiler(TARGETS["c"]).command
    subprocess.run([*command, "-shared", "-fPIC", "-Wl,-Bsymbolic", str(folder / "stub.c"), *map(str, parts),
                    "-pthread", "-o", str(folder / "lib.so")], check=True)
    library = ctypes.CDLL(str(folder / "lib.so"))
    library.taken_error.restype = ctypes.c_char_p
    return library


def call(library, symbol: str, tensors, codes=None) -> str:
    """Calls an entry; returns the error's text, "" for none."""
    values = (ctypes.c_uint64 * len(tensors))(*(tensor if isinstance(tensor, int) else ctypes.addressof(tensor)
                                                for tensor in tensors))
    codes = (ctypes.c_int * len(tensors))(*(codes or [DLTENSOR] * len(tensors)))
    status = getattr(library, symbol)(values, codes, len(tensors), None, None, None)
    return "" if status == 0 else library.taken_error().decode()


def network(batch=2) -> Graph:
    """relu(x + bias), and the sum over the last axis."""
    types = {"x": TensorType("float32", (batch, 5)), "bias": TensorType("float32", (5,)),
             "sum": TensorType("float32", (batch, 5)), "y": TensorType("float32", (batch, 5)),
             "total": TensorType("float32", (batch,))}
    ops = (Op("add", Attrs(), ("x", "bias"), ("sum",)), Op("relu", Attrs(), ("sum",), ("y",)),
           Op("reduce_sum", Attrs(axes=(1,), keepdims=False), ("y",), ("total",)))
    return Graph("net", ("x",), ("y", "total"), ops, types, {"bias": np.arange(-2, 3).astype("float32")})


def expected(x: np.ndarray) -> list[np.ndarray]:
    y = np.maximum(x + np.arange(-2, 3).astype("float32"), 0)
    return [y, y.sum(1)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrapper")
    target = TARGETS["c"]
    parts = []
    open_ = compile_graph(network(Symbol("n")), [target], name="region0", buckets=(Bucket((("n", 1, 4),)),))
    for symbol, artifact in {"fixed": compile_graph(network(), [target], name="region0"), "open": open_}.items():
        with tvm_module.compile_regions({symbol: artifact}, target, "packed") as (path, symbols):
            assert symbols == [symbol]
            parts.append(folder / f"{symbol}.o")
            parts[-1].write_bytes(path.read_bytes())
    with tvm_module.compile_failing("failing", 'ValueError: no "\\bucket\\" holds 5 — really?', target) as path:
        parts.append(folder / "failing.o")
        parts[-1].write_bytes(path.read_bytes())
    return linked(parts, folder)


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((2, 5)).astype("float32")


def outputs(batch: int = 2) -> list[np.ndarray]:
    return [np.full((batch, 5), np.nan, "float32"), np.full((batch,), np.nan, "float32")]


@pytest.mark.parametrize("code", [DLTENSOR, NDARRAY])
def test_tensors_of_the_graph_executor_and_the_machine(library, x, code):
    results = outputs()
    assert call(library, "fixed", [tensor_of(x), *map(tensor_of, results)], [code] * 3) == ""
    for got, want in zip(results, expected(x), strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_addresses_of_the_aot_executor(library, x):
    results = outputs()
    assert call(library, "fixed", [address_only(x), *map(address_only, results)]) == ""
    np.testing.assert_allclose(results[0], expected(x)[0])


def test_strides(library, x):
    results = outputs()
    wide = np.full((2, 10), np.nan, "float32")
    assert call(library, "fixed", [tensor_of(np.asfortranarray(x)), tensor_of(wide[:, ::2]),
                                   tensor_of(results[1])]) == ""
    np.testing.assert_allclose(wide[:, ::2], expected(x)[0])
    assert np.isnan(wide[:, 1::2]).all()


@pytest.mark.parametrize("batch", [1, 4, 2, 3])
def test_shapes_that_change(library, batch):
    x = np.random.default_rng(batch).standard_normal((batch, 5)).astype("float32")
    results = outputs(batch)
    assert call(library, "open", [tensor_of(x), *map(tensor_of, results)]) == ""
    np.testing.assert_allclose(results[1], expected(x)[1], 1e-6)


@pytest.mark.parametrize(("symbol", "arguments", "codes", "text"), [
    ("fixed", lambda x, o: [tensor_of(x[:1]), *map(tensor_of, o)], None,
     "ValueError: fixed: input 0 has extent 1 on axis 0, not 2"),
    ("fixed", lambda x, o: [tensor_of(x[0]), *map(tensor_of, o)], None, "ValueError: fixed: input 0 has 1 axes, not 2"),
    ("fixed", lambda x, o: [tensor_of(x.astype("float64")), *map(tensor_of, o)], None,
     "TypeError: fixed: input 0 has element type code 2 with 64 bits, not float32"),
    ("fixed", lambda x, o: [tensor_of(x), tensor_of(o[0])], None, "TypeError: fixed: called with 2 arguments"),
    ("fixed", lambda x, o: [3, *map(tensor_of, o)], [INT, DLTENSOR, DLTENSOR],
     "TypeError: fixed: input 0 is no tensor"),
    ("open", lambda x, o: [address_only(x), *map(tensor_of, o)], None,
     "ValueError: open: input 0 has no shape; where shapes change, use TVM's virtual machine"),
    ("open", lambda x, o: [tensor_of(np.zeros((9, 5), "float32")), *map(tensor_of, o)], None,
     "ValueError: open: input 0 has shape (9, 5), which this was not compiled for; extents are n 1 to 4"),
    ("failing", lambda x, o: [tensor_of(x)], None, 'ValueError: no "\\bucket\\" holds 5 — really?'),
])
def test_what_is_wrong_is_said(library, x, symbol, arguments, codes, text):
    kept = [x, outputs()]
    assert text in call(library, symbol, arguments(*kept), codes)


@pytest.mark.parametrize("abi", sorted(tvm_module.ABIS))
def test_wrapper_has_no_warnings(abi, tmp_path):
    """The generated C under the flags that all our C is clean under."""
    artifact = tvm_megcc.compile(tvm_megcc.paths.examples() / "digits.onnx", "c", name="region0")
    sources = tvm_module._write({"megcc_region0": artifact}, tmp_path, abi)
    module = next(path for path in sources if path.name == "module.c")
    subprocess.run([*find_compiler(TARGETS["c"]).command, "-std=c99", *WARNINGS, f"-I{tmp_path}/runtime/include", "-c",
                    str(module), "-o", str(tmp_path / "module.o")], check=True, cwd=tmp_path)
