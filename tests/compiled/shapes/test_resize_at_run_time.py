# SPDX-License-Identifier: Apache-2.0
"""Resizes whose scales, sizes or extents only the run knows, compiled: against the same resize of known ones."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference


def resized(x: np.ndarray, operand: str, values: np.ndarray, **how) -> np.ndarray:
    """What the resize gives where everything is known."""
    operands = "x  v" if operand == "scales" else "x   v"
    source = model([node("Resize", operands, "y", **how)], {"x": list(x.shape)}, ["y"], {"v": values}, opset=18)
    return reference.run(import_onnx(source), {"x": x})["y"]


def compiled(folder, operand: str, shape: list, dispatch: str = "", **how):
    operands = "x  v" if operand == "scales" else "x   v"
    kind = ("float32" if operand == "scales" else "int64", [len(how.get("axes", shape))])
    source = model([node("Resize", operands, "y", **how)], {"x": shape, "v": kind}, ["y"], opset=18)
    return tvm_megcc.load(tvm_megcc.compile(source, "native", name="resize", dispatch=dispatch or None).save(
        folder / "resize"))


@pytest.mark.parametrize("how", [
    {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    pytest.param({"mode": "linear", "antialias": 1}, marks=pytest.mark.slow),
    pytest.param({"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}, marks=pytest.mark.slow),
    pytest.param({"mode": "cubic", "antialias": 1}, marks=pytest.mark.slow)],
    ids=lambda how: "_".join(map(str, how.values())))
def test_scales_that_the_run_knows(how, tmp_path):
    """Of extents that are open too; the results' extents follow from both."""
    draw = np.random.default_rng(1)
    with compiled(tmp_path, "scales", [1, 2, "h", "w"], "x[2]=1..*;x[3]=1..16", axes=[2, 3], **how) as session:
        for shape, scales in (((1, 2, 6, 9), (0.5, 1.4)), ((1, 2, 5, 4), (2.3, 0.3)), ((1, 2, 7, 3), (1.0, 1.0))):
            x, scales = draw.normal(size=shape).astype(np.float32), np.array(scales, np.float32)
            result = session.run({"x": x, "v": scales})["y"]
            expected = resized(x, "scales", scales, axes=[2, 3], **how)
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        for scale in (-1.0, float("inf")):
            with pytest.raises(MegccError):
                session.run({"x": x, "v": np.array([scale, 1], np.float32)})
        assert session.run({"x": x, "v": np.array([0, 1], np.float32)})["y"].shape == (1, 2, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_sizes_that_the_run_knows(policy, tmp_path):
    how = {"mode": "linear", "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    draw = np.random.default_rng(2)
    with compiled(tmp_path, "sizes", [1, 3, 6, 8], **how) as session:
        for sizes in ((9, 8), (6, 8), (3, 11), (1, 1)):
            x = draw.normal(size=(1, 3, 6, 8)).astype(np.float32)
            expected = resized(x, "sizes", np.array(sizes), **how)
            result = session.run({"x": x, "v": np.array(sizes)})["y"]
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_a_broken_scale_of_an_open_extent(tmp_path):
    source = model([node("Resize", "x  v", "y", mode="linear")], {"x": [1, "n"]}, ["y"],
                   {"v": np.array([1, 1.5], np.float32)})
    artifact = tvm_megcc.compile(source, "native", name="resize", dispatch="x[1]=1..*")
    with tvm_megcc.load(artifact.save(tmp_path / "resize")) as session:
        for n in (4, 7, 1):
            x = np.arange(n, dtype=np.float32)[None]
            expected = resized(x, "scales", np.array([1, 1.5], np.float32), mode="linear")
            np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
