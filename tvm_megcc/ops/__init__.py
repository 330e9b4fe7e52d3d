# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import contrib, control, elementwise, math, ml, nn, quantized, random, recurrent, strings, tensor, vision
