# SPDX-License-Identifier: Apache-2.0
"""Runs a program of several networks without its C code: networks, operators and features by ONNX Runtime, the
operators of our own domain by their semantics in numpy, tokenizers by the package tokenizers, pictures by megcc_cv."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.compiled.packages.test_cv import LINEAR, called
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.tools.program import features, functions, images, operators
from tvm_megcc.tools.program.description import Description
from tvm_megcc.tools.program.kinds import KINDS
from tvm_megcc.tools.program.steps import Feature, Image, Loop, Network, Operator, Step, Tokenizer, ValueType

Values = dict[str, np.ndarray]


class StepByStep:
    """A program; `run` keeps its states. library: megcc_cv, as `library` of tests.compiled.packages.test_cv has it.
    empty: results of loops without iterations."""

    def __init__(self, program: Description, library: ctypes.CDLL, empty: Mapping[str, np.ndarray] | None = None):
        self.program, self.library, self.empty = program, library, empty or {}
        self.types = {name: ValueType.of(text) for name, text in program.inputs.items()}
        self.states = {name: np.zeros(ValueType.of(state.type).shape, state.type.partition("[")[0])
                       for name, state in program.states.items()}
        self.sessions: dict[object, object] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> Values:
        values = dict(inputs) | self.states
        self._steps(self.program.steps, values)
        self.states = {name: values[state.next].reshape(ValueType.of(state.type).shape)
                       for name, state in self.program.states.items()}
        return {name: values[name] for name in self.program.outputs}

    def _steps(self, steps: Sequence[Step], values: Values) -> None:
        for step in steps:
            if isinstance(step, Loop):
                self._loop(step, values)
            elif isinstance(step, Network):
                self._network(step, values)
            elif isinstance(step, Image):
                values[step.output] = picture(step, values, self.library)
            elif isinstance(step, Tokenizer):
                self._tokenizer(step, values)
            else:
                self._function(step, values)

    def _loop(self, loop: Loop, values: Values) -> None:
        trips = min(max(int(values[loop.count].item()), 0), loop.max_trip_count) if loop.count else loop.max_trip_count
        inner = dict(values)
        inner |= {name: values[carried.initial] if carried.initial else np.zeros(
            ValueType.of(carried.type).shape, carried.type.partition("[")[0]) for name, carried in loop.carried.items()}
        rows: dict[str, list] = {name: [] for name in loop.outputs}
        for step in loop.steps:  # their states begin anew
            if isinstance(step, Network):
                self.sessions.pop((step.path, step.name), None)
        done = 0
        while done < trips:
            inner |= {name: values[source][done] for name, source in loop.for_each.items()}
            if loop.index:
                inner[loop.index] = np.array([done])
            self._steps(loop.steps, inner)
            done += 1
            for name, source in loop.outputs.items():
                rows[name].append(inner[source])
            inner |= {name: inner[carried.next].reshape(inner[name].shape) for name, carried in loop.carried.items()}
            if loop.until and inner[loop.until].item():
                break
        for name, found in rows.items():
            if not found:
                values[name] = self.empty[name]
                continue
            array = np.stack(found)
            rest = np.zeros((loop.max_trip_count - done, *array.shape[1:]), array.dtype)
            values[name] = np.concatenate([array, rest])
        values |= {name: inner[source] for name, source in loop.final.items()}
        if loop.trip_count:
            values[loop.trip_count] = np.array([done])

    def _network(self, step: Network, values: Values) -> None:
        import onnxruntime

        if step.path not in self.sessions:
            self.sessions[step.path] = onnxruntime.InferenceSession(step.path, providers=["CPUExecutionProvider"])
        session = self.sessions[step.path]
        kept = self.sessions.setdefault((step.path, step.name), {})
        states = [pair.split("=") for pair in _words(step.options.get("states", ()))]
        feeds = {}
        for port in session.get_inputs():
            state = next((output for output, name in states if name == port.name), None)
            dtype = {"tensor(int64)": np.int64, "tensor(float)": np.float32}[port.type]
            shape = [extent if isinstance(extent, int) else -1 for extent in port.shape]
            if state:
                feeds[port.name] = kept.get(port.name, np.zeros([max(extent, 0) for extent in shape], dtype))
                if step.reorder:
                    feeds[port.name] = feeds[port.name][values[step.reorder].reshape(-1)]
                continue
            given = values[step.inputs[port.name]]
            given = formatted(given, step.options.get("inputs", ()), port.name)
            feeds[port.name] = given.astype(dtype).reshape(shape)
        found = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds), strict=True))
        kept |= {name: found[output] for output, name in states}
        values |= {value: found[name] for name, value in step.outputs.items()}

    def _function(self, step: Step, values: Values) -> None:
        given = {name: ValueType(values[name].dtype.name, values[name].shape) for name in step.taken}
        if isinstance(step, Operator):
            model, names = operators.model(step, given), [f"in_{at}" for at in range(len(step.inputs))]
            feeds = {name: values[each] for name, each in zip(names, step.inputs, strict=True) if isinstance(each, str)}
            results = [f"out_{at}" for at in range(len(step.outputs))]
        elif isinstance(step, Feature):
            model, feeds, results = features.model(step, given[step.input]), {"sound": values[step.input]}, ["features"]
        else:
            model = functions.model(step, KINDS[step.kind].functions,
                                    {name: given[value] for name, value in step.inputs.items()})
            feeds = {name: values[value] for name, value in step.inputs.items()}
            results = [f"out_{name}" for name in step.outputs]
        values |= dict(zip(step.produced, self._model(model, feeds, results), strict=True))

    def _model(self, model, feeds: Values, results: Sequence[str]) -> list[np.ndarray]:
        import onnxruntime

        data = model.SerializeToString()
        if any(node.domain for node in model.graph.node):
            if data not in self.sessions:
                self.sessions[data] = import_onnx(model)
            found = reference.run(self.sessions[data], feeds)
            return [found[name] for name in results]
        if data not in self.sessions:
            self.sessions[data] = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        return self.sessions[data].run(list(results), feeds)

    def _tokenizer(self, step: Tokenizer, values: Values) -> None:
        from tokenizers import Tokenizer as Package

        package = Package.from_file(step.function)
        most = step.settings["most"]
        package.no_padding()
        package.enable_truncation(most)
        strings = [values[step.inputs[name]].tobytes().split(b"\0")[0].decode() for name in ("text", "pair")
                   if name in step.inputs]
        encoding = package.encode(*strings, add_special_tokens=step.settings.get("around", True))
        count = len(encoding.ids)
        rows = {"tokens": encoding.ids, "types": encoding.type_ids, "mask": [1] * count}
        found = {name: np.array(row + [0] * (most - count)) for name, row in rows.items()}
        found["count"] = np.array([count])
        values |= {value: found[name] for name, value in step.outputs.items()}


def _words(states: object) -> list[str]:
    if isinstance(states, Mapping):
        return [f"{output}={name}" for output, name in states.items()]
    return str(states).replace(";", ",").split(",") if isinstance(states, str) else list(states)  # type: ignore[call-overload]


def formatted(given: np.ndarray, inputs: Sequence[str], name: str) -> np.ndarray:
    """Returns a picture as the network takes it: the option `--input NAME=uint8[,NHWC][,BGR][,mean=…][,std=…]`."""
    own = next((each for each in inputs if each.startswith(f"{name}=uint8")), "")
    if not own:
        return given
    parts = own.partition("=")[2].split(",")
    numbers = {key: np.float32([float(x) for x in text.split(":")]) for key, _, text in (
        part.partition("=") for part in parts if "=" in part)}
    pixels = given[..., ::-1] if "BGR" in parts else given
    pixels = (pixels.astype(np.float32) - numbers.get("mean", np.float32(0))) / numbers.get("std", np.float32(1))
    return pixels.transpose(2, 0, 1) if "NHWC" in parts else pixels


def picture(step: Image, values: Values, library: ctypes.CDLL) -> np.ndarray:
    """Returns the result of a step on a picture, of the functions that descriptions use."""
    given = np.ascontiguousarray(values[step.input])
    rows, columns = step.settings["size"]
    shape = (rows, columns, given.shape[2])
    if step.function == "warp_affine":
        matrix = values[step.settings["matrix"]].astype(np.float32).reshape(-1)
        border = np.zeros(shape[2], np.float32)
        return called(library, "warp_affine", given, shape, matrix.ctypes.data_as(ctypes.c_void_p),
                      int(step.settings.get("border") == "replicate"), border.ctypes.data_as(ctypes.c_void_p)).copy()
    assert step.function in ("letterbox", "resize")
    assert step.settings.get("method", "linear") == "linear"
    call = images.call(step, ValueType(given.dtype.name, given.shape), None)
    x, y, across, down = call.rectangle
    result = np.zeros(shape, given.dtype)
    result[:] = np.array(call.fill or 0).astype(given.dtype)
    work = np.empty(call.work, np.uint8)
    result[y:y + down, x:x + across] = called(library, "resize", given, (down, across, shape[2]), LINEAR,
                                              work.ctypes.data_as(ctypes.c_void_p))
    return result


def networks_of(program: Description) -> list[Network]:
    """Returns all networks of a program, also those in loops."""
    def of(steps: Sequence[Step]) -> list[Network]:
        return [each for step in steps for each in (
            of(step.steps) if isinstance(step, Loop) else [step] if isinstance(step, Network) else [])]

    return of(program.steps)


def files_of(program: Description) -> list[Path]:
    return [Path(step.path) for step in networks_of(program)]
