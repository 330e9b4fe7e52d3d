# SPDX-License-Identifier: Apache-2.0
"""Mutants of GGUF files through the command: a folder and exit code 0, or a sentence and exit code 1."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.gguf.stories import STORIES, write_stories
from tvm_megcc.cli import main

#: For 10,000 mutants, which take an hour: MEGCC_GGUF_MUTANTS=10000.
COUNT = int(os.environ.get("MEGCC_GGUF_MUTANTS", "40"))
#: Bytes and seconds that a compilation may take: a file of 200 KB must not ask for more.
MAX_MEMORY, MAX_SECONDS = 6 << 30, 60
SHAPE = STORIES.with_(layers=1, width=32, heads=2, groups=1, head=16, hidden=32, context=64)


def mutant(data: bytes, random: np.random.Generator) -> bytes:
    """Changes a few bytes, numbers of 4 or 8 bytes, or runs of bytes, mostly before the weights; cuts one in five."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 5)):
        # The metadata begins the file, the vocabulary follows, then the tensors' names and shapes.
        end = random.choice([64, 1200, len(data) // 4, len(data)])
        at = int(random.integers(4, end - 16))
        how = random.integers(4)
        if how == 0:
            changed[at] = int(random.choice([0, 1, 127, 128, 255, random.integers(256)]))
        elif how == 1:
            number = int(random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, random.integers(2**32)]))
            changed[at:at + 4] = number.to_bytes(4, "little")
        elif how == 2:
            number = int(random.choice([0, 2**62, 2**63 - 1])) | int(random.integers(256))
            changed[at:at + 8] = number.to_bytes(8, "little")
        else:
            source = int(random.integers(0, end - 16))
            changed[at:at + 16] = changed[source:source + 16]
    if random.random() < 0.2:
        del changed[int(random.integers(8, len(changed))):]
    return bytes(changed)


def exit_of(arguments: list[str], errors: Path) -> int:
    """Runs a command line in a copy of this process, with limits; returns its exit code, negative for a signal.
    errors: a file for what it prints to stderr."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
            with errors.open("w") as file:
                sys.stderr = file
                code = main(arguments)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("encoding", ["Q8_0", "Q4_1", "F16", "Q5_1"])
def test_mutants(encoding: str, tmp_path: Path):
    sound = write_stories(tmp_path / "sound.gguf", encoding, SHAPE)
    # Templates and modules that this process has loaded are those of its copies.
    assert main(["lm", "compile", "-q", str(sound), "-o", str(tmp_path / "out")]) == 0
    random, codes = np.random.default_rng(list(encoding.encode())), []
    for index in range(COUNT // 4):
        data = mutant(sound.read_bytes(), random)
        (tmp_path / "mutant.gguf").write_bytes(data)
        code = exit_of(["lm", "compile", "-q", str(tmp_path / "mutant.gguf"), "-o", str(tmp_path / "out")],
                       tmp_path / "errors.txt")
        if code not in (0, 1):
            kept = Path(os.environ.get("MEGCC_KEPT_MUTANTS", str(tmp_path))) / f"{encoding}_{index}.gguf"
            kept.write_bytes(data)
            pytest.fail(f"{kept}: exit code {code}: {(tmp_path / 'errors.txt').read_text()[-2000:]}")
        message = (tmp_path / "errors.txt").read_text()
        assert (code == 1) == bool(message.strip()) or "warning" in message, (index, code, message)
        codes.append(code)
    print(f"{encoding}: {codes.count(0)} of {len(codes)} mutants compile")
    assert 1 in codes
