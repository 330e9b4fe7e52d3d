# SPDX-License-Identifier: Apache-2.0
"""WebAssembly in node, wasmtime and the browser."""
