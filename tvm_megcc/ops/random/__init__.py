# SPDX-License-Identifier: Apache-2.0
"""Random operators: ONNX's RandomNormal, RandomUniform, Bernoulli, Multinomial and Dropout."""

from . import philox, random
