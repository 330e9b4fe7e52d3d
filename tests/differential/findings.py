# SPDX-License-Identifier: Apache-2.0
"""The process that makes a failing case small and writes it; `__main__` starts it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from .cases import Case
from .families import FAMILIES
from .replay import result_of, smallest, text_of


def main() -> int:
    """0 where a file was written, 2 for a family whose cases are no single ONNX model, or a case that is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--operator", default="")
    parser.add_argument("--target", default="")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    family = FAMILIES[args.family]
    case = family.draw(args.seed, args.number, args.operator)
    if not isinstance(case, Case):
        return 2
    with np.errstate(all="ignore"):
        args.output.write_text(text_of(args.family, case, args.target), "utf-8")  # if the next ends the process
        case = smallest(family, case, args.target)
        result = result_of(family, case, args.target)
    args.output.write_text(text_of(args.family, case, args.target, result.reason), "utf-8")
    operands = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in case.feeds.items())
    nodes = " ".join(node.op_type for node in case.model.graph.node)
    print(f"{result.outcome} {nodes} {operands}: {result.reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
