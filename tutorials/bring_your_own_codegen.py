# SPDX-License-Identifier: Apache-2.0
"""
Bring your own code generator
=============================

A code generator of yours takes a part of a Relax module, and TVM keeps the rest. This tutorial writes one that is small
and whole: it turns dense layers into C, compiles them, and one library runs them beside what TVM compiles. It needs a
C compiler and a CPU, nothing else.

The steps are the same for an accelerator: **patterns** say what you can compute, **partitioning** cuts it out, the
**code generator** makes a module of it, and the virtual machine calls it.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.transform import FusionPattern

work = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)

# %%
# A network
# ---------
#
# Two dense layers and a softmax. Any importer of TVM gives such a module; here it is built by hand.


def weight(*shape):
    return relax.const((random.standard_normal(shape) / np.sqrt(shape[0])).astype("float32"))


builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((4, 16), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = x
        for rows, columns in ((16, 32), (32, 10)):
            y = builder.emit(relax.op.matmul(y, weight(rows, columns)))
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, weight(columns)))))
        result = builder.emit_output(relax.op.nn.softmax(y))
    builder.emit_func_output(result)
network = builder.get()

# %%
# Patterns
# --------
#
# A pattern is an expression with holes. Ours is ``relu(x @ w + b)`` with constant ``w`` and ``b``. The check sees what
# was matched, and refuses what the code generator could not do: here, all but float32.


def is_float32(context):
    return str(context.matched_expr.ty.dtype) == "float32"


dense = is_op("relax.nn.relu")(is_op("relax.add")(is_op("relax.matmul")(wildcard(), is_const()), is_const()))
patterns = [FusionPattern("tutorial.dense", dense, {}, is_float32)]

# %%
# Partitioning
# ------------
#
# ``FuseOpsByPattern`` makes a function of every match, with the attribute ``Composite``. ``MergeCompositeFunctions``
# joins neighbours into regions, with the attribute ``Codegen``: the text in front of the dot names the code generator.

partitioned = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(network)
partitioned = relax.transform.MergeCompositeFunctions()(partitioned)
for var, function in partitioned.functions.items():
    print(var.name_hint, "is for", function.attrs.get("Codegen", "TVM"))

# %%
# The code generator
# ------------------
#
# ``RunCodegen`` calls the global function ``relax.ext.<name>`` with all regions, and wants modules back. A region is a
# Relax function of composites; each composite has its operators, so constants and shapes are where you look for them.
#
# A function of TVM's FFI gets its arguments as ``TVMFFIAny``: inputs first, then outputs, which the caller allocated.

HEADER = """
#include <tvm/ffi/c_api.h>

static float *values(const TVMFFIAny *argument)
{
    /* a DLTensor, or one behind the head of an object */
    const size_t head = argument->type_index == kTVMFFIDLTensorPtr ? 0 : sizeof(TVMFFIObject);
    const DLTensor *tensor = (const DLTensor *)(const void *)((const char *)argument->v_ptr + head);
    return (float *)(void *)((char *)tensor->data + tensor->byte_offset);
}

static void dense(const float *x, const float *w, const float *b, float *y, int rows, int inner, int columns)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            float sum = 0;
            for (int k = 0; k < inner; k++)
                sum += x[i * inner + k] * w[k * columns + j];
            sum += b[j];
            y[i * columns + j] = sum > 0 ? sum : 0;
        }
}
"""


def numbers_of(constant):
    """The numbers of a constant. TVM 0.26 calls the field data."""
    return (constant.value if hasattr(constant, "value") else constant.data).numpy()


def layers_of(region):
    """(rows of the input, weights, bias) of the composites of a region, in order."""
    found = []

    def look(call):
        if isinstance(call, tvm.ir.Call) and getattr(call.op, "name", "") == "relax.matmul":
            found.append([int(call.args[0].ty.shape[0]), numbers_of(call.args[1])])
        elif isinstance(call, tvm.ir.Call) and getattr(call.op, "name", "") == "relax.add":
            found[-1].append(numbers_of(call.args[1]))

    relax.analysis.post_order_visit(region, look)
    return found


def array(name, values):
    return f"static const float {name}[] = {{{', '.join(float(value).hex() + 'f' for value in values.ravel())}}};\n"


def to_c(region):
    """A C function for a region: one call of ``dense`` for each layer."""
    name, layers = region.attrs["global_symbol"], layers_of(region)
    text, calls, source = HEADER, "", "values(&arguments[0])"
    for index, (rows, w, b) in enumerate(layers):
        last = index + 1 == len(layers)
        result = "values(&arguments[1])" if last else f"buffer{index}"
        text += array(f"w{index}", w) + array(f"b{index}", b)
        text += "" if last else f"static float buffer{index}[{rows * w.shape[1]}];\n"
        calls += f"    dense({source}, w{index}, b{index}, {result}, {rows}, {w.shape[0]}, {w.shape[1]});\n"
        source = result
    return text + f"""
__attribute__((visibility("default")))
int __tvm_ffi_{name}(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result)
{{
    (void)self, (void)count, (void)result;
{calls}    return 0;
}}
"""


@tvm_ffi.register_global_func("relax.ext.tutorial", override=True)
def codegen(regions, _options, _constant_names):
    made = []
    for region in regions:
        name = str(region.attrs["global_symbol"])
        source, compiled = work / f"{name}.c", work / f"{name}.o"
        source.write_text(to_c(region))
        includes = (f"-I{path}" for path in (tvm_ffi.libinfo.find_include_path(),
                                             tvm_ffi.libinfo.find_dlpack_include_path()))
        compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
        subprocess.run([compiler, "-O2", "-fPIC", *includes, "-c", source, "-o", compiled], check=True)
        made.append(tvm.runtime.load_static_library(str(compiled), [f"__tvm_ffi_{name}"]))
    return made


# %%
# Run
# ---
#
# After ``RunCodegen`` the module goes through the pipeline that it would have gone through anyway.

compiled = tvm.compile(relax.transform.RunCodegen()(partitioned), target="llvm")
machine = relax.VirtualMachine(compiled, tvm.cpu())
sample = random.standard_normal((4, 16)).astype("float32")
ours = machine["main"](tvm.runtime.tensor(sample)).numpy()
theirs = relax.VirtualMachine(tvm.compile(network, target="llvm"), tvm.cpu())["main"](tvm.runtime.tensor(sample))
np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)
print(ours[0].round(3))

# %%
# Export
# ------
#
# One library has both parts. Object files of a code generator for another machine are linked by ``fcompile``.

compiled.export_library(str(work / "network.so"))
loaded = relax.VirtualMachine(tvm.runtime.load_module(str(work / "network.so")), tvm.cpu())
np.testing.assert_array_equal(loaded["main"](tvm.runtime.tensor(sample)).numpy(), ours)

# %%
# Profile
# -------
#
# The virtual machine tells an instrument of every call, before and after it.

calls = []
machine.set_instrument(lambda _function, name, before, _result, *_arguments: calls.append(name) if before else None)
machine["main"](tvm.runtime.tensor(sample))
print([name for name in calls if not name.startswith("vm.builtin")])
assert calls.count(next(name for name in calls if "tutorial" in name)) == 1

# %%
# A code generator that knows more
# --------------------------------
#
# ``tvm_megcc`` works by these steps: it has patterns for a hundred and fifty operators, asks in their checks whether it
# has a kernel for the shapes and the CPU, and plans memory and layouts inside a region. ``pip install tvm_megcc`` is
# enough: TVM finds it, and its target partitions by itself.

from tvm_megcc import partition_for_megcc  # noqa: E402
from tvm_megcc.frontends.relax import profile, report  # noqa: E402

print(report(partition_for_megcc(network)))
whole = tvm.compile(network, target="megcc-native")
machine = relax.VirtualMachine(whole, tvm.cpu())
np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(sample)).numpy(), ours, rtol=1e-5, atol=1e-6)
print(profile(machine, "main", tvm.runtime.tensor(sample)))
