# SPDX-License-Identifier: Apache-2.0
"""Relax's operators on images, compiled by us and by TVM."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax

from .modules import RELEASE, assert_same, check, f32, megcc, module, random_inputs, run, weights

nn, image, vision = relax.op.nn, relax.op.image, relax.op.vision
REGIONS = relax.const(np.array([[1, 0.5, 1, 4.2, 4.9], [0, 0, 0, 3, 2], [1, 2, 1, 2.4, 5]], np.float32))


def relu(emit, value):
    return emit(nn.relu(emit(value)))


#: What one module computes from its input; several results, so that one build serves several operators.
IMAGES = {
    "conv_transpose": ((2, 8, 5, 7), lambda emit, x: (
        relu(emit, nn.conv2d_transpose(x, weights(8, 6, 3, 3), strides=(2, 2), padding=(1, 1), output_padding=(1, 1))),
        emit(nn.conv2d_transpose(x, weights(8, 3, 4, 2), strides=(3, 1), groups=2)))),
    "pools": ((1, 3, 7, 10), lambda emit, x: (
        emit(nn.adaptive_avg_pool2d(x, (1, 1))),
        emit(nn.max_pool2d(x, (3, 2), strides=(2, 1), padding=(1, 0), ceil_mode=True)))),
    "resize": ((1, 3, 6, 5), lambda emit, x: (
        emit(image.resize2d(x, (9, 4), method="cubic")),
        emit(image.resize2d(x, (9, 4), method="cubic", cubic_alpha=-0.5, cubic_exclude=1)),
        emit(image.resize2d(x, (4, 11), method="linear", coordinate_transformation_mode="align_corners")))),
    "nearest": ((1, 3, 6, 4), lambda emit, x: tuple(  # half way between two elements at every second place
        emit(image.resize2d(x, size, method="nearest_neighbor", coordinate_transformation_mode=mode,
                            rounding_method=rounding))
        for size in ((3, 7), (11, 2))
        for mode, rounding in (("half_pixel", "round"), ("asymmetric", "round"), ("align_corners", "round"),
                               ("align_corners", ""), ("half_pixel", "")))),
    "one_axis": ((2, 4, 13), lambda emit, x: (
        emit(nn.conv1d_transpose(x, weights(4, 5, 3), strides=2, padding=1)),
        emit(nn.adaptive_avg_pool1d(x, 5)))),
    "sampling": ((2, 3, 6, 5), lambda emit, x: (
        emit(image.grid_sample(x, weights(2, 2, 4, 3, scale=0.7))),
        emit(image.grid_sample(x, weights(2, 2, 4, 3, scale=0.7), method="bicubic", align_corners=True)),
        emit(image.grid_sample(x, weights(2, 2, 4, 3, scale=0.7), padding_mode="border")),
        emit(vision.roi_align(x, REGIONS, (2, 3), 0.5, sample_ratio=2)),
        emit(vision.roi_pool(x, REGIONS, (2, 2), 0.9)))),
    "aligned": ((2, 3, 6, 5), lambda emit, x: emit(vision.roi_align(x, REGIONS, (2, 3), 1.0, aligned=True))),
    "volumes": ((1, 3, 5, 6, 7), lambda emit, x: (
        relu(emit, nn.conv3d(x, weights(5, 3, 3, 2, 3), strides=(1, 2, 1), padding=(1, 0, 1))),
        emit(nn.conv3d_transpose(x, weights(3, 2, 2, 3, 2), strides=(2, 1, 2))),
        emit(nn.max_pool3d(x, (2, 2, 2), strides=(2, 2, 2))), emit(nn.avg_pool3d(x, (2, 3, 2), padding=(0, 1, 0))),
        emit(nn.adaptive_avg_pool3d(x, (2, 4, 3))))),
}


#: The first release whose own build of a module, the judge, is right. Before, it ends in an internal error, has
#: another shape of `grid_sample`, or takes other windows in adaptive pools.
BUILT_SINCE = {"aligned": (0, 27), "sampling": (0, 26), "volumes": (0, 26)}


@pytest.mark.parametrize("name", [name if name == "pools" else pytest.param(name, marks=pytest.mark.slow)
                                  for name in IMAGES])
def test_images(name: str):
    if RELEASE < BUILT_SINCE.get(name, ()):
        pytest.skip(f"TVM {tvm.__version__} does not build it right")
    shape, build = IMAGES[name]
    report = check(module(build, f32(*shape)), share=None)
    assert not report.theirs, str(report)


def test_windows_of_uneven_size():
    """Not against TVM: one of its releases takes other windows."""
    mod = module(lambda emit, x: emit(nn.adaptive_avg_pool2d(x, (3, 4))), f32(1, 3, 7, 10))
    (x,) = random_inputs(mod)
    rows, columns = ([(index * extent // count, -(-(index + 1) * extent // count)) for index in range(count)]
                     for extent, count in ((7, 3), (10, 4)))
    expected = np.stack([np.stack([x[:, :, top:bottom, left:right].mean((2, 3)) for left, right in columns], -1)
                         for top, bottom in rows], -2)
    assert_same(run(megcc.build(mod, "megcc-c"), [x]), [expected])
