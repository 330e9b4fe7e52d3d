# SPDX-License-Identifier: Apache-2.0
"""Operators of neural networks: convolution, pooling, normalisation, activations, attention."""

from . import (
    activation,
    attention,
    col2im,
    conv,
    conv3d,
    conv_transpose,
    deform_conv,
    fused_attention,
    layer_norm,
    lrn,
    norm,
    pool,
    rotary,
    softmax,
    windows,
)
