#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the C of the runtime and of four networks against MISRA C:2012, and writes the compliance page.

    python scripts/misra.py           check; the exit status is 1 where a mandatory or required finding is unexplained
    python scripts/misra.py --write   and write docs/misra.md

The findings are those of cppcheck's MISRA addon (Debian's package cppcheck; the texts of the rules are not needed).
scripts/misra.ini explains deviations, in a section for each. The networks are keyword spotting and anomaly detection of
$MEGCC_MODELS, a LeNet-5 and a GRU with random weights, for the targets c and cortex-m33. Without $MEGCC_MODELS the
first two are left out, and the page is not written.
"""

from __future__ import annotations

import argparse
import configparser
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvm_megcc

ROOT = Path(__file__).resolve().parent.parent
TABLE, PAGE, WORK = ROOT / "scripts" / "misra.ini", ROOT / "docs" / "misra.md", ROOT / "build" / "misra"

#: Categories of MISRA C:2012 with its amendments; all other rules are required.
MANDATORY = frozenset("9.1 12.5 13.6 17.3 17.4 17.6 19.1 21.13 21.17 21.18 21.19 21.20 22.2 22.4 22.5 22.6".split())
ADVISORY = frozenset("""2.3 2.4 2.5 2.6 2.7 4.2 5.9 8.7 8.9 8.11 8.13 10.5 11.4 11.5 12.1 12.3 12.4 13.3 13.4 15.1 15.4
                        15.5 17.5 17.8 18.4 18.5 19.2 20.1 20.5 20.10 21.12""".split())

_COMMON = ("-D__GNUC__=12", "-D__STDC_VERSION__=199901L", "-D__BYTE_ORDER__=1234", "-D__ORDER_LITTLE_ENDIAN__=1234")
#: The macros of the targets' compilers that the code reads. One configuration each: code under other conditions is for
#: other machines.
CONFIGURATIONS = {
    "c": ("--platform=unix64", *_COMMON, "-D__x86_64__=1", "-D__linux__=1", "-DUINT32_MAX=4294967295U",
          "-DSIZE_MAX=18446744073709551615UL"),
    "cortex-m33": ("--platform=unix32", *_COMMON, "-D__arm__=1", "-D__ARM_ARCH=8", "-D__ARM_ARCH_8M_MAIN__=1",
                   "-D__ARM_ARCH_PROFILE=77", "-D__ARM_FEATURE_DSP=1", "-D__ARM_FEATURE_SIMD32=1",
                   "-D__ARM_FEATURE_SAT=1", "-D__ARM_FEATURE_CLZ=1", "-DUINT32_MAX=4294967295UL",
                   "-DSIZE_MAX=4294967295U"),
}


@dataclass(frozen=True, order=True)
class Finding:
    """A place that a rule objects to. `file` is relative to c_runtime or to the generated folder."""

    rule: str
    file: str
    line: int
    column: int
    text: str

    @property
    def category(self) -> str:
        return "mandatory" if self.rule in MANDATORY else "advisory" if self.rule in ADVISORY else "required"


@dataclass
class Deviation:
    """A section of the table: findings of some rules in files, on lines that match, and why they stay."""

    name: str
    rules: frozenset[str]
    kind: str
    files: tuple[str, ...]
    line: re.Pattern
    reason: str
    count: int = 0

    def explains(self, finding: Finding) -> bool:
        return (finding.rule in self.rules and any(fnmatch.fnmatch(finding.file, name) for name in self.files)
                and self.line.search(finding.text) is not None)


def deviations() -> list[Deviation]:
    """Returns the rows of the table.

    Raises:
        KeyError: if a section lacks its reason or files.
        ValueError: if a section has an unknown kind.
    """
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(TABLE.read_text())
    rows = []
    for name in parser.sections():
        kind = parser[name].get("kind", "deviation")
        if kind not in ("deviation", "mistaken"):
            raise ValueError(f"{TABLE.name}: [{name}] is of kind {kind!r}")
        row = parser[name]
        rows.append(Deviation(name, frozenset(row["rules"].split()), kind, tuple(row["files"].split()),
                              re.compile(row.get("line", "")), " ".join(row["reason"].split())))
    return rows


def check(base: Path, sources: list[Path], includes: list[Path], target: str) -> set[Finding]:
    """Returns cppcheck's findings in sources and in the headers that they include.

    base: the folder that paths of findings are relative to; those of the runtime's headers are relative to c_runtime.
    """
    def one(source: Path) -> str:
        command = ["cppcheck", "-q", "--addon=misra", "--enable=style", "--std=c99", "--suppress=missingIncludeSystem",
                   "--template={id}|{file}|{line}|{column}", *CONFIGURATIONS[target],
                   *(f"-I{folder}" for folder in includes), str(source)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"misra: {' '.join(command)}\n{result.stdout}{result.stderr}")
        return result.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(one, sources))
    found, texts = set(), {}
    for report in reports:
        for row in report.splitlines():
            name, file, line, column = row.rsplit("|", 3) if row.count("|") >= 3 else ("", "", "0", "0")
            if not name.startswith("misra-c2012-"):
                continue
            path = Path(file).resolve()
            if path not in texts:
                texts[path] = path.read_text().split("\n")
            place = path.relative_to(base) if path.is_relative_to(base) else path.relative_to(ROOT / "c_runtime")
            found.add(Finding(name.removeprefix("misra-c2012-"), place.as_posix(), int(line), int(column),
                              texts[path][int(line) - 1].strip()))
    return found


def _weights(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(1).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(np.float32), name)


def _save(path: Path, nodes: list, x: list[int], y: list[int], constants: list) -> Path:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, path.stem, [info("x", onnx.TensorProto.FLOAT, x)],
                              [info("y", onnx.TensorProto.FLOAT, y)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def lenet5(path: Path) -> Path:
    """LeNet-5 (LeCun et al. 1998) with random weights: x float32[1,1,28,28], y float32[1,10]."""
    node, nodes, value = helper.make_node, [], "x"
    constants = []
    for index, (channels, depth, pad) in enumerate(((6, 1, 2), (16, 6, 0))):
        constants += [_weights(f"k{index}", channels, depth, 5, 5), _weights(f"b{index}", channels)]
        nodes += [node("Conv", [value, f"k{index}", f"b{index}"], [f"c{index}"], pads=[pad] * 4),
                  node("Tanh", [f"c{index}"], [f"t{index}"]),
                  node("AveragePool", [f"t{index}"], [f"p{index}"], kernel_shape=[2, 2], strides=[2, 2])]
        value = f"p{index}"
    nodes.append(node("Flatten", [value], ["f"]))
    value = "f"
    for index, (rows, columns) in enumerate(((120, 400), (84, 120), (10, 84))):
        constants += [_weights(f"w{index}", rows, columns), _weights(f"d{index}", rows)]
        nodes += [node("Gemm", [value, f"w{index}", f"d{index}"], [f"g{index}"], transB=1),
                  node("Tanh" if index < 2 else "Softmax", [f"g{index}"], [f"h{index}" if index < 2 else "y"])]
        value = f"h{index}"
    return _save(path, nodes, [1, 1, 28, 28], [1, 10], constants)


def gru(path: Path) -> Path:
    """A GRU of 32 cells over 16 steps, and a classifier, with random weights: x float32[16,1,20], y float32[1,6]."""
    nodes = [helper.make_node("GRU", ["x", "w", "r", "b"], ["", "h"], hidden_size=32, linear_before_reset=1),
             helper.make_node("Squeeze", ["h", "axes"], ["s"]),
             helper.make_node("Gemm", ["s", "o", "d"], ["l"], transB=1), helper.make_node("Softmax", ["l"], ["y"])]
    constants = [_weights("w", 1, 96, 20), _weights("r", 1, 96, 32), _weights("b", 1, 192), _weights("o", 6, 32),
                 _weights("d", 6), numpy_helper.from_array(np.array([0]), "axes")]
    return _save(path, nodes, [16, 1, 20], [1, 6], constants)


def networks() -> dict[str, Path]:
    WORK.mkdir(parents=True, exist_ok=True)
    result = {"lenet5": lenet5(WORK / "lenet5.onnx"), "gru": gru(WORK / "gru.onnx")}
    models = os.environ.get("MEGCC_MODELS", "")
    for name, folder in (("kws", "kws_dscnn_int8"), ("ad", "ad_autoencoder_int8")):
        path = Path(models) / folder / "model.tflite"
        if models and path.exists():
            result[name] = path
    return result


def findings() -> dict[str, set[Finding]]:
    """Returns the findings by what was checked: the runtime, and each network for each target."""
    runtime = ROOT / "c_runtime"
    result = {"runtime": check(runtime, sorted((runtime / "src").glob("*.c")), [runtime / "include"], "c")}
    for name, model in networks().items():
        for target in CONFIGURATIONS:
            folder = WORK / f"{name}_{target}"
            shutil.rmtree(folder, ignore_errors=True)
            tvm_megcc.compile(model, target, name=name, profile="safety").save(folder)
            sources = [folder / "kernels.c", *sorted((folder / "kernels").glob("*.c"))]
            result[f"{name}, {target}"] = check(folder, sources, [runtime / "include", folder], target)
            print(f"misra: {name}, {target}: {len(result[f'{name}, {target}'])}", file=sys.stderr, flush=True)
    return result


def _number(rule: str) -> tuple[int, ...]:
    return tuple(map(int, rule.split(".")))


def page(found: dict[str, set[Finding]], rows: list[Deviation], explained: Counter, open_: list[Finding]) -> str:
    """docs/misra.md."""
    everything = set().union(*found.values())
    total = Counter(finding.category for finding in everything)
    checked = "; ".join(f"{name} ({len(values)})" for name, values in found.items())
    lines = ["# MISRA C:2012", "", "<!-- written by scripts/misra.py --write -->", "",
             "`make misra` runs cppcheck with its MISRA addon over the runtime, and over the C generated for four "
             "networks with the [safety profile](safety.md) (`kws` and `ad`, keyword spotting and anomaly detection of "
             "MLPerf Tiny; a LeNet-5; a GRU) for the targets `c` and `cortex-m33`. It fails if a mandatory or required "
             "rule is broken and no row below explains it. `main.c`, an example, is not checked.", "",
             f"Findings when this page was written, with those of headers: {checked}. Below, a finding in a header "
             "that several files include counts once.", "",
             "| category | findings | explained by a row below | open |", "|---|--:|--:|--:|"]
    for category in ("mandatory", "required"):
        lines.append(f"| {category} | {total[category]} | {explained[category]} | "
                     f"{sum(finding.category == category for finding in open_)} |")
    lines.append(f"| advisory | {total['advisory']} | | |")
    for kind, title, text in (
            ("deviation", "Deviations", "Rules that the code breaks on purpose."),
            ("mistaken", "Where the tool is mistaken", "The code follows the rule, but cppcheck 2.10 reports it.")):
        lines += ["", f"## {title}", "", text, "", "| what | rules | where | findings | reason |",
                  "|---|---|---|--:|---|"]
        for row in rows:
            if row.kind == kind:
                files = ", ".join(f"`{name}`" for name in row.files)
                lines.append(f"| {row.name} | {', '.join(sorted(row.rules, key=_number))} | {files} | {row.count} | "
                             f"{row.reason} |")
    lines += ["", "## Advisory findings", "", "They are counted, not forbidden.", "", "| rule | findings |",
              "|---|--:|"]
    advisory = Counter(finding.rule for finding in everything if finding.category == "advisory")
    lines += [f"| {rule} | {advisory[rule]} |" for rule in sorted(advisory, key=_number)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write docs/misra.md")
    arguments = parser.parse_args()
    if not shutil.which("cppcheck"):
        sys.exit("misra: no cppcheck; 'apt-get install cppcheck'")
    found, rows = findings(), deviations()
    explained, open_ = Counter(), []
    for finding in sorted(set().union(*found.values())):
        row = next((row for row in rows if row.explains(finding)), None)
        if row is not None:
            row.count += 1
            explained[finding.category] += 1
        elif finding.category != "advisory":
            open_.append(finding)
    for finding in open_:
        print(f"{finding.file}:{finding.line}:{finding.column}: rule {finding.rule} ({finding.category}): "
              f"{finding.text}")
    complete = len(found) == 1 + 4 * len(CONFIGURATIONS)
    unused = [row for row in rows if not row.count] if complete else []
    for row in unused:
        print(f"{TABLE.name}: nothing is left of [{row.name}]")
    if arguments.write:
        if not complete:
            sys.exit("misra: the page needs the models of $MEGCC_MODELS")
        PAGE.write_text(page(found, rows, explained, open_))
    print(f"misra: {len(open_)} open, {sum(row.kind == 'deviation' for row in rows)} deviations")
    return 1 if open_ or unused else 0


if __name__ == "__main__":
    sys.exit(main())
