# SPDX-License-Identifier: Apache-2.0
"""A process of its own, for a sanitizer's sake: runs folders that were built on the inputs beside them.

    python -m tests.compiled.models.drawn_runs COMPILER FOLDER...

Beside each FOLDER lies FOLDER.in.npz with arrays `<run>/<input>`; FOLDER.out.npz gets
`<run>/<output>`, or `<run>/` with the message of a run that failed. Says the folder that it begins with.
"""

import sys

import numpy as np

import tvm_megcc
from tvm_megcc.runtime.load import load

compiler, *folders = sys.argv[1:]
for folder in folders:
    print(folder, flush=True)
    runs: dict[str, dict[str, np.ndarray]] = {}
    for key, array in np.load(f"{folder}.in.npz").items():
        run, name = key.split("/", 1)
        runs.setdefault(run, {})[name] = array
    results = {}
    with load(folder, None, compiler) as session:
        names = [port.name for port in session.inputs]
        for run, inputs in runs.items():
            try:
                found = session.run({name: inputs[name] for name in names})
                results.update((f"{run}/{name}", array) for name, array in found.items())
            except tvm_megcc.MegccError as error:
                results[f"{run}/"] = np.array(str(error))
    np.savez(f"{folder}.out.npz", **results)
