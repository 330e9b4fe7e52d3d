# SPDX-License-Identifier: Apache-2.0
"""Resizing, sampling, regions of interest, detections."""

from . import detections, grid_sample, interpolation, resample, resize, resize_tables, roi

__all__ = ["detections", "grid_sample", "interpolation", "resample", "resize", "resize_tables", "roi"]
