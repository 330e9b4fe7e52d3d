# SPDX-License-Identifier: Apache-2.0
"""A model that failed, as a file: python -m tests.differential --replay FILE.

The file is JSON, which a person can read and change: the model as protobuf spells it, and what is fed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import json_format
from onnx import TensorProto, helper, numpy_helper

from .cases import Case
from .families import FAMILIES
from .family import Family
from .result import BAD, Result
from .shrink import shrunk
from .worker import compiled

#: Models that once failed. A test runs every one.
KEPT = Path(__file__).parent / "kept"


def result_of(family: Family, case: Case, target: str) -> Result:
    """In numpy, and compiled where there is a target and numpy is right. case: as `Family.again` makes it."""
    result = family.check(case)
    return compiled(family, [case], target)[0] if target and result.outcome == "right" else result


def smallest(family: Family, case: Case, target: str, seconds: float = 60) -> Case:
    """The smallest model that fails as the case does: in numpy or on the target, with the same result."""
    for found in family.alone(case):
        result = result_of(family, found, target)
        if result.outcome in BAD:
            break
    else:
        return case

    def fails(smaller: Case) -> bool:
        try:
            now = result_of(family, family.again(smaller), target)
        except Exception:  # no model any more
            return False
        return (now.outcome, now.reason.split(":")[0] if now.outcome == "crash" else "") == (
            result.outcome, result.reason.split(":")[0] if result.outcome == "crash" else "")

    return family.again(shrunk(found, fails, seconds))


def text_of(family: str, case: Case, target: str = "", reason: str = "") -> str:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(_spelled(numpy_helper.to_array(tensor), tensor.name))
    return json.dumps({"family": family, "number": case.number, "operator": case.kind, "label": case.label,
                       "target": target, "reason": reason, "dims": dict(case.dims),
                       "model": json_format.MessageToDict(model),
                       "feeds": [json_format.MessageToDict(_spelled(array, name))
                                 for name, array in case.feeds.items()]}, indent=1, ensure_ascii=False) + "\n"


def case_of(text: str) -> tuple[str, Case, str]:
    """Family, case and target of a file's text."""
    row = json.loads(text)
    model = json_format.ParseDict(row["model"], onnx.ModelProto())
    feeds = [json_format.ParseDict(each, TensorProto()) for each in row["feeds"]]
    case = Case(0, row.get("number", 0), row["operator"], model.opset_import[0].version, row["label"], model,
                {each.name: numpy_helper.to_array(each) for each in feeds}, dims=row.get("dims", {}))
    return row["family"], FAMILIES[row["family"]].again(case), row["target"]


def _spelled(array: np.ndarray, name: str) -> TensorProto:
    """A tensor whose numbers are text in JSON, not bytes."""
    if array.dtype == object:
        return helper.make_tensor(name, TensorProto.STRING, array.shape, [text.encode() for text in array.ravel()])
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ravel().tolist())
