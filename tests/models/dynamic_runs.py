# SPDX-License-Identifier: Apache-2.0
"""A process of its own, for a sanitizer's sake: runs a folder on arrays `<run>/<input>` of an .npz file.

    python dynamic_runs.py FOLDER IN.npz OUT.npz COMPILER
"""

import sys

import numpy as np

import tvm_megcc
from tvm_megcc.runtime.load import load

folder, source, result, compiler = sys.argv[1:]
session = load(folder, None, compiler)
runs: dict[str, dict[str, np.ndarray]] = {}
for key, array in np.load(source).items():
    run, name = key.split("/", 1)
    runs.setdefault(run, {})[name] = array
outputs = {}
for run, inputs in runs.items():
    try:
        outputs.update((f"{run}/{name}", array) for name, array in session.run(inputs).items())
    except tvm_megcc.MegccError:
        outputs[f"{run}/refused"] = np.array(True)
np.savez(result, **outputs)
