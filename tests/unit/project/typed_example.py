# SPDX-License-Identifier: Apache-2.0
"""The public API as a program with types uses it; test_typing.py has mypy check it, nothing runs it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tvm_megcc


def classify(model: Path, image: npt.NDArray[np.float32]) -> int:
    artifact = tvm_megcc.compile(model, "native", threads=2, states={"h_out": "h_in"}, optimize="speed",
                                 inputs={"data": tvm_megcc.Input(dtype="uint8", mean=(127.5,))})
    folder: Path = artifact.save(model.with_suffix(".megcc"), force=True)
    kernels: list[str] = sorted(artifact.sources)
    with tvm_megcc.load(folder) as session:
        names: list[str] = [port.name for port in session.get_inputs()]
        shape: tuple[int | str, ...] = session.get_outputs()[0].shape
        by_name: dict[str, npt.NDArray[Any]] = session.run({names[0]: image})
        in_order: dict[str, npt.NDArray[Any]] = session.run([image])
        one: dict[str, npt.NDArray[Any]] = session.run(image)
        listed: list[npt.NDArray[Any]] = session.run(None, {names[0]: image})
        called = session(image)
        first = called if isinstance(called, np.ndarray) else called[0]
        bound = session.bind({names[0]: image})
        bound.inputs[names[0]][...] = 0
        scores: npt.NDArray[Any] = bound()[session.outputs[0].name]
        session.reset()
        state: dict[str, npt.NDArray[Any]] = session.states
        seconds: float = sum(call["seconds"] for call in session.profile({names[0]: image}))
    print(kernels, shape, by_name, in_order, one, listed, first, state, seconds)
    tvm_megcc.load(tvm_megcc.compile(model, dims={"batch": 1, "time": range(1, 9)}, bounds="boxes=9"), threads=1)
    return int(scores.argmax())


def check(model: str) -> bool:
    try:
        report = tvm_megcc.compare(model, "native", arrays={"data": np.zeros(4, np.float32)}, layers=True,
                                   optimize="size", input_shapes={"data": (4,)})
        print(report, tvm_megcc.explain(model), tvm_megcc.inspect(model, size=True))
        print(tvm_megcc.bench([model], repeat=3, constants={"sr": 16000})["seconds"]["median"])
    except tvm_megcc.MegccError as error:
        print(error)
        return False
    return bool(report["equal"])
