# SPDX-License-Identifier: Apache-2.0
"""The front end for TFLite, which needs no TVM. `file` reads and checks the bytes; `value` holds tensors in any order
of axes. The other modules have an importer, a table row or a function, for each operator of the format.
"""

from .importer import UnsupportedModel, import_tflite
from .ports import input_dims, missing_in_litert, port_names, states_not_kept

__all__ = ["UnsupportedModel", "import_tflite", "input_dims", "missing_in_litert", "port_names", "states_not_kept"]
