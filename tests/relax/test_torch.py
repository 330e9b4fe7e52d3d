# SPDX-License-Identifier: Apache-2.0
"""A PyTorch network: torch.export, TVM's importer, our kernels, PyTorch's results. PyTorch is imported by the tests,
not with this file: that takes seconds."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm_megcc

from .modules import assert_same, megcc, run


def network():
    """Convolution, batch norm, a depthwise block with a residual, pools, a resize, a linear layer."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16),
                                      nn.ReLU6())
            self.block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Hardswish(),
                                       nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16))
            self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

        def forward(self, x):
            y = self.stem(x)
            y = torch.relu(y + self.block(y))
            y = torch.cat([nn.functional.max_pool2d(y, 2), nn.functional.avg_pool2d(y, 2)], dim=1)[:, 8:24]
            y = nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")
            return self.head(y).softmax(dim=-1), y

    torch.manual_seed(0)
    return Network().eval()


@pytest.mark.slow
@pytest.mark.parametrize("kept_apart", [False, True], ids=["constants", "parameters"])
def test_exported_program(kept_apart):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    model, x = network(), torch.randn(2, 3, 24, 20, generator=torch.Generator().manual_seed(1))
    mod = from_exported_program(torch.export.export(model, (x,)), keep_params_as_input=kept_apart)
    mod, params = detach_params(mod) if kept_apart else (mod, {})
    partitioned = tvm_megcc.partition_for_megcc(mod, params)
    report = megcc.report(partitioned)
    assert report.share == 1.0 and not report.theirs and len(report.regions) == 1, str(report)
    assert_same(run(tvm_megcc.build(partitioned), [x.numpy()]), computed(model, x))


def computed(model, x) -> list:
    """PyTorch's results."""
    import torch

    with torch.no_grad():
        return [value.numpy() for value in model(x)]


@pytest.mark.slow
def test_open_batch():
    """A batch that torch.export leaves open is a symbol of the one region."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tvm.relax.frontend.torch import from_exported_program

    model, generator = network(), torch.Generator().manual_seed(1)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(2, 3, 24, 20),), dynamic_shapes={"x": {0: batch}})
    partitioned = tvm_megcc.partition_for_megcc(from_exported_program(program), target="megcc-c")
    report = megcc.report(partitioned)
    assert report.share == 1.0 and not report.theirs and len(report.regions) == 1, str(report)
    executable = tvm_megcc.build(partitioned, "megcc-c")
    for count in (1, 2, 5):
        x = torch.randn(count, 3, 24, 20, generator=generator)
        assert_same(run(executable, [x.numpy()]), computed(model, x))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_programs_of_16_bits(dtype):
    """TVM's importer gives convolutions and products float32 results, which do not fit the rest: the message says what
    to do."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, x = network().to(getattr(torch, dtype)), torch.randn(2, 3, 24, 20).to(getattr(torch, dtype))
    with pytest.raises(tvm_megcc.MegccError, match=f"are {dtype}, .*: export the network in float32"):
        tvm_megcc.compile(torch.export.export(model, (x,)), "c")
