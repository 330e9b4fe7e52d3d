# SPDX-License-Identifier: Apache-2.0
"""The model of flash that is slower than the core: its caches and prefetch by hand, then firmware in the emulator."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tvm_megcc
from tests.rows_graphs import separable
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.cli.verbs import REFUSED
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Regions
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.emulator import flash
from tvm_megcc.runtime.emulator.counting import Block, Disassembly
from tvm_megcc.runtime.emulator.cycles import CORES
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS, native, parse_targets
from tvm_megcc.tools import source

MODEL = Path(flash.__file__).with_name("wait_states.c")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        compiler = find_compiler(native())
    except MissingTool as missing:
        pytest.skip(str(missing))
    library = tmp_path_factory.mktemp("model") / "model.so"
    subprocess.run([*compiler.command, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", MODEL, "-o", library], check=True)
    return library


class Model:
    """The C of the model, each time with state of its own. 64 KB of flash at 0x1000, instructions of a cycle each."""

    copies = itertools.count()

    def __init__(self, built: Path, folder: Path, flash_of: str, code: str, data: str):
        own = folder / f"model{next(self.copies)}.so"
        own.write_bytes(built.read_bytes())
        (folder / "costs").write_bytes(bytes([1]) * 0x7000 + bytes([0x81]) * 0x1000)
        self.c = ctypes.CDLL(str(own))
        for name in ("wait_states_word", "wait_states_fetched", "wait_states_loaded"):
            getattr(self.c, name).restype = ctypes.c_uint64
        self.clock = ctypes.c_uint64.in_dll(self.c, "wait_states_clock")
        for option in (f"flash=1000:11000:{flash_of}", f"code_cache={code}", f"data_cache={data}",
                       f"costs={folder / 'costs'}"):
            assert self.c.wait_states_option(option.encode()), option

    def fetch(self, *addresses: int, cycles: int = 1) -> list[int]:
        """Executes code at some addresses. Returns how long each waits."""
        waited = []
        for address in addresses:
            word = self.c.wait_states_word(ctypes.c_uint64(address))
            waited.append(self.c.wait_states_fetched(ctypes.c_uint64(word % 2**64)))
            self.clock.value += cycles
        return waited

    def load(self, *addresses: int, size: int = 4) -> list[int]:
        waited = []
        for address in addresses:
            waited.append(self.c.wait_states_loaded(ctypes.c_uint64(address), size))
            self.clock.value += 1
        return waited


def test_prefetch_hides_what_the_core_is_busy_for(built: Path, tmp_path: Path) -> None:
    straight = Model(built, tmp_path, "8:5:5:0", "1024:32:32:0", "256:8:32:0")
    assert straight.fetch(0x2000, 0x2008, 0x2010, cycles=4) == [5, 5, 5], "a read of 6 cycles, less the one of a hit"
    ahead = Model(built, tmp_path, "8:5:5:1", "1024:32:32:0", "256:8:32:0")
    # The next word is asked for when the first is there, and 4 of its 6 cycles are those of the first one's code.
    assert ahead.fetch(0x2000, 0x2008, 0x2010, cycles=4) == [5, 2, 2]
    assert ahead.fetch(0x2000, 0x2008, 0x2004, cycles=4) == [0, 0, 0], "in the cache"
    # A jump waits for the read of 0x2008 that has just begun, then for its own.
    assert Model(built, tmp_path, "8:5:5:1", "1024:32:32:0", "256:8:32:0").fetch(0x2000, 0x3000) == [5, 6 + 5]


def test_the_least_recently_used_line_goes(built: Path, tmp_path: Path) -> None:
    model = Model(built, tmp_path, "16:4:4:0", "64:2:16:1", "code")  # two sets of two lines
    assert model.load(0x2000, 0x2020, 0x2000, 0x2010) == [4, 4, 0, 4]
    assert model.load(0x2040) == [4], "in place of 0x2020"
    assert model.load(0x2000, 0x2010, 0x2020) == [0, 0, 4]
    assert model.fetch(0x2020) == [0], "instructions and constants share the cache"
    assert model.load(0x204e, size=4) == [4 + 5], "over the end of a line: two reads, one after the other"


def test_a_line_of_several_words(built: Path, tmp_path: Path) -> None:
    whole = Model(built, tmp_path, "8:5:5:0", "1024:2:32:1", "code")
    assert whole.load(0x2008) == [5]
    whole.clock.value += 100
    assert whole.load(0x2000, 0x2018) == [0, 0], "a miss reads the line"
    own = Model(built, tmp_path, "8:5:5:0", "1024:2:32:0", "code")
    assert own.load(0x2008) == [5]
    own.clock.value += 100
    assert own.load(0x2000, 0x2008) == [5, 0], "a miss reads a word"


def test_words_in_sequence_and_fast_memory(built: Path, tmp_path: Path) -> None:
    serial = Model(built, tmp_path, "8:55:31:0", "16384:2:8:1", "code")
    assert serial.load(0x2000, 0x2008, 0x2018) == [55, 31, 55]
    assert serial.fetch(0x1000 + 0xE000, 0x1000 + 0xE008) == [0, 0], "the file of costs says that this code is in RAM"
    assert serial.load(0x20000000) == [0]


def test_functions_worth_a_place() -> None:
    code = Disassembly(tuple(range(0, 40, 4)), (("nop", ""),) * 10, {"f": 0, "g": 8, "h": 32})
    calls = [[Block(0, 2, 1, 0, 10, 99), Block(8, 3, 1, 0, 20)], [Block(20, 3, 1, 0, 4), Block(32, 2, 1, 0)]]
    assert [(row.name, row.bytes, row.waits) for row in flash.worth_placing(code, calls, 100)] == [
        ("f", 8, 10), ("g", 24, 24)], "h does not wait"
    assert [row.name for row in flash.worth_placing(code, calls, 24)] == ["f"]


def test_costs_of_each_instruction(tmp_path: Path) -> None:
    code = Disassembly((0x1000, 0x1002, 0x1006), (("ldr", "r0, [r1]"), ("sdiv", "r0, r0, r1"), ("bx", "lr")),
                       {"f": 0x1000, "g": 0x1006})
    flash.write_costs(tmp_path / "costs", CORES["cortex-m4"], code, 0x1000, ["g"])
    found = (tmp_path / "costs").read_bytes()
    assert found[:4] == bytes([2, 7, 0, 0x81]) and set(found[4:]) <= {0, 0x80}


def test_chips_and_their_cores() -> None:
    for chip in flash.CHIPS.values():
        assert chip.target in CORES and flash.chip_of(chip.name.upper(), chip.target) == chip
        for cache in filter(None, (chip.code, chip.data)):
            assert cache.bytes % (cache.ways * cache.line) == 0 and cache.line % chip.width == 0
    with pytest.raises(MegccError, match="stm32u575, stm32h7a3, nrf5340, rp2350"):
        flash.chip_of("z80", "cortex-m4")
    with pytest.raises(MegccError, match="rp2350 has a cortex-m33"):
        flash.chip_of("rp2350", "cortex-m4")


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "timed_session_of", lambda *_: SimpleNamespace(target=TARGETS["x86-64"]))
    assert main(["bench", str(paths.examples() / "digits.onnx"), "--chip", "rp2350"]) == REFUSED
    assert "are for microcontrollers" in capsys.readouterr().err


@pytest.fixture(scope="module")
def emulator() -> None:
    try:
        find_compiler(TARGETS["cortex-m4"])
        find_emulator(TARGETS["cortex-m4"])
    except MissingTool as missing:
        pytest.skip(str(missing))


def bench(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["bench", str(folder), "--chip", "stm32l4r5", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_firmware_waits_for_its_flash(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tvm_megcc.compile(paths.examples() / "digits.onnx", "cortex-m4").save(tmp_path / "digits_megcc")
    assert main(["bench", str(folder), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    found = bench(folder, capsys, "--fast-code", "16K")
    assert (found["instructions"], found["cycles"]) == (plain["instructions"], plain["cycles"]) and "chip" not in plain
    waits = found["waits_for_code"] + found["waits_for_constants"]
    assert sum(call["waits"] for call in found["calls"]) >= 0 < found["waits_for_code"] < waits < found["cycles"]
    fast = found["fast_code"]
    assert 0 < fast["bytes"] <= 16 << 10 and fast["waits"] < waits
    assert main(["bench", str(folder), "--chip", "stm32l4r5", "--fast-code", "16K"]) == 0
    text = capsys.readouterr().out
    assert "with the flash of stm32l4r5 at 120 MHz (words of 64 bits, 5 wait states" in text
    assert f"*(.text.{fast['functions'][0]['name']})" in text
    assert main(["bench", str(folder), "--fast-code", "1K"]) == REFUSED and "give --chip" in capsys.readouterr().err


@pytest.mark.slow
def test_weights_in_ram_need_no_waiting(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[int] = []
    for regions in (None, Regions.parse("sram=64K,flash=1M")):
        artifact = compile_graph(separable(), parse_targets("cortex-m4"), regions=regions)
        found.append(bench(artifact.save(tmp_path / str(len(found)), embed=True), capsys)["waits_for_constants"])
    assert found[1] < found[0] / 4
