# SPDX-License-Identifier: Apache-2.0
"""What stands between dequantize_linear and quantize_linear is brought onto integers."""
