#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a network compiled for this machine and for arm64, both built, both run on a real input."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.errors import ToolError
from tvm_megcc.runtime.load import load
from tvm_megcc.tools import run
from tvm_megcc.tools.report import size

OUT = Path("demo_out")
TARGETS = ("native", "arm64")


def demo(name: str, model: Path, sample: Path) -> None:
    print(f"\n== {name}: megcc compile {model} --target {','.join(TARGETS)}")
    begin = time.perf_counter()
    artifact = tvm_megcc.compile(model, ",".join(TARGETS), name=name)
    folder = artifact.save(OUT / f"{name}_megcc", force=True)
    print(f"{folder}: {len(artifact.container):,} bytes of model, {len(artifact.sources)} C files, "
          f"compiled in {time.perf_counter() - begin:.1f} s")
    for program in artifact.manifest["programs"]:
        print(f"  {program['target']}: {program['instructions']} calls, arena {program['arena_bytes']:,} bytes, "
              f"lower bound {program['lower_bound']:,}")
    for target in TARGETS:
        run_on(folder, target, sample)
    print(f"  memory picture: {folder / 'memory.svg'}")


def run_on(folder: Path, target: str, sample: Path) -> None:
    """Builds and runs for one target; says what to install where that cannot be done."""
    print(f"\n-- megcc run {folder} --target {target} --inputs {sample}")
    try:
        session = load(folder, target)
    except ToolError as missing:
        print(f"  SKIPPED: {missing}")
        return
    report = run.run(session, str(sample), repeat=20)
    print(run.text(report), end="")
    with np.load(sample) as arrays:
        for name, value in session.run(run.read_npz(sample, [port.name for port in session.inputs])).items():
            expected = arrays[f"out:{name}"]
            difference = np.abs(value - expected).max() / np.abs(expected).max()
            print(f"  {name}: largest difference from the stored reference {difference:.1e} of the largest value")
    totals = size.size(folder, target)["parts"]
    print("  code built for size: " + ", ".join(f"{part} {sizes['text'] + sizes['rodata']:,} bytes"
                                                for part, sizes in totals.items()))


def main() -> int:
    digits = paths.examples()
    show_digit(digits / "digits.npz")
    demo("digits", digits / "digits.onnx", digits / "digits.npz")
    mobilenet = Path(os.environ.get("MEGCC_MODELS") or "nowhere") / "mobilenet_v1_025_224_f32"
    if mobilenet.is_dir():
        demo("mobilenet", mobilenet / "model.onnx", mobilenet / "reference.npz")
    return 0


def show_digit(sample: Path) -> None:
    with np.load(sample) as arrays:
        print(f"A handwritten {arrays['label']}, 8x8 pixels, which the network has not seen in training:")
        for row in arrays["in:image"][0, 0]:
            print("    " + "".join(2 * " .:-=+*#%@"[int(value * 9)] for value in row))


if __name__ == "__main__":
    sys.exit(main())
