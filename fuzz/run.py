#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the verifier: mutants of containers are opened, and run if they open, under sanitizers.

    fuzz/run.py                                the hand-made containers of the runtime's tests
    fuzz/run.py FOLDER... --count 10000        generated folders
    fuzz/run.py --coverage                     how much of the verifier they reach

The exit code is 1 if a mutant crashed; it is then saved as crash.megcc.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from fuzz.fields import Mutant, mutants  # noqa: E402

SANITIZE = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
#: Files whose coverage is reported.
VERIFIER = ("verify.c", "signature.c", "fb.h")


@dataclass(frozen=True)
class Subject:
    """A container and the C code that goes with it."""

    name: str
    module: str
    container: Path
    runtime: Path
    sources: tuple[Path, ...]


def hand_made(folder: Path) -> list[Subject]:
    """The containers of the runtime's tests, written to `folder`."""
    from tests.cc.runtime_models import MODELS
    from tvm_megcc.codegen import container
    runtime = ROOT / "c_runtime"
    subjects = []
    for name, model in MODELS.items():
        path = folder / f"{name}.megcc"
        path.write_bytes(container.write(model()))
        module = "static_module" if name == "static" else "dynamic_module"
        subjects.append(Subject(name, module, path, runtime, (runtime / "tests" / "kernels.c",)))
    return subjects


def generated(folder: Path) -> list[Subject]:
    """The containers of a generated folder."""
    sources = tuple(path for pattern in ("*.c", "kernels/*.c") for path in sorted(folder.glob(pattern))
                    if path.name != "main.c")
    containers = sorted(folder.glob("*.megcc"))
    if not containers:
        raise SystemExit(f"{folder} has no .megcc file; compile it without --embed")
    return [Subject(path.stem, f"{path.stem}_module", path, folder / "runtime", sources) for path in containers]


def build(subject: Subject, output: Path, cc: str, flags: Sequence[str]) -> Path:
    """The driver for one container; `output` also receives what gcov needs."""
    output.mkdir()
    sources = [*sorted((subject.runtime / "src").glob("*.c")), *subject.sources, ROOT / "fuzz" / "driver.c"]
    include = [f"-I{subject.runtime / 'include'}", f"-I{subject.runtime / 'src'}", f"-I{subject.container.parent}"]
    command = [cc, "-std=gnu99", "-g", "-O1", "-ffp-contract=off", *flags, *include,
               f"-DMEGCC_MODULE={subject.module}", *map(str, sources), "-o", str(output / "driver"), "-lm", "-pthread"]
    subprocess.run(command, check=True, cwd=output)
    return output / "driver"


def packed(listing: Sequence[Mutant]) -> bytes:
    """Mutants as driver.c reads them."""
    parts = [struct.pack("<I", len(listing))]
    for size, changes in listing:
        parts.append(struct.pack("<II", size, len(changes)))
        for at, new in changes:
            parts += [struct.pack("<II", at, len(new)), new]
    return b"".join(parts)


def apply(data: bytes, mutant: Mutant) -> bytes:
    changed = bytearray(data)
    for at, new in mutant[1]:
        changed[at:at + len(new)] = new
    return bytes(changed[:mutant[0]])


def fuzz(subject: Subject, count: int, seed: int, cc: str, folder: Path,
         flags: Sequence[str] = SANITIZE) -> bool:
    """Returns whether all mutants were survived."""
    driver = build(subject, folder / subject.name, cc, flags)
    data = subject.container.read_bytes()
    listing = list(mutants(data, count, seed))
    (folder / "mutants").write_bytes(packed(listing))
    result = subprocess.run([driver, subject.container, folder / "mutants"], capture_output=True, text=True,
                            check=False, cwd=folder / subject.name)
    print(f"{subject.name}: {result.stdout.strip() or f'exit code {result.returncode}'}")
    if result.returncode == 0:
        return True
    print(result.stderr, file=sys.stderr)
    number = re.search(r"^mutant (\d+)$", result.stderr, re.MULTILINE)
    if number:
        mutant = listing[int(number[1])]
        Path("crash.megcc").write_bytes(apply(data, mutant))
        print(f"{subject.name}: mutant {number[1]} is saved as crash.megcc: {mutant}", file=sys.stderr)
    return False


def coverage(folder: Path, gcov: str) -> dict[str, tuple[int, int, list[int]]]:
    """File of the verifier -> branches taken, branches, lines with branches that were not; over all drivers."""
    taken: dict[tuple[str, int, int], int] = {}
    for notes in sorted(folder.glob("*/*.gcno")):
        if notes.stem.split("-")[-1] not in ("verify", "signature"):
            continue
        subprocess.run([gcov, "-b", "-j", "-t", notes.name], cwd=notes.parent, check=True, stdout=(
            notes.parent / "report").open("wb"), stderr=subprocess.DEVNULL)
        raw = (notes.parent / "report").read_bytes()
        report = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        for file in report["files"]:
            name = Path(file["file"]).name
            for line in file["lines"] if name in VERIFIER else ():
                for index, branch in enumerate(line["branches"]):
                    key = (name, line["line_number"], index)
                    taken[key] = taken.get(key, 0) + branch["count"]
    result = {}
    for name in VERIFIER:
        branches = {key: hits for key, hits in taken.items() if key[0] == name}
        missed = sorted({key[1] for key, hits in branches.items() if not hits})
        result[name] = (sum(hits > 0 for hits in branches.values()), len(branches), missed)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="generated folders; default: hand-made containers")
    parser.add_argument("--count", type=int, default=10000, help="mutants of each container")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--coverage", action="store_true", help="measure branches with gcov instead of sanitizing")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subjects = [s for f in options.folders for s in generated(f.resolve())] or hand_made(folder)
        flags = ("--coverage", "-O0") if options.coverage else SANITIZE
        passed = [fuzz(s, options.count, options.seed, options.cc, folder, flags) for s in subjects]
        if options.coverage:
            for file, (hit, total, missed) in coverage(folder, options.cc.replace("gcc", "gcov")).items():
                share = 100 * hit / total if total else 0
                print(f"{file}: {hit} of {total} branches, {share:.1f} %; some were not taken in lines {missed}")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
