#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints rows of docs/reproducible.md: the hash of the outputs of networks compiled with --reproducible, on every
target, with gcc and clang, on one thread and four.

    python scripts/same_bits.py [--all] [NETWORK …]         # from the checkout, with the models in $MEGCC_MODELS
    python scripts/same_bits.py --cost x86-64-v3 [NETWORK …]    # time with --reproducible over time without

Other CPUs than this machine's are emulated.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tvm_megcc
from scripts.models_page import arguments
from tests.models.networks import ALL_NETWORKS, Network
from tvm_megcc.errors import MissingTool, ToolError
from tvm_megcc.target import TARGETS
from tvm_megcc.tools import verify

#: Threads, compiler ("" for the usual one) and target. Eight are enough to see every level and compiler once.
EIGHT = ((1, "", "c"), (1, "", "x86-64-v3"), (1, "", "arm64"), (1, "", "armv7"), (1, "", "riscv64"),
         (1, "", "wasm32-simd128"), (4, "clang", "x86-64-v3"), (4, "clang", "x86-64-v4"))
FOURTEEN = (*EIGHT, (1, "", "x86-64"), (1, "", "x86-64-v4"), (1, "", "wasm32"), (4, "", "x86-64-v3"),
            (4, "", "x86-64-v4"), (4, "clang", "c"))
#: Networks of one step of a stream: output -> input.
STATES = {"dtln_stage1": {"tf_op_layer_stack_2": "input_3"}, "dtln_stage2": {"tf_op_layer_stack_5": "input_5"},
          "silero_vad_16k_static": {"stateN": "state"}}
#: Pairs of times, and seconds that one of them lasts at least.
PAIRS, LEAST = 25, 0.02


def hashes(network: Network, builds: tuple[tuple[int, str, str], ...]) -> Iterator[tuple[str, str]]:
    """Each build with its hash, or with why there is none."""
    with tempfile.TemporaryDirectory() as aside:
        for threads in sorted({threads for threads, *_ in builds}):
            rows = [(compiler, target) for count, compiler, target in builds if count == threads]
            targets = ",".join(dict.fromkeys(target for _, target in rows))
            folder = _compiled(network, targets, threads, True).save(Path(aside) / str(threads))
            for compiler, target in rows:
                named = f"{target} {compiler or 'as usual'} x{threads}"
                try:
                    report = verify.verify(folder, [TARGETS[target]], compiler or None)
                    yield named, report["targets"][0].get("sha256") or report["targets"][0]["missing"]
                except (MissingTool, ToolError) as missing:
                    yield named, f"no result: {str(missing).splitlines()[0]}"


def cost(network: Network, target: str) -> float:
    """Time with --reproducible over time without: the median of pairs, which are taken by turns."""
    with tempfile.TemporaryDirectory() as aside:
        calls = []
        for same in (False, True):
            session = tvm_megcc.load(_compiled(network, target, 1, same).save(Path(aside) / str(same)), target)
            calls.append(session.bind({port.name: verify.test_input(port, index, 0)
                                       for index, port in enumerate(session.inputs)}))
        often = max(1, math.ceil(LEAST / _seconds(calls[0], 3)))
        pairs = [[_seconds(call, often) for call in calls] for _ in range(PAIRS)]
        return statistics.median(same / free for free, same in pairs)


def _compiled(network: Network, targets: str, threads: int, reproducible: bool) -> tvm_megcc.Artifact:
    return tvm_megcc.compile(network.path, targets, name=network.name, threads=threads, reproducible=reproducible,
                             states=STATES.get(network.name, {}), **arguments(network))


def _seconds(call, often: int) -> float:
    """Returns the CPU time of this thread for one call, so that other programs on the machine do not count."""
    begin = time.thread_time()
    for _ in range(often):
        call()
    return (time.thread_time() - begin) / often


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[[], *ALL_NETWORKS], metavar="NETWORK")
    parser.add_argument("--all", action="store_true", help=f"{len(FOURTEEN)} builds rather than {len(EIGHT)}")
    parser.add_argument("--cost", metavar="TARGET", help="measure time instead")
    given = parser.parse_args()
    ratios = []
    for name in given.networks or ALL_NETWORKS:
        if given.cost:
            ratios.append(cost(ALL_NETWORKS[name], given.cost))
            print(f"| `{name}` | {ratios[-1]:.2f} |", flush=True)
            continue
        found = dict(hashes(ALL_NETWORKS[name], FOURTEEN if given.all else EIGHT))
        kinds = sorted(set(found.values()), key=list(found.values()).count, reverse=True)
        print(f"| `{name}` | `{kinds[0][:12]}` | {list(found.values()).count(kinds[0])} of {len(found)} |", flush=True)
        for build, value in found.items():
            if value != kinds[0]:
                print(f"{name}, {build}: {value}", file=sys.stderr, flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}")


if __name__ == "__main__":
    main()
