# SPDX-License-Identifier: Apache-2.0
"""Bytes of code on arm64 at `-O size`: MobileNetV1 with everything it needs, and the runtime alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MissingTool
from tvm_megcc.tools.report.size import size

#: (output channels, stride) of the depthwise-separable blocks, Howard et al. 2017, table 1.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def mobilenet_v1() -> onnx.ModelProto:
    """MobileNetV1 1.0 at 224 pixels with seeded weights."""
    generator = np.random.default_rng(0)
    nodes, weights = [], {}

    def weight(name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        weights[name] = (generator.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        return name

    def conv(x: str, inputs: int, outputs: int, kernel: int, stride: int, group: int = 1) -> str:
        n = len(nodes)
        operands = f"{x} {weight(f'w{n}', outputs, inputs // group, kernel, kernel)} {weight(f'b{n}', outputs)}"
        nodes.append(node("Conv", operands, f"c{n}", strides=[stride] * 2, pads=[kernel // 2] * 4, group=group))
        nodes.append(node("Relu", f"c{n}", f"r{n}"))
        return f"r{n}"

    x, channels = conv("data", 3, 32, 3, 2), 32
    for outputs, stride in BLOCKS:
        x = conv(conv(x, channels, channels, 3, stride, channels), channels, outputs, 1, 1)
        channels = outputs
    dense = f"flat {weight('wf', 1000, channels)} {weight('bf', 1000)}"
    nodes += [node("GlobalAveragePool", x, "pooled"), node("Flatten", "pooled", "flat"),
              node("Gemm", dense, "logits", transB=1), node("Softmax", "logits", "prob", axis=1)]
    return model(nodes, {"data": (1, 3, 224, 224)}, {"prob": (1, 1000)}, weights, name="mobilenet_v1")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    artifact = tvm_megcc.compile(mobilenet_v1(), "arm64", optimize="size", name="mobilenet_v1")
    folder = artifact.save(tmp_path_factory.mktemp("size") / "mobilenet_v1")
    try:
        return size(folder, "arm64")
    except MissingTool as missing:
        pytest.skip(str(missing))


def code_and_constants(totals: dict) -> int:
    return totals["text"] + totals["rodata"] + totals["data"]


@pytest.mark.slow
def test_runtime(report):
    # Beyond 12 KB: 190 bytes for states that begin with other numbers than zero, and for the check of where these are;
    # 160 bytes for functions of the C API that refuse NULL.
    assert code_and_constants(report["parts"]["runtime"]) <= (12 << 10) + 352


@pytest.mark.slow
def test_mobilenet_with_all_its_kernels(report):
    total = sum(code_and_constants(totals) for totals in report["parts"].values())
    assert total <= 36 << 10
    print(f"\nMobileNetV1 1.0 224, arm64, all code: {total:,} bytes")
