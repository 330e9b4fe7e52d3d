# SPDX-License-Identifier: Apache-2.0
"""Reads the signatures, inputs and outputs of a TFLite file, without importing operators."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path

from ... import folders
from ...errors import ModelError, quoted
from .file import File, read

#: Layers whose states begin with zero in each run, unless the user keeps them.
_RECURRENT = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN")
_ONE_SIGNATURE = "Say which with --signature NAME"


def load(path: str | Path, signature: str = "") -> File:
    """Reads a file and selects the subgraph of a signature.

    Raises:
        ModelError: if the file cannot be read, is not a TFLite file, or has none or several such subgraphs.
    """
    try:
        file = read(folders.read(path), str(path))
    except OSError as error:
        raise ModelError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return file.with_main_graph(_selected_subgraph(file, signature, str(path)))


def _selected_subgraph(file: File, signature: str, subject: str) -> int:
    """Returns the index of the subgraph to compile."""
    names = ", ".join(name for name, _ in file.signatures)
    if signature:
        if signature not in dict(file.signatures):
            has = f"has the signatures {names}, and not {quoted(signature)}" if names else "has no signatures"
            raise ModelError(subject, [has], "" if names else "Leave out --signature: there is one graph.")
        return dict(file.signatures)[signature]
    graphs = {index for _, index in file.signatures}
    if len(graphs) > 1:
        raise ModelError(subject, [f"has {len(file.signatures)} signatures ({names}), and one is compiled"],
                         _ONE_SIGNATURE)
    return graphs.pop() if graphs else 0


def input_dims(path: str | Path, signature: str = "") -> dict[str, tuple[int | None, ...]]:
    """Returns the file's shapes of the inputs. A dynamic extent has the file's default for it, often 1."""
    file = load(path, signature)
    names = names_of(file, file.inputs)
    return {names[index]: file.tensors[index].shape for index in file.inputs}


def port_names(path: str | Path, signature: str = "") -> dict[int, str]:
    """Returns tensor index -> name of the inputs and outputs. Missing and duplicate names of the file are replaced."""
    file = load(path, signature)
    return names_of(file, [*file.inputs, *file.outputs])


def states_not_kept(path: str | Path, states: Collection[str], signature: str = "") -> list[str]:
    """Returns the names of recurrent layers' states that are not in `states`, and so begin with zero in each run."""
    file = load(path, signature)
    found = (file.tensors[index] for operator in file.operators if operator.kind in _RECURRENT
             for index in operator.inputs if index >= 0)
    return [tensor.name for tensor in found if tensor.is_variable and tensor.name not in states]


def missing_in_litert(path: str | Path, signature: str = "") -> str:
    """Returns which operator of the file LiteRT's reference kernels lack, or crash on; "" for none."""
    file = load(path, signature)
    for operator in file.operators:
        states = [file.tensors[index].dtype for index in operator.inputs[4:5]] if operator.kind == "SVDF" else []
        if operator.kind == "CUSTOM CIRCULAR_BUFFER" or states == ["int8"]:
            return f"{operator.kind} as TFLite Micro has it"
        if operator.kind == "FULLY_CONNECTED" and any(file.tensors[index].blocks for index in operator.inputs[1:2]):
            return "FULLY_CONNECTED with scales for blocks of its weights"
    return ""


def names_of(file: File, indices: Sequence[int]) -> dict[int, str]:
    """Returns distinct names for inputs or outputs."""
    names: dict[int, str] = {}
    for index in indices:
        name = hint = file.tensors[index].name or f"tensor{index}"
        for number in itertools.count(1):
            if name not in names.values():
                break
            name = f"{hint}.{number}"
        names.setdefault(index, name)
    return names
