# SPDX-License-Identifier: Apache-2.0
"""Operators of the ONNX domains ai.onnx.ml (linear models, trees, support vector machines, encoders) and
ai.onnx.preview.training (optimisers)."""

from . import coupling, models, optimizers, tree_ensembles, tree_tables, trees
