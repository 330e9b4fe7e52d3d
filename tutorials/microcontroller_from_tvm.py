# SPDX-License-Identifier: Apache-2.0
"""
From a model to a microcontroller, without TVM on it
====================================================

TVM's importers read the model, and nothing of TVM is on the device: no runtime, no graph executor, no heap. What comes
out is a folder of C99 for a Cortex-M4, which any build system takes. It is for those who came from microTVM.

The emulated board needs ``arm-none-eabi-gcc`` and ``qemu-system-arm``; without them the network is run on this machine.
"""

import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

import tvm_megcc
from tvm_megcc.errors import MissingTool

work = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)

# %%
# A model
# -------
#
# Any Relax module will do, from PyTorch, ONNX or TFLite. This one is a small network for a window of an accelerometer:
# two convolutions over time, a mean, and three classes.


def weight(*shape):
    return relax.const((random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


op = relax.op
builder = relax.BlockBuilder()
window = relax.Var("window", relax.TensorType((1, 3, 64), "float32"))
with builder.function("main", [window]):
    with builder.dataflow():
        y = builder.emit(op.nn.relu(builder.emit(op.nn.conv1d(window, weight(8, 3, 5), strides=2, padding=2))))
        y = builder.emit(op.nn.relu(builder.emit(op.nn.conv1d(y, weight(16, 8, 5), strides=2, padding=2))))
        y = builder.emit(op.matmul(builder.emit(op.mean(y, [2])), builder.emit(op.permute_dims(weight(3, 16)))))
        classes = builder.emit_output(op.nn.softmax(y))
    builder.emit_func_output(classes)
network = builder.get()

sample = random.standard_normal((1, 3, 64)).astype("float32")
machine = relax.VirtualMachine(tvm.compile(network, target="llvm"), tvm.cpu())
expected = machine["main"](tvm.runtime.tensor(sample)).numpy()

# %%
# A folder of C
# -------------
#
# The compiler chooses kernels for the CPU, folds what is constant, and plans one block of memory. What it will take is
# known before anything is flashed; ``ram=`` and ``flash=`` refuse what does not fit.

artifact = tvm_megcc.compile(network, "cortex-m4", name="motion")
folder = artifact.save(work / "motion_m4", embed=True)
print(artifact.report)
print(sorted(path.name for path in folder.iterdir()))

# %%
# The same network, run
# ---------------------
#
# ``tvm_megcc.load`` builds the firmware and runs it on an emulated board. Its results are those of TVM on this machine,
# within the rounding of another order of sums.

try:
    session = tvm_megcc.load(folder, "cortex-m4")
except MissingTool as error:
    print(error)
    session = tvm_megcc.load(tvm_megcc.compile(network, "c", name="motion").save(work / "motion_c"), "c")
(result,) = session.run({"window": sample}).values()
np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
print(result)

# %%
# Into a project
# --------------
#
# ``megcc export`` writes packages for Zephyr, ESP-IDF, Arduino, PlatformIO, CMSIS-Pack, STM32Cube and CMake. A program
# of yours needs a few lines of C:
#
# .. code-block:: c
#
#     #include "motion.h"
#     static unsigned char memory[MOTION_MEMORY_BYTES];
#     megcc_model_open(&model, &motion_module, motion_data, MOTION_CONTAINER_BYTES, NULL, &error);
#     megcc_session_open(&session, &model, memory, sizeof memory, NULL, &error);
#     memcpy(megcc_session_input(session, 0, NULL), window, sizeof window);
#     megcc_session_run(session, &error);

from tvm_megcc.tools.export import packages  # noqa: E402

made = packages.export(folder, "cmake", work / "motion_cmake")
print(made["what"], made["files"], "files")
