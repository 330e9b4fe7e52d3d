# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

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
