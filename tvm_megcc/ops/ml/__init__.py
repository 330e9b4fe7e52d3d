# SPDX-License-Identifier: Apache-2.0
"""The domain ai.onnx.ml: linear models, trees, support vectors; optimisers of ai.onnx.preview.training."""

from . import coupling, models, optimizers, tree_ensembles, tree_tables, trees
