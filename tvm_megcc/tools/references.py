# SPDX-License-Identifier: Apache-2.0
"""Runs other engines on a model, for `megcc compare`, in a subprocess (`in_subprocess`), since they may crash it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from .in_subprocess import Refused

Arrays = dict[str, np.ndarray]


def onnxruntime_values(model: Path, feeds: Arrays, names: Sequence[str], optimised: bool) -> Arrays:
    """Returns values of these names by ONNX Runtime on one thread. optimised: with its optimisations of the graph.

    Instead of a ZipMap's result, which is dictionaries in the order of their keys, the scores before it are returned.
    """
    import onnxruntime

    proto = onnx.load(model)
    known = {value.name for value in proto.graph.output}
    outputs = {name for node in proto.graph.node for name in node.output}
    scores = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == "ZipMap"}
    wanted = {name: scores.get(name, name) for name in names if name in outputs | known}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(wanted.values())
                              if name not in known)
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(wanted, session.run(list(wanted.values()), feeds), strict=True))
    except Exception as error:  # ONNX Runtime's exceptions have no other common base
        raise Refused(str(error), f"ONNX Runtime {onnxruntime.__version__}") from None


def litert_values(model: Path, feeds: Arrays, names: Sequence[str], ports: Mapping[int, str],
                  signature: str) -> Arrays:
    """Returns values of these names by LiteRT's reference kernels; with a signature only its outputs.

    ports: index of each tensor that is an input or output -> its name. signature: its name, "" for the whole graph.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                                  experimental_preserve_all_tensors=True, num_threads=1)
        if signature:
            runner = interpreter.get_signature_runner(signature)
            given = {key: feeds[ports[detail["index"]]] for key, detail in runner.get_input_details().items()}
            results = runner(**given)
            values = {ports[detail["index"]]: results[key] for key, detail in runner.get_output_details().items()}
            return {name: value for name, value in values.items() if name in names}
        indices = {ports[detail["index"]]: detail["index"] for detail in interpreter.get_input_details()}
        feeds = {name: array for name, array in feeds.items() if name in indices}  # LiteRT keeps states itself
        for name, array in feeds.items():
            interpreter.resize_tensor_input(indices[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in feeds.items():
            interpreter.set_tensor(indices[name], array)
        interpreter.invoke()
        name_of = {detail["index"]: ports.get(detail["index"], detail["name"])
                   for detail in interpreter.get_tensor_details()}
        return {name: interpreter.get_tensor(index) for index, name in name_of.items() if name in names}
    except (RuntimeError, ValueError, KeyError) as error:
        raise Refused(str(error)) from None
