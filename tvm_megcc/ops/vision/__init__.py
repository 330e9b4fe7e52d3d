# SPDX-License-Identifier: Apache-2.0
"""Operators on images: resizing, sampling, regions of interest, detections."""

from . import (
    affine_grid,
    db_boxes,
    detections,
    grid_sample,
    interpolation,
    resample,
    resize,
    resize_bilinear,
    resize_tables,
    roi,
)
