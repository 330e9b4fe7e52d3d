# SPDX-License-Identifier: Apache-2.0
"""Prepares a module for pattern matching: binds parameters as constants and folds constants.

Batch norms and layouts stay as they are, since our own passes fold and choose them, for all front ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relay
from tvm.relay.build_module import bind_params_by_name

from ...errors import MegccError
from .functions import by_function


def prepare(mod: tvm.IRModule, params: Mapping | None = None) -> tvm.IRModule:
    """Binds parameters, makes shapes static where possible, folds constants and infers types."""
    mod = bind_params(relay.transform.InferType()(mod), params or {})
    return by_function(mod, lambda _name: tvm.transform.Sequential([
        relay.transform.DynamicToStatic(), relay.transform.FoldConstant(), relay.transform.InferType()]))


def bind_params(mod: tvm.IRModule, params: Mapping) -> tvm.IRModule:
    """Replaces parameters of "main" by constants; changes the module in place.

    Args:
        params: {name: array}, as TVM's importers return it.

    Raises:
        MegccError: for a name that the function does not have.
    """
    if not params:
        return mod
    known = {parameter.name_hint for parameter in mod["main"].params}
    unknown = sorted(set(params) - known)
    if unknown:
        raise MegccError(f"main has no parameter {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    arrays = {name: tvm.nd.array(np.asarray(value, order="C")) if isinstance(value, np.ndarray) else value
              for name, value in params.items()}
    mod["main"] = bind_params_by_name(mod["main"], arrays)
    return mod
