# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers all of them in `base.OPERATORS` and `base.DECOMPOSITIONS`."""

from . import (
    cast,
    contrib,
    control,
    elementwise,
    math,
    ml,
    nn,
    quantized,
    random,
    recurrent,
    search,
    strings,
    tensor,
    vision,
)
