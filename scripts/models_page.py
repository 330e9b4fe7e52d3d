#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/models.md: the networks that the tests run, compiled for arm64, and run here against their references.

    python scripts/models_page.py > docs/models.md          # from the checkout, with the models in $MEGCC_MODELS
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tvm_megcc
from tests.models.networks import ALL_NETWORKS, Network
from tests.models.test_dynamic import DYNAMIC
from tests.models.test_streaming import STREAMS

HEAD = """\
# Models

Written by `python scripts/models_page.py`: networks that the tests compile, build and run. The models of
`$MEGCC_MODELS` are trained; those named `light_` come with the onnx package and have seeded random weights. Sizes are
those of target arm64 at `-O speed`, in units of 1,024 bytes. Kernels are fewer than calls where calls share one. The
last column is the largest difference from the stored reference or, if there is none, from ONNX Runtime. It is
relative to the largest magnitude of the output, on the machine that wrote this page (rounded up to a power of ten).
"Noise": ONNX Runtime with and without its optimiser differ by as much.

| network | inputs | multiply-adds | weights KB | arena KB | calls, kernels | difference |
|---|---|---|---|---|---|---|
"""


def facts(network: Network) -> list[str]:
    """Cells that are the same on every machine: name, inputs, multiply-adds, weights, arena, calls and kernels."""
    artifact = tvm_megcc.compile(network.path, "arm64", name=network.name, **arguments(network))
    (program,) = artifact.manifest["programs"]
    inputs = ", ".join(f"{port['dtype']} {'×'.join(map(str, port['shape'])) or 'scalar'}"
                       for port in artifact.manifest["inputs"])
    kernels = sum(name.startswith("kernels/") for name in artifact.sources)
    macs = sum(call["macs"] for call in program["calls"])
    return [f"`{network.name}`", inputs, f"{macs / 1e6:,.2f} M", f"{program['weight_bytes'] / 1024:,.1f}",
            f"{program['arena_bytes'] / 1024:,.1f}", f"{program['instructions']}, {kernels}"]


def difference(network: Network) -> str:
    """Runs the network on this machine; "1e-6" is an upper bound of the difference."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = tvm_megcc.compile(network.path, "native", name=network.name, **arguments(network))
        session = tvm_megcc.load(artifact.save(Path(folder) / network.name))
        cases = [(inputs, outputs) for _, inputs, outputs in network.references()]
        if not cases:
            inputs = network.inputs(1)
            cases = [(inputs, network.expected(inputs))]
        worst = max(float(np.abs(got - outputs[name]).max() / np.abs(outputs[name]).max())
                    for inputs, outputs in cases for name, got in session.run(inputs).items())
    text = f"1e{math.ceil(math.log10(worst))}" if worst else "0"
    return f"{text}, noise" if network.noise else text


def arguments(network: Network) -> dict:
    return {"input_shapes": dict(network.shapes), "constants": dict(network.constants)}


def options(shapes: Mapping = {}, constants: Mapping = {}, **strings: str | None) -> str:
    """As the command has them."""
    words = [f"--{name.replace('_', '-')} {shlex.quote(text)}" for name, text in strings.items() if text]
    if shapes:
        text = ";".join(f"{name}=({','.join(map(str, shape))})" for name, shape in shapes.items())
        words.append(f"--input-shapes {shlex.quote(text)}")
    words += [f"--constant {shlex.quote(f'{name}={value}')}" for name, value in constants.items()]
    return " ".join(words)


def states(network: Network) -> str:
    """`--state` for every state of a streaming network, from the facts beside it."""
    meta = json.loads((network.path.parent / "meta.json").read_text())
    pairs = meta["onnx"]["cases"]["sequence_speech"]["state_map"]
    return " ".join(f"--state {shlex.quote(f'{output}={state}')}" for state, output in pairs.items())


def page() -> str:
    text = HEAD
    for network in ALL_NETWORKS.values():
        print(network.name, file=sys.stderr, flush=True)
        text += f"| {' | '.join([*facts(network), difference(network)])} |\n"
    text += "\nFor models with open shapes, these shapes were given:\n\n"
    for network in ALL_NETWORKS.values():
        if given := options(dict(network.shapes), dict(network.constants)):
            text += f"    megcc compile {network.name}.onnx {given}\n"
    text += ("\n## Shapes that change\n\nOne container each, 200 random shapes inside the ranges against ONNX Runtime "
             "([how](dynamic-shapes.md)):\n\n")
    for model in DYNAMIC.values():
        constants = {name: int(value) for name, value in model.constants.items()}
        given = options({}, constants, dispatch=model.dispatch, input_shapes=model.shapes)
        text += f"    megcc compile {model.name}.onnx {given}\n"
    text += "\n## Streams\n\nRecorded sequences, the states kept by the session ([how](streaming.md)):\n\n"
    for network in STREAMS.values():
        given = options(dict(network.shapes), dict(network.constants))
        text += f"    megcc compile {network.name}.onnx {f'{given} ' if given else ''}{states(network)}\n"
    return text


if __name__ == "__main__":
    try:
        print(page(), end="")
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))
