# SPDX-License-Identifier: Apache-2.0
"""`megcc demo`: the network that ships with the package, compiled to C, built and run on a handwritten digit."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import api, paths
from ..errors import MegccError, MissingTool
from ..runtime.build import build
from ..runtime.load import load
from ..runtime.toolchain import find_compiler, find_emulator, is_local
from ..target import parse_targets

#: The largest difference from the stored result, as a part of the largest magnitude: that of `megcc compare`.
TOLERANCE = 1e-4


def demo(target: str, output: str) -> dict[str, Any]:
    """Compiles the network of the digits for one target into a folder, builds it and runs it. Returns what came out.

    Raises:
        MegccError: without a C compiler or emulator for the target, before anything is written; for several targets.
    """
    targets = parse_targets(target)
    if len(targets) != 1:
        raise MegccError(f"the demo is for one target, not for {', '.join(each.name for each in targets)}")
    try:
        find_compiler(targets[0])
    except MissingTool:
        if not is_local(targets[0]):
            raise
        raise MegccError("the demo needs a C compiler: install zig with 'pip install ziglang', or one of the system, "
                         "such as gcc or clang") from None
    find_emulator(targets[0])
    model = paths.examples() / "digits.onnx"
    artifact = api.compile(model, targets)
    folder = artifact.save(output)
    built = build(folder, targets[0])
    session = load(folder, targets[0])
    with np.load(paths.examples() / "digits.npz") as sample:
        image, expected, label = sample["in:image"], sample["out:logits"], int(sample["label"])
    logits = np.asarray(session.run({"image": image})["logits"])
    (program,) = artifact.manifest["programs"]
    return {
        "model": str(model), "folder": str(folder), "target": str(targets[0]), "emulated": session.emulated,
        "compiler": str(built.compiler), "files": len(artifact.sources), "container_bytes": len(artifact.container),
        "calls": program["instructions"], "arena_bytes": program["arena_bytes"],
        "image": image[0, 0].tolist(), "label": label, "answer": int(logits.argmax()),
        "error": float(np.abs(logits - expected).max() / np.abs(expected).max()), "tolerance": TOLERANCE,
    }


def right(report: dict[str, Any]) -> bool:
    """Whether the network recognised the digit, with the numbers that are stored beside it."""
    return bool(report["answer"] == report["label"] and report["error"] <= report["tolerance"])


def text(report: dict[str, Any]) -> str:
    ran = "in an emulator" if report["emulated"] else "here"
    verdict = "the right answer" if report["answer"] == report["label"] else f"but it is a {report['label']}"
    return "\n".join([
        "A handwritten digit of 8x8 pixels, which the network has not seen in training:",
        *("    " + "".join(2 * " .:-=+*#%@"[int(value * 9)] for value in row) for row in report["image"]),
        f"compiled  {report['model']} for {report['target']}: {report['calls']} kernel calls, {report['files']} C "
        f"files, {report['container_bytes']:,} bytes of model, {report['arena_bytes']:,} bytes of memory",
        f"built     {report['folder']} with {report['compiler']}",
        f"ran       {ran}: a {report['answer']}, {verdict}; the largest difference from the stored "
        f"result is {report['error']:.1e} of the largest value",
        f"Next: read the C in {report['folder']}, and try 'megcc run YOUR_MODEL.onnx'.",
    ]) + "\n"
