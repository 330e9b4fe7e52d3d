#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX Runtime's operator tests, saved as ONNX models with data, and writes the page about them.

    git clone https://github.com/emmtrix/emx-ort-test-artifacts && git -C emx-ort-test-artifacts lfs pull
    scripts/onnxruntime_tests.py emx-ort-test-artifacts/artifacts > docs/onnxruntime-tests.md
    scripts/onnxruntime_tests.py FOLDER --match matmul_4bits --list     # each test and what came of it
    scripts/onnxruntime_tests.py FOLDER --numpy                         # without compiling, a few minutes

Without FOLDER, MEGCC_ONNXRUNTIME_TESTS names it. A test is a folder with `model.onnx`, `test_data_set_*/input_*.pb`
and `output_*.pb`, and `validation.json` with the error that ONNX Runtime's test allows for each output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx_tests import Result, Test, _Watched, failures, run, table

from tvm_megcc import onnx_backend
from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError, MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.random.philox import Draw
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.strings import StringTable
from tvm_megcc.target import native

VARIABLE = "MEGCC_ONNXRUNTIME_TESTS"
KINDS = {"providers": "operators of ONNX", "contrib_ops": "operators of com.microsoft", "python": "from Python",
         "testdata": "models", "negative": "models that ONNX Runtime refuses"}
#: (absolute, relative) error that ONNX Runtime's tests allow where they do not say; other types are equal.
TOLERANCES = {"float64": (1e-5, 1e-5), "float32": (1e-5, 1e-4), "float16": (2.5e-3, 1e-3), "bfloat16": (2e-2, 1e-2)}
#: Tests whose results are not what the operator says -> what they are, and ours.
DECIDED = {r"QLinearSoftmax_U?Int8_v13": "ONNX Runtime's softmax over an axis that is not the last is up to 0.65 of a "
           "step below the quotient of the exponentials; ours is that quotient, rounded"}
VERDICTS = ("passed", "refused", "decided", "wrong", "failed")
#: The remark on a test that passes with constants.
BOUND = "with operands as constants"
#: The beginning of a file that Git LFS has not fetched.
_POINTER = b"version https://git-lfs"


class MissingData(Exception):
    """The collection, or the content of its files, is not there."""


class Case(NamedTuple):
    """A test of the collection."""

    folder: Path
    test: Test


def cases(root: Path) -> list[Case]:
    """Returns the tests below a folder, by name.

    Raises:
        MissingData: where there are none, or Git LFS has not fetched them.
    """
    found = []
    for path in sorted(root.rglob("model.onnx")):
        content = path.read_bytes()
        if content.startswith(_POINTER):
            raise MissingData(f"{path} is a pointer of Git LFS; run git lfs pull in the collection")
        name = path.parent.relative_to(root).as_posix()
        graph = onnx.ModelProto.FromString(content).graph
        kind = next((word for word in ("negative", *KINDS) if word in name), "testdata")
        operators = dict.fromkeys(node.op_type for node in graph.node if node.op_type != "Constant")
        found.append(Case(path.parent, Test(name, kind, tuple(operators))))
    if not found:
        raise MissingData(f"no model.onnx below {root}")
    return found


class _InNumpy:
    """A session that imports a model, rewrites it by the passes and runs the result by numpy."""

    def __init__(self, model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, None]):
        self.graph = import_onnx(model, shapes, constants=constants)
        if any(op.kind == Draw.kind for op in self.graph.ops):
            raise onnx_backend.UnsupportedModel("draws random numbers, which differ from those of others")
        self.final = before_layouts(self.graph, Context(native()))

    def run(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        strings, others = StringTable(self.graph.strings), dict[str, int]()
        feeds = {name: strings.codes(array, others) if array.dtype.kind in "OUS" else array
                 for name, array in arrays.items() if name in self.graph.inputs}
        results = reference.run(self.final, feeds)
        return {name: strings.strings(array, others) if name in self.graph.string_ports else array
                for name, array in results.items()}


class NumpyRep(onnx_backend.MegccRep):
    """A model that is imported and rewritten, but not compiled."""

    def _compiled(self, shapes=None, empty=None):
        try:
            return _InNumpy(self._model, dict(shapes or {}), dict(empty or {}))
        except InternalError:
            raise
        except MegccError as error:
            raise onnx_backend.UnsupportedModel(str(error)) from error


def check(folder: Path, rep: type[onnx_backend.MegccRep]) -> str:
    """Runs a test; where the compiler asks for an operand that is a constant, with all but one, or all, as constants.

    Returns:
        `BOUND` or "".

    Raises:
        AssertionError: for other numbers, shapes or types.
        UnsupportedModel: for a model that is refused.
    """
    model = onnx.load(folder / "model.onnx")
    rules = json.loads((folder / "validation.json").read_text()) if (folder / "validation.json").exists() else {}
    errors = {rule["name"]: rule for rule in rules.get("outputs", ())}
    remark = ""
    for data in sorted(folder.glob("test_data_set_*")):
        feeds = {value.name: _value(data / f"input_{index}.pb", value)
                 for index, value in enumerate(onnx_backend._inputs(model))}
        for made in (model, *(_bound(model, feeds, kept) for kept in (*list(feeds)[:2], ""))):
            try:
                results = rep(made, native()).run(feeds)
                remark = remark if made is model else BOUND
                break
            except onnx_backend.UnsupportedModel as error:
                if "to be a constant" not in str(error):
                    raise
                refusal = error
        else:
            raise refusal
        _Watched.phase = "compare"
        for index, (found, output) in enumerate(zip(results, model.graph.output, strict=True)):
            if (data / f"output_{index}.pb").exists():
                compare(output.name, found, _value(data / f"output_{index}.pb", output), errors.get(output.name, {}))
        _Watched.phase = "prepare"
    return remark


def _bound(model: onnx.ModelProto, feeds: Mapping[str, object], kept: str) -> onnx.ModelProto:
    """Returns the model with its inputs but one, or all, as constants."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in onnx_backend._inputs(model):
        if value.name != kept and isinstance(feeds[value.name], np.ndarray):
            result.graph.initializer.append(onnx.numpy_helper.from_array(feeds[value.name], value.name))
    return result


def refused(folder: Path, rep: type[onnx_backend.MegccRep]) -> None:
    """Passes where a model that ONNX Runtime refuses is refused, when it is compiled or when it runs."""
    try:
        check(folder, rep)
    except InternalError:
        raise
    except (MegccError, onnx_backend.UnsupportedModel):
        return
    except AssertionError:
        pass
    raise onnx_backend.UnsupportedModel("is taken, although ONNX Runtime refuses it")


def _value(path: Path, value: onnx.ValueInfoProto):
    """Returns the value of an input or output; None where the test has none."""
    if not path.exists():
        return None
    content, which = path.read_bytes(), value.type
    if which.HasField("optional_type"):
        which = which.optional_type.elem_type
    if which.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    array = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))
    return array.astype(object) if array.dtype.kind in "OUS" else array


def compare(name: str, found, wanted, rule: Mapping[str, object]) -> None:
    """Compares an output as ONNX Runtime's tests do.

    Args:
        found, wanted: an array, a list of arrays, or None for an optional without a value.
        rule: `absolute_error` and `relative_error`, or None for those of the type, and `sort_output`.
    """
    if isinstance(wanted, list) or wanted is None or found is None:
        assert (found is None) == (wanted is None), f"{name}: one of the two has no value"
        if wanted is not None:
            assert len(found) == len(wanted), f"{name}: {len(found)} tensors, not {len(wanted)}"
            for index, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
                compare(f"{name}.{index}", ours, theirs, rule)
        return
    assert found.shape == wanted.shape, f"{name}: shape {list(found.shape)}, not {list(wanted.shape)}"
    if wanted.dtype == object:
        found, wanted = ([string if isinstance(string, bytes) else str(string).encode() for string in array.ravel()]
                         for array in (found, wanted))
        if rule.get("sort_output"):
            found, wanted = sorted(found), sorted(wanted)
        assert found == wanted, f"{name}: {found[:4]}, not {wanted[:4]}"
        return
    assert found.dtype == wanted.dtype, f"{name}: {found.dtype}, not {wanted.dtype}"
    absolute, relative = TOLERANCES.get(wanted.dtype.name, (0.0, 0.0))
    if wanted.dtype.name in TOLERANCES:
        absolute = absolute if rule.get("absolute_error") is None else rule["absolute_error"]
        relative = relative if rule.get("relative_error") is None else rule["relative_error"]
    elif wanted.dtype == np.int8 and (rule.get("absolute_error") or 0) >= 1:
        absolute = rule["absolute_error"]
    found, wanted = (array.astype(np.int64 if array.dtype.kind == "b" else np.float64)
                     if array.dtype.itemsize < 8 or array.dtype.kind == "f" else array for array in (found, wanted))
    if rule.get("sort_output"):
        found, wanted = np.sort(found, axis=None), np.sort(wanted, axis=None)
    if absolute == relative == 0:
        equal = (found == wanted) | ((found != found) & (wanted != wanted))
    else:
        equal = np.isclose(found, wanted, atol=absolute, rtol=relative, equal_nan=True)
    if not equal.all():
        at = np.argmax(~equal.ravel())
        raise AssertionError(f"{name}: {np.count_nonzero(~equal)} of {equal.size} differ, element {at} is "
                             f"{found.ravel()[at]:.9g}, not {wanted.ravel()[at]:.9g}")


def page(results: list[Result], how: str, source: str) -> str:
    taken = [result for result in results if result.test.kind != "negative"]
    passed = sum(result.verdict == "passed" for result in taken)
    bound = sum(result.reason == BOUND for result in taken)
    lines = ["# ONNX Runtime's operator tests", "",
             f"Written by `scripts/onnxruntime_tests.py` {source}: ONNX Runtime's own tests of operators as models "
             f"with data, each output within the error that its test allows. {how} Refused means that the "
             "compiler does not support the test. Decided means that the test differs from the operator's definition. "
             "A model that ONNX Runtime refuses passes if the compiler refuses it too.", "",
             f"**{passed:,} of {len(taken):,} pass** ({passed / max(len(taken), 1):.1%}), {bound:,} of them with all "
             "operands except one, or all, as constants, because the compiler needs one of them as a constant.", "",
             *table(results, {kind: title for kind, title in KINDS.items()
                              if any(result.test.kind == kind for result in results)}, VERDICTS),
             "", "## Tests that do not pass", "", *failures(taken, VERDICTS)]
    return "\n".join(lines) + "\n"


def _decided(result: Result) -> Result:
    """Returns a wrong result as `decided` where the test is one of `DECIDED`."""
    sentence = next((sentence for name, sentence in DECIDED.items() if re.search(name, result.test.name)), "")
    return result._replace(verdict="decided", reason=sentence) if sentence and result.verdict == "wrong" else result


def _source(root: Path, commit: str | None) -> str:
    """Says which collection it was."""
    if commit is None:
        call = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
        commit = f"the collection's commit {call.stdout.strip()[:12]}" if call.returncode == 0 else "a collection"
    return f"from {commit}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.environ.get(VARIABLE), help=f"default: {VARIABLE}")
    parser.add_argument("--match", default="", help="tests whose name this regular expression is found in")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="every Nth test only")
    parser.add_argument("--numpy", action="store_true", help="run imported and rewritten models by numpy, uncompiled")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="a line for each test instead of the page")
    parser.add_argument("--source", help="what the page calls the collection, instead of its commit")
    args = parser.parse_args()
    if not args.folder:
        print(f"skipped: no collection; name its folder, or set {VARIABLE}", file=sys.stderr)
        return 0
    try:
        wanted = [case for case in cases(Path(args.folder)) if re.search(args.match, case.test.name)][::args.each]
    except MissingData as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    if not args.numpy:
        onnx_backend._runtime_objects(onnx_backend.find_compiler(onnx_backend.native()), onnx_backend.native())
    rep = NumpyRep if args.numpy else onnx_backend.MegccRep
    calls: list[Callable[[], str | None]] = [
        partial(refused if case.test.kind == "negative" else check, case.folder, rep) for case in wanted]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = [_decided(result) for result in pool.map(run, [case.test for case in wanted], calls)]
    if args.list:
        sys.stdout.writelines(f"{result.verdict:8} {result.test.name:60} {result.reason[:300]}\n" for result in results)
    else:
        how = ("Each is imported, rewritten by the passes and run by numpy." if args.numpy else
               "Each is compiled to C for this CPU, built and run.")
        if args.each > 1:
            how = f"Every {args.each}th is taken. {how}"
        sys.stdout.write(page(results, how, _source(Path(args.folder), args.source)))
    return 1 if any(result.verdict in ("wrong", "failed") for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
