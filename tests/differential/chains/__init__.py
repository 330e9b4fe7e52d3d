# SPDX-License-Identifier: Apache-2.0
"""Drawn graphs of several operators beside the references of ONNX: `python -m tests.differential --family chains`."""
