# SPDX-License-Identifier: Apache-2.0
"""The safety profile: what it refuses, that results are those without it, and what holds of its C (docs/safety.md)."""

import os
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tests.rows_graphs import Bytes, fed
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.codegen.safety import LEFT_OUT, SWITCHES
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.load import load
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.evidence.properties import kernel_loops, properties
from tvm_megcc.tools.evidence.sources import Sources

REAL = Path(os.environ.get("MEGCC_MODELS", ""))


def floats():
    """Layers of floats: convolution, pooling, a GRU, a product, a softmax."""
    rng = np.random.default_rng(1)

    def weights(*shape):
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    return model([
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Sigmoid", "p", "s"),
        node("Reshape", "s shape", "rows"), node("GRU", "rows gw gr", "g", hidden_size=5),
        node("Reshape", "g flat", "f"), node("MatMul", "f m", "d"), node("Softmax", "d", "y")],
        {"x": [1, 2, 8, 6]}, {"y": [1, 7]},
        {"w": weights(4, 2, 3, 3), "b": weights(4), "shape": [4, 1, 12], "gw": weights(1, 15, 12),
         "gr": weights(1, 15, 5), "flat": [1, 20], "m": weights(20, 7)})


def integers():
    b = Bytes()
    x = b.layer(b.input("x", 1, 8, 12, 12, dtype="int8"), 8, groups=8)
    return b.graph(b.layer(b.layer(x, 12, kernel=1), 6, stride=2))


def compiled(network, target, folder, **options):
    if network is floats:
        artifact = tvm_megcc.compile(floats(), target, name="net", **options)
    else:
        artifact = compile_graph(integers(), [TARGETS[target]], name="net", **options)
    return artifact.save(folder, embed=True)


OWN = """
from tvm_megcc import extern
OWN = extern.Operator("com.example", "Own", source="own.c", inputs={"x": "float32"}, outputs={"y": "float32"},
                      compute=lambda attrs, x: [x])
"""


# --- what is refused ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target, options, reason", [
    ("x86-64-v3", {}, "not for x86-64-v3: choose a target of c, cortex-m4"),
    ("c,arm64", {}, "not for arm64"),
    ("c", {"threads": 2}, "leave out threads 2"),
    ("c", {"optimize": "size"}, "leave out -O size"),
    ("c", {"extern": "own.py"}, "leave out extern"),
])
def test_options_that_it_refuses(target, options, reason, tmp_path):
    if "extern" in options:
        options = {"extern": str(tmp_path / "own.py")}
        (tmp_path / "own.py").write_text(OWN)
        (tmp_path / "own.c").write_text("")
    with pytest.raises(MegccError) as refused:
        tvm_megcc.compile(model([node("Relu", "x", "y")], {"x": [3]}, {"y": [3]}), target, profile="safety", **options)
    assert reason in str(refused.value)


def test_shapes_that_it_refuses():
    changing = model([node("Relu", "x", "y")], {"x": ["n", 3]}, {"y": ["n", 3]})
    with pytest.raises(MegccError, match="all shapes are known at compile time, and n is not"):
        tvm_megcc.compile(changing, "c", profile="safety", dispatch="x[0]=1..8")
    counted = model([node("NonZero", "x", "y")], {"x": [3]}, {"y": ("int64", [1, None])})
    with pytest.raises(MegccError, match="y has a shape that depends on data"):
        tvm_megcc.compile(counted, "c", profile="safety", bounds={"y": 3})


def test_the_command(tmp_path, capsys):
    path = str(tmp_path / "m.onnx")
    import onnx
    onnx.save(model([node("Relu", "x", "y")], {"x": [3]}, {"y": [3]}), path)
    folder = tmp_path / "out"
    assert main(["compile", path, "--target", "c", "--profile", "safety", "--weights", "file"]) == REFUSED
    assert "--profile safety has no files" in capsys.readouterr().err
    assert main(["compile", path, "--target", "c", "--profile", "safety", "-o", str(folder)]) == 0
    assert (folder / "m_data.c").exists() and not (folder / "m.megcc").exists()
    assert read_manifest(folder)["models"][0]["options"]["profile"] == "safety"
    with pytest.raises(MegccError, match="the same profile"):
        tvm_megcc.codegen.bundle.contents([
            tvm_megcc.compile(path, "c", profile=profile, name=profile) for profile in ("safety", "default")])


# --- what holds of its results --------------------------------------------------------------------------------------

@pytest.mark.parametrize("network", [floats, integers])
@pytest.mark.parametrize("target", ["c", pytest.param("cortex-m4", marks=pytest.mark.slow),
                                    pytest.param("cortex-m33", marks=pytest.mark.slow),
                                    pytest.param("riscv32", marks=pytest.mark.slow)])
def test_the_bits_without_it(network, target, tmp_path):
    try:
        with_it, without = (load(compiled(network, target, tmp_path / profile, profile=profile))
                            for profile in ("safety", "default"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    feeds = fed(integers()) if network is integers else \
        {"x": np.random.default_rng(2).standard_normal((1, 2, 8, 6)).astype(np.float32)}
    for session in (with_it, without):
        session.counted = True
    expected, found = without.run(feeds), with_it.run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        assert len(np.unique(value)) > 5
    if target != "c":
        assert sum(with_it.instructions) < 1.10 * sum(without.instructions)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "cortex-m4", "cortex-m33"])
@pytest.mark.parametrize("name", ["kws_dscnn_int8", "ad_autoencoder_int8", "resnet8_cifar10_int8",
                                  "mobilenet_v1_025_224_uint8"])
def test_the_bits_of_real_networks(name, target, tmp_path):
    path = REAL / name / "model.tflite"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    sessions = [load(tvm_megcc.compile(path, target, profile=profile).save(tmp_path / profile, embed=True))
                for profile in ("safety", "default")]
    reference = dict(np.load(path.with_name("reference_tflite.npz")))
    feeds = {port.name: np.random.default_rng(3).integers(
        np.iinfo(port.dtype).min, np.iinfo(port.dtype).max + 1, port.shape).astype(port.dtype)
        if np.issubdtype(np.dtype(port.dtype), np.integer) else
        next(value for value in reference.values() if value.shape == tuple(port.shape)) for port in sessions[0].inputs}
    for session in sessions:
        session.counted = True
    found, expected = (session.run(feeds) for session in sessions)
    for output, value in expected.items():
        np.testing.assert_array_equal(found[output], value)
    if target != "c":
        assert sum(sessions[0].instructions) < 1.10 * sum(sessions[1].instructions)


def test_watched_runs_are_made_of_steps(tmp_path):
    """There is no observer, so layers are compared and timed between steps."""
    session = load(compiled(floats, "c", tmp_path / "net", profile="safety"))
    times = session.profile({"x": np.ones((1, 2, 8, 6), np.float32)})
    assert len(times) == len(session.calls) and all(row["seconds"] > 0 for row in times)


# --- what holds of its C --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target", ["c", pytest.param("cortex-m4", marks=pytest.mark.slow),
                                    pytest.param("cortex-m0plus", marks=pytest.mark.slow),
                                    pytest.param("cortex-m33", marks=pytest.mark.slow),
                                    pytest.param("riscv32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", [floats, integers])
def test_its_properties(network, target, tmp_path):
    folder = compiled(network, target, tmp_path / "net", profile="safety")
    try:
        sources = Sources.of(folder, TARGETS[target])
    except MissingTool as missing:
        pytest.skip(str(missing))
    loops = kernel_loops(sources)
    assert loops.keys() == {call["kernel"] for call in load(folder).calls} and all(loops.values())
    found = properties(sources, list(chain(*loops.values())))
    assert len(found) == 8
    assert not [(row.name, row.against) for row in found if not row.holds]


@pytest.mark.slow
def test_that_the_checks_see_the_default_profile(tmp_path):
    """Without the profile there are an allocator, an observer, sizes that kernels compute, and no checks."""
    folder = compiled(floats, "c", tmp_path / "net")
    sources = Sources.of(folder, TARGETS["c"])
    found = {row.name.partition(":")[0]: row.against for row in properties(sources, [])}
    assert {"malloc", "free", "fopen", "pthread_create"} <= set(found["no dynamic memory, files and threads"])
    assert any(name.endswith(":observe") or "observe" in name or "grow" in name or "demands" in name
               for name in found["no calls through pointers but that of a kernel of the kernel table"])
    assert len(found["kernels check their arguments"]) == len({call["kernel"] for call in load(folder).calls})


def test_its_switches_are_in_the_first_header(tmp_path):
    """So that no flag of a build can leave them out; files that they make empty are missing."""
    folder = compiled(floats, "c", tmp_path / "net", profile="safety")
    header = (folder / "runtime" / "include" / "megcc_kernel.h").read_text()
    before = header[:header.index("#include")]
    assert all(f"#define {name}\n" in before for name in (*SWITCHES, "MEGCC_NO_REGIONS"))
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    assert not [name for name in names if name.startswith(LEFT_OUT)]


# --- arguments ------------------------------------------------------------------------------------------------------

ARGUMENTS = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
#define REFUSED(call) if ((call) != MEGCC_E_ARGUMENT) { printf("%s\n", #call); failures++; }
#define NONE(call) if ((call) != NULL) { printf("%s\n", #call); failures++; }
static _Alignas(64) unsigned char memory[NET_MEMORY_BYTES + 64];
int32_t KERNEL(const megcc_call *call, int32_t begin, int32_t end, void *scratch);
int main(void)
{
    int failures = 0;
    megcc_model model;
    megcc_session *session = NULL;
    megcc_error error;
    megcc_tensor tensor;
    REFUSED(megcc_model_open(NULL, &net_module, net_data, NET_CONTAINER_BYTES, NULL, &error));
    REFUSED(megcc_model_open(&model, NULL, net_data, NET_CONTAINER_BYTES, NULL, NULL));
    REFUSED(megcc_model_open(&model, &net_module, NULL, NET_CONTAINER_BYTES, NULL, &error));
    REFUSED(megcc_model_open(&model, &net_module, (const char *)net_data + 1, NET_CONTAINER_BYTES, NULL, &error));
    if (megcc_model_open(&model, &net_module, net_data, NET_CONTAINER_BYTES / 2, NULL, &error) == 0) failures++;
    if (megcc_model_open(&model, &net_module, net_data, NET_CONTAINER_BYTES, NULL, &error)) return 99;
    REFUSED(megcc_model_check(NULL, &error));
    REFUSED(megcc_model_input(NULL, 0, &tensor));
    REFUSED(megcc_model_input(&model, 0, NULL));
    REFUSED(megcc_model_output(NULL, 0, &tensor));
    REFUSED(megcc_model_output(&model, 9, &tensor));
    if (megcc_model_memory(NULL, NULL) != 0 || megcc_model_region(NULL, 0) != 0) failures++;
    if (megcc_model_inputs(NULL) != 0 || megcc_model_outputs(NULL) != 0) failures++;
    REFUSED(megcc_session_open(NULL, &model, memory, sizeof memory, NULL, &error));
    REFUSED(megcc_session_open(&session, NULL, memory, sizeof memory, NULL, &error));
    if (megcc_session_open(&session, &model, NULL, sizeof memory, NULL, &error) != MEGCC_E_MEMORY) failures++;
    if (megcc_session_open(&session, &model, memory + 1, sizeof memory - 1, NULL, &error) != MEGCC_E_MEMORY) failures++;
    if (megcc_session_open(&session, &model, memory, NET_MEMORY_BYTES - 1, NULL, &error) != MEGCC_E_MEMORY) failures++;
    REFUSED(megcc_session_run(NULL, &error));
    REFUSED(megcc_session_step(NULL, NULL));
    REFUSED(megcc_session_set_shapes(NULL, NULL, 0, &error));
    REFUSED(megcc_session_bind_input(NULL, 0, memory, 4));
    REFUSED(megcc_session_bind_output(NULL, 0, memory, 4));
    NONE(megcc_session_input(NULL, 0, &tensor));
    NONE(megcc_session_output(NULL, 0, &tensor));
    NONE(megcc_session_operand(NULL, 0, 0, &tensor));
    if (*megcc_session_kernel(NULL, 0)) failures++;
    megcc_session_reset(NULL);
    megcc_session_close(NULL);
    if (megcc_session_open(&session, &model, memory, NET_MEMORY_BYTES, NULL, &error)) return 98;
    static float data[2 * 8 * 6 + 1];
    REFUSED(megcc_session_bind_input(session, 9, data, sizeof data));
    REFUSED(megcc_session_bind_input(session, 0, data, sizeof data - 8));
    REFUSED(megcc_session_bind_input(session, 0, (char *)data + 1, sizeof data - 4));
    REFUSED(megcc_session_bind_output(session, 0, data, 4));
    if (megcc_session_run(session, &error)) return 97;

    const void *in[8] = { data, data, data, data, data, data, data, data };
    void *out[8] = { data, data, data, data, data, data, data, data };
    megcc_call call = { in, out, NULL, data };
    REFUSED(KERNEL(NULL, 0, 0, data));
    REFUSED(KERNEL(&call, -1, 0, data));
    REFUSED(KERNEL(&call, 0, 1 << 30, data));
    call.in = NULL;
    REFUSED(KERNEL(&call, 0, 0, data));
    call.in = in, out[0] = NULL;
    REFUSED(KERNEL(&call, 0, 0, data));
    in[0] = NULL, out[0] = data;
    REFUSED(KERNEL(&call, 0, 0, data));
    in[0] = data;
    if (KERNEL(&call, 0, 0, data)) failures++;
    return failures;
}
"""


@pytest.mark.slow
def test_arguments_that_are_refused(tmp_path):
    """By the API and by a kernel; a run with valid ones succeeds."""
    folder = compiled(floats, "c", tmp_path / "net", profile="safety")
    kernel = next(call["kernel"] for call in load(folder).calls if "conv2d" in call["kernel"])
    source = tmp_path / "arguments.c"
    source.write_text(ARGUMENTS)
    sources = [*folder.glob("*_data.c"), folder / "kernels.c", *folder.glob("kernels/*.c"),
               *folder.glob("runtime/src/*.c")]
    subprocess.run(["cc", "-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                    f"-DKERNEL={kernel}", f"-I{folder}", f"-I{folder / 'runtime' / 'include'}", str(source),
                    *map(str, sources), "-o", str(tmp_path / "arguments")], check=True)
    result = subprocess.run([str(tmp_path / "arguments")], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
