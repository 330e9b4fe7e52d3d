#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the runtime: damaged containers that are opened and run, calls in any order, and programs on any data; see
fuzz/README.md.

    python -m fuzz.run                         guided by coverage, a minute, from the kept corpus
    python -m fuzz.run --runs 10000000         as many inputs, shared by the subjects
    python -m fuzz.run --blind [FOLDER...]     changed at random: generated folders, or containers made by hand
    python -m fuzz.run --only calls INPUT...   these inputs again

The exit code is 1 if an input ended the process; its bytes are then in the file that is named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from fuzz import fields  # noqa: E402

HERE = ROOT / "fuzz"
CORPUS = HERE / "corpus"
SANITIZE = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
#: Coverage of compared values does not help a mutator that knows records, and takes half of the time.
GUIDED = ("-fsanitize=fuzzer-no-link", "-fno-sanitize-coverage=trace-cmp")
#: Compilers that have libFuzzer, if their runtime library is installed.
CLANGS = ("clang", "clang-19", "clang-18", "clang-16", "clang-14")
#: A small quarantine and short stacks of allocations, which make twice as many runs a second.
OPTIONS = {"ASAN_OPTIONS": "quarantine_size_mb=4:malloc_context_size=3:detect_leaks=0:allocator_may_return_null=1",
           "UBSAN_OPTIONS": "print_stacktrace=1"}
LONGEST = 24 * 8
"""Bytes of the longest input: MAX_RECORDS of fuzz/records.h."""


@dataclass(frozen=True)
class Subject:
    """A target and what it is about. runtime: folder of the runtime; sources: kernels; defines: for the target; flags:
    for the CPU that all of it is for."""

    name: str
    target: str
    runtime: Path
    sources: tuple[Path, ...]
    include: Path
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def about_container(path: Path, module: str, runtime: Path, sources: Sequence[Path], folder: Path) -> Subject:
    """One container, to be damaged; `folder` receives the table of its fields."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{path.stem}.fields"
    table.write_bytes(fields.table(path.read_bytes()))
    return Subject(path.stem, "container.c", runtime, tuple(sources), path.parent,
                   (f"-DMODULE={module}", f'-DCONTAINER="{path}"', f'-DFIELDS="{table}"'))


def hand_made(folder: Path) -> list[Subject]:
    """The containers of the runtime's tests, written to `folder`."""
    from tests.compiled.runtime.runtime_models import MODELS, MODULES
    from tvm_megcc.codegen import container
    runtime = ROOT / "c_runtime"
    subjects = []
    for name, model in MODELS.items():
        path = folder / f"{name}.megcc"
        path.write_bytes(container.write(model()))
        subjects.append(about_container(path, MODULES[name], runtime, (runtime / "tests" / "kernels.c",), folder))
    return subjects


def sources_of(folder: Path) -> list[Path]:
    """The C files of a generated folder, without the runtime's."""
    return [path for pattern in ("*.c", "kernels/*.c") for path in sorted(folder.glob(pattern))
            if path.name != "main.c"]


def generated(folder: Path, aside: Path) -> list[Subject]:
    """The containers of a generated folder; what is made for them is written to `aside`."""
    containers = sorted(folder.glob("*.megcc"))
    if not containers:
        raise SystemExit(f"{folder} has no .megcc file; compile it without --embed")
    return [about_container(path, f"{path.stem}_module", folder / "runtime", sources_of(folder), aside)
            for path in containers]


def about_program(folder: Path, aside: Path, flags: Sequence[str] = ()) -> Subject:
    """The C of a folder of `megcc program compile`, to be run on any data; `aside` receives the table of its ports."""
    from tvm_megcc.codegen.manifest import read_manifest
    from tvm_megcc.tools.program.steps import ValueType

    facts = read_manifest(folder)["program"]
    name = facts["name"]
    lines = [f'#include "{folder / name}.c"', f"typedef {name}_program program_type;",
             "typedef struct port { const char *name; uint32_t dtype; size_t bytes; } port;"]
    lines += [f"#define {function}_program {name}_{function}" for function in ("open", "reset")]
    lines += [f"#define {size}_BYTES {name.upper()}_{size}_BYTES" for size in ("BLOCK", "MEMORY")]
    for direction in ("inputs", "outputs"):
        rows = [f'{{ "{port["name"]}", MEGCC_{port["dtype"].upper()}, '
                f'{ValueType(port["dtype"], tuple(port["shape"])).bytes} }}' for port in facts[direction]]
        lines.append(f"static const port {direction}[] = {{ {', '.join(rows)} }};")
    data = [f"data[{at}]" for at in range(len(facts["inputs"]) + len(facts["outputs"]))]
    lines += ["static int32_t run_program(program_type *of, void *const *data, megcc_error *error)", "{",
              f"    return {name}_run(of, {', '.join(data)}, error);", "}", ""]
    aside.mkdir(parents=True, exist_ok=True)
    path = aside / f"{name}_ports.h"
    path.write_text("\n".join(lines))
    return Subject(name, "programs.c", folder / "runtime",
                   tuple(source for source in sources_of(folder) if source.name != f"{name}.c"), folder,
                   (f'-DPROGRAM="{path}"', f'-DCONTAINER="{folder / name}.megcc"'), tuple(flags))


def programs(folder: Path, names: Sequence[str] = ()) -> list[Subject]:
    """The programs of several networks, or those of these names."""
    from fuzz.programs import PROGRAMS
    from tvm_megcc.target import TARGETS, native

    subjects = []
    for name, make in PROGRAMS.items():
        if name == "tokens" and find_spec("tokenizers") is None:
            print("tokens: not without the package tokenizers", file=sys.stderr)
        elif not names or name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
            # Image functions have much code for vectors, which portable C leaves out.
            target = native() if name == "pictures" else TARGETS["c"]
            subjects.append(about_program(make(folder / name).compile(folder / name / "compiled", target.name),
                                          folder / name, target.cflags))
    return subjects


def kept(folder: Path, names: Sequence[str] = ()) -> list[Subject]:
    """The subjects of the kept corpus, or those of these names: three containers, calls on all models, and programs."""
    from fuzz.models import CONTAINERS, OPERATORS
    from tvm_megcc.codegen import bundle

    subjects: list[Subject] = []
    for name, model in CONTAINERS.items():
        if not names or name in names:
            subjects += generated(bundle.write([model.compile(name)], folder / name, force=True), folder)
    if not names or "calls" in names:
        models = CONTAINERS | OPERATORS
        every = bundle.write([model.compile(name) for name, model in models.items()], folder / "calls", force=True)
        (folder / "subjects.h").write_text(
            "".join(f'SUBJECT({name}_module, "{every / name}.megcc")\n' for name in models))
        subjects.append(Subject("calls", "calls.c", every / "runtime", tuple(sources_of(every)), every,
                                (f'-DSUBJECTS="{folder / "subjects.h"}"',)))
    return subjects + programs(folder, names)


# --- building ----------------------------------------------------------------------------------------------------

def guided_compiler() -> str | None:
    """A clang with libFuzzer, or None."""
    with tempfile.TemporaryDirectory() as aside:
        for cc in filter(shutil.which, CLANGS):
            program = b"#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *d, size_t n) { return n && !d; }"
            command = [cc, *SANITIZE, "-fsanitize=fuzzer", "-x", "c", "-", "-o", f"{aside}/program"]
            if subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0:
                return cc
    return None


def build(subject: Subject, output: Path, cc: str, guided: bool = False) -> Path:
    """The program for one subject, in `output`. guided: with libFuzzer, for what is fuzzed."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    ours = [HERE / name for name in (subject.target, "guard.c", "records.c", *(() if guided else ("standalone.c",)))]
    include = [f"-I{path}" for path in (subject.runtime / "include", subject.runtime / "src", subject.include, HERE)]
    command = [cc, "-std=gnu99", "-g", "-O1", "-ffp-contract=off", "-fno-omit-frame-pointer", *SANITIZE, *subject.flags,
               *include]

    def compile_one(source: Path) -> Path:
        more = subject.defines if source.parent == HERE else GUIDED if guided else ()
        made = output / f"{source.stem}.o"
        subprocess.run([*command, *more, "-c", str(source), "-o", str(made)], check=True, cwd=output)
        return made

    sources = [*sorted((subject.runtime / "src").glob("*.c")), *subject.sources, *ours]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(compile_one, sources))
    link = [*SANITIZE, *(("-fsanitize=fuzzer",) if guided else ()), "-lm", "-pthread"]
    subprocess.run([cc, *map(str, objects), *link, "-o", str(output / "driver")], check=True)
    return output / "driver"


# --- inputs ------------------------------------------------------------------------------------------------------

def unpacked(path: Path) -> Iterator[bytes]:
    """The inputs of a file of the corpus: for each its length as 32 bits, and its bytes."""
    data, at = path.read_bytes() if path.exists() else b"", 0
    while at < len(data):
        length, = struct.unpack_from("<I", data, at)
        yield data[at + 4:at + 4 + length]
        at += 4 + length


def pack(inputs: Sequence[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack("<I", len(data)) + data for data in sorted(set(inputs))))


def run(command: Sequence[str | Path], subject: Subject, folder: Path) -> bool:
    """Runs a program; prints its last line, or all of what it said if it failed."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace",
                            check=False, cwd=folder, env={**os.environ, **OPTIONS})
    last = result.stdout.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    print(f"{subject.name}: {last[0]}", flush=True)
    if result.returncode != 0:
        print(result.stderr[-20000:], file=sys.stderr)
    return result.returncode == 0


def blind(subject: Subject, count: int, seed: int, cc: str, folder: Path) -> bool:
    """The kept corpus, and `count` inputs that are made at random. Returns whether all were survived."""
    output = folder / f"{subject.name}_blind"
    driver = build(subject, output, cc)
    inputs = [CORPUS / f"{subject.name}.bin"] if (CORPUS / f"{subject.name}.bin").exists() else []
    fine = run([driver, *inputs], subject, output) and run([driver, "--blind", str(count), str(seed)], subject, output)
    if not fine and (output / "crash-input").exists():
        print(f"{subject.name}: the input is {output / 'crash-input'}", file=sys.stderr)
    return fine


def guided(subject: Subject, limits: Sequence[str], cc: str, folder: Path, keep: bool = False) -> bool:
    """libFuzzer from the kept corpus, until `limits`. Returns whether all inputs were survived."""
    output = folder / f"{subject.name}_guided"
    driver = build(subject, output, cc, guided=True)
    corpus = folder / f"{subject.name}_corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(unpacked(CORPUS / f"{subject.name}.bin")):
        (corpus / f"kept{number:05}").write_bytes(data)
    log = output / "log.txt"
    command = [driver, f"-max_len={LONGEST}", "-len_control=0", "-entropic=0", "-timeout=60", "-rss_limit_mb=2048",
               "-print_final_stats=1", f"-artifact_prefix={output}/", *limits, corpus]
    with log.open("w") as stream:
        result = subprocess.run([str(part) for part in command], stdout=stream, stderr=stream, check=False, cwd=output,
                                env={**os.environ, **OPTIONS})
    text = log.read_text(errors="replace")
    facts = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)", text)
    runs = re.search(r"number_of_executed_units: (\d+)", text)
    speed = re.search(r"average_exec_per_sec:\s+(\d+)", text)
    print(f"{subject.name}: {runs[1] if runs else '?'} inputs, {speed[1] if speed else '?'} a second, "
          f"{facts[-1][1] if facts else '?'} edges; {log}", flush=True)
    if result.returncode != 0:
        print(re.sub(r"(?m)^#\d+\t.*\n", "", text)[-20000:], file=sys.stderr)
        return False
    if keep:
        small = folder / f"{subject.name}_small"
        shutil.rmtree(small, ignore_errors=True)
        small.mkdir()
        subprocess.run([driver, "-merge=1", small, corpus], check=True, cwd=output, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, env={**os.environ, **OPTIONS})
        pack([path.read_bytes() for path in small.iterdir()], CORPUS / f"{subject.name}.bin")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="with --blind generated folders; else inputs to run again")
    parser.add_argument("--only", help="names of subjects, separated by commas")
    parser.add_argument("--runs", type=int, help="inputs in all; default: as many as --seconds allow")
    parser.add_argument("--seconds", type=int, default=60, help="for all subjects together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="minimise what was found into the kept corpus")
    parser.add_argument("--blind", action="store_true", help="without guidance: any compiler will do")
    parser.add_argument("--cc", help="default: gcc with --blind, else a clang that has libFuzzer")
    options = parser.parse_args(arguments)
    if options.blind:
        return blind_main(options)
    cc = options.cc or guided_compiler()
    if cc is None:
        print("fuzz: no clang here has libFuzzer (Debian: libclang-rt-14-dev); --blind does without", file=sys.stderr)
        return 1
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    subjects = kept(folder, options.only.split(",") if options.only else ())
    if options.paths:
        return replay(subjects, options.paths, cc, folder)
    share = f"-runs={options.runs // len(subjects)}" if options.runs else \
        f"-max_total_time={max(1, options.seconds // len(subjects))}"
    return 0 if all([guided(subject, [share, f"-seed={options.seed}"], cc, folder, options.keep)
                     for subject in subjects]) else 1


def replay(subjects: Sequence[Subject], paths: Sequence[Path], cc: str, folder: Path) -> int:
    """Runs inputs again, one by one."""
    fine = True
    for subject in subjects:
        pack([path.read_bytes() for path in paths], folder / "again")
        driver = build(subject, folder / f"{subject.name}_again", cc)
        fine &= run([driver, folder / "again"], subject, driver.parent)
    return 0 if fine else 1


def blind_main(options: argparse.Namespace) -> int:
    cc = options.cc or "gcc"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subjects = [s for f in options.paths for s in generated(f.resolve(), folder)] or hand_made(folder)
        passed = [blind(s, options.runs or 10000, options.seed, cc, folder) for s in subjects]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
