# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that are refused, each with its reason."""

_STRING = "makes new strings or reads their characters, which is not supported; do it before you call the model"

#: Operators that are refused -> the reason, which messages quote. Function bodies of ONNX's schemas are not tried.
REFUSED = {
    "ImageDecoder": "decoding images is not supported; give the model their pixels",
    "ai.onnx.preview.training::Gradient": "gradients are not supported; let a training framework write them out",
    **dict.fromkeys(("StringConcat", "StringSplit", "RegexFullMatch"), _STRING),
}

#: Domains that are refused as a whole -> the reason.
REFUSED_DOMAINS = {
    "com.microsoft.nchwc": "is of a file that ONNX Runtime wrote for one CPU, in blocks of channels that it does not "
                           "state; let it write the file with ORT_ENABLE_EXTENDED",
}
