# SPDX-License-Identifier: Apache-2.0
"""Runs a WebAssembly program for WASI by PyPI's wasmtime, with the current folder: wasi.py PROGRAM ARGUMENTS…

It is used if there is no node. It is run as a program and imports nothing of the package.
"""

import os
import sys

import wasmtime


def main() -> int:
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    linker.define_wasi()
    config = wasmtime.WasiConfig()
    config.argv = sys.argv[1:]
    config.preopen_dir(os.getcwd(), ".")
    config.inherit_stdin()
    config.inherit_stdout()
    config.inherit_stderr()
    store.set_wasi(config)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as ended:
        return ended.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
