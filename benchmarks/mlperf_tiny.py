# SPDX-License-Identifier: Apache-2.0
"""Measures the networks of MLPerf Tiny on emulated Cortex-M cores, beside the times that submitters published.

    make mlperf-tiny
    python benchmarks/mlperf_tiny.py [--models DIR] [--only kws,ic] [--targets cortex-m4] [--page docs/mlperf-tiny.md]
    python benchmarks/mlperf_tiny.py --cifar10 test_batch.bin [--models DIR]

The models are those of https://github.com/mlcommons/tiny. DIR ($MEGCC_MODELS without --models) is a checkout of it, or
a folder with the files, or with a folder NAME/model.tflite for each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tvm_megcc
from tvm_megcc.errors import MegccError, ToolError
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.emulator.flash import CHIPS
from tvm_megcc.runtime.emulator.run import EmulatedSession
from tvm_megcc.runtime.load import load
from tvm_megcc.tools.run import seeded

SOURCE = "https://github.com/mlcommons/tiny"


@dataclass(frozen=True)
class Network:
    """A network of the benchmark. path: in the repository. name: of a folder with its model.tflite. stream: how it is
    compiled for blocks; "": for its whole input."""

    task: str
    dtype: str
    path: str
    name: str
    stream: str = ""

    def find(self, models: Path) -> Path | None:
        places = (models / self.path, models / Path(self.path).name, models / self.name / "model.tflite")
        return next((place for place in places if place.is_file()), None)


def _networks() -> tuple[Network, ...]:
    folder = "benchmark/training/{}/trained_models/{}.tflite".format
    rows = (("kws", "keyword_spotting", "kws_ref_model", "kws_ref_model_float32", "kws_dscnn"),
            ("ic", "image_classification", "pretrainedResnet_quant", "pretrainedResnet", "resnet8_cifar10"),
            ("vww", "visual_wake_words", "vww_96_int8", "vww_96_float", "vww_96"),
            ("ad", "anomaly_detection", "ad01_int8", "ad01_fp32", "ad_autoencoder"))
    wake_word = folder("streaming_wakeword", "str_ww_ref_model")
    return (*(Network(task, dtype, folder(place, file), f"{name}_{short}")
              for task, place, quantised, floats, name in rows
              for dtype, file, short in (("int8", quantised, "int8"), ("float32", floats, "f32"))),
            Network("sww", "int8", wake_word, "streaming_wakeword_int8"),
            Network("sww, in frames", "int8", wake_word, "streaming_wakeword_int8", "axis=1,block=1"))


NETWORKS = _networks()


@dataclass(frozen=True)
class Published:
    """Milliseconds that a submitter of the closed division published, by task. mhz: of the board's core."""

    target: str
    mhz: int
    board: str
    engine: str
    ms: tuple[float | None, float | None, float | None, float | None]


TASKS = ("kws", "ic", "vww", "ad")
#: The streaming wake word: a network of 30 frames of features, one every 32 ms. No submitter's times are known here.
WAKE_WORDS, FRAME_MS = ("sww", "sww, in frames"), 32
#: The chip of each target's published board, whose flash is modelled.
BOARD_CHIPS = {"cortex-m4": "stm32l4r5", "cortex-m7": "stm32h7a3", "cortex-m33": "stm32u575"}
#: Regions with which the session copies the weights into RAM.
WEIGHTS_IN_RAM = "sram=2M,flash=2M"
#: From the result files of the rounds' repositories, github.com/mlcommons/tiny_results_v0.5 to v1.3: closed/SUBMITTER.
PUBLISHED = (
    Published("cortex-m4", 120, "NUCLEO-L4R5ZI", "TFLite Micro, the reference of v0.5", (181.9, 704.2, 600.6, 10.05)),
    Published("cortex-m4", 120, "NUCLEO-L4R5ZI", "microTVM with CMSIS-NN, Krai, v1.1", (99.8, 389.6, 300.8, 8.61)),
    Published("cortex-m4", 120, "NUCLEO-L4R5ZI", "HALE, Bosch, v1.2", (60.2, 180.5, 180.5, 5.84)),
    Published("cortex-m4", 120, "NUCLEO-L4R5ZI", "Plumerai 2023.05, v1.1", (47.8, 167.8, 98.8, 4.05)),
    Published("cortex-m4", 120, "NUCLEO-L4R5ZI", "X-CUBE-AI 9, STMicroelectronics, v1.2", (43.2, 165.1, 88.9, 5.26)),
    Published("cortex-m7", 280, "NUCLEO-H7A3ZI-Q", "X-CUBE-AI 9, STMicroelectronics, v1.2", (11.3, 40.8, 23.8, 1.23)),
    Published("cortex-m33", 160, "NUCLEO-U575ZI-Q", "Plumerai, v1.1", (30.0, 104.3, 59.5, 3.67)),
    Published("cortex-m33", 160, "NUCLEO-U575ZI-Q", "X-CUBE-AI, STMicroelectronics, v1.3", (29.0, 109.5, 59.3, 3.21)),
)
#: Megahertz of cores that nobody submitted: a round number.
OTHERS = {"cortex-m55": 100}
TARGETS = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")


@dataclass(frozen=True)
class Row:
    """The resources of a network on a core. flash, code, ram, stack: bytes. code: the part of flash that is not the
    model. ram: without stack. stack: the deepest. waits, waits_in_ram: the cycles of waiting for the flash of the
    target's chip, with the weights in flash and in RAM; None: not modelled."""

    network: Network
    target: str
    instructions: int
    cycles: int | None
    flash: int
    code: int
    ram: int
    stack: int
    waits: int | None = None
    waits_in_ram: int | None = None


def _counted(network: Network, model: Path, target: str, optimize: str, folder: Path, regions: str | None = None
             ) -> EmulatedSession:
    """Compiles, builds and runs a network once, in the emulator. regions: option --region."""
    artifact = tvm_megcc.compile(model, target, optimize=optimize, name=network.name, stream=network.stream or None,
                                 regions=regions)
    session = load(artifact.save(folder, embed=True, force=True))
    assert isinstance(session, EmulatedSession)
    session.counted = True
    session.chip = CHIPS.get(BOARD_CHIPS.get(target, "")) if network.dtype == "int8" else None
    outputs = session.run(seeded(session.inputs, 0))
    if not all(np.isfinite(np.asarray(value, np.float64)).all() for value in outputs.values()):
        raise MegccError(f"{network.task}, {network.dtype} on {target}: a result is no number")
    return session


def measured(network: Network, model: Path, target: str, optimize: str, where: Path) -> Row:
    """Returns the figures of a network; where a chip's flash is modelled, it runs with the weights in RAM, too."""
    session = _counted(network, model, target, optimize, where / "flash")
    needs, modelled = firmware.sizes(session.firmware), session.chip is not None
    fast = _counted(network, model, target, optimize, where / "ram", WEIGHTS_IN_RAM) if modelled else None
    return Row(network, target, sum(session.instructions), sum(session.cycles) if session.cycles else None,
               needs["flash"], needs["flash"] - session.container_bytes, needs["ram"] - needs["stack"],
               session.stack_bytes or 0, sum(session.waits) if modelled else None, sum(fast.waits) if fast else None)


def right_answers(model: Path, images: Path, where: Path) -> tuple[int, int]:
    """Returns how many images the int8 network for image classification classifies correctly, and how many there are.
    It runs on this machine: its integers are the same everywhere.

    Args:
        images: of the binary version of CIFAR-10: for each image its class and three planes of 32x32 bytes.

    Raises:
        MegccError: for a file that is none of these.
    """
    rows = np.fromfile(images, np.uint8)
    if not rows.size or rows.size % 3073:
        raise MegccError(f"{images} has {rows.size:,} bytes; images of CIFAR-10's binary version have 3,073 each")
    classes, planes = rows.reshape(-1, 3073)[:, 0], rows.reshape(-1, 3073)[:, 1:].reshape(-1, 1, 3, 32, 32)
    session = load(tvm_megcc.compile(model, name="ic").save(where / "ic_here"))
    (name,) = (tensor.name for tensor in session.inputs)
    found = [next(iter(session.run({name: image}).values())).argmax()
             for image in (planes.transpose(0, 1, 3, 4, 2) ^ 128).view(np.int8)]
    return int((np.array(found) == classes).sum()), len(classes)


def clock(target: str) -> int:
    """Megahertz that milliseconds are of."""
    return next((row.mhz for row in PUBLISHED if row.target == target), OTHERS.get(target, 100))


def missing_text(networks: Sequence[Network], models: Path | None) -> str:
    """Returns a message on the files that are missing: where they were looked for, and how to fetch them."""
    where = f"in {models}" if models else "anywhere: there is neither --models nor $MEGCC_MODELS"
    files = "".join(f"  {network.path}  ({network.task}, {network.dtype})\n" for network in networks)
    return (f"not {where}:\n{files}Fetch them with 'git clone {SOURCE}', and give the checkout with --models, or put "
            f"the files into a folder of models.\n")


def table(rows: Sequence[Row]) -> Iterator[str]:
    yield ("| network | numbers | target | instructions | modelled cycles | at | modelled ms | flash | of it code "
           "| RAM | stack |")
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        mhz = clock(row.target)
        cycles, ms = (f"{row.cycles:,}", f"{row.cycles / mhz / 1e3:.2f}") if row.cycles else ("–", "–")
        yield (f"| {row.network.task} | {row.network.dtype} | `{row.target}` | {row.instructions:,} | {cycles} | "
               f"{mhz} MHz | {ms} | {row.flash:,} | {row.code:,} | {row.ram:,} | {row.stack:,} |")


def beside(rows: Sequence[Row]) -> Iterator[str]:
    """Modelled milliseconds of int8 beside those that were published."""
    yield "| target | board | engine | kws | ic | vww | ad |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for target in dict.fromkeys(row.target for row in PUBLISHED):
        ours = {row.network.task: row for row in rows if row.target == target and row.network.dtype == "int8"}
        if not ours:
            continue
        mhz = clock(target)
        cells = [f"{ours[task].cycles / mhz / 1e3:.2f}" if task in ours and ours[task].cycles else "–"
                 for task in TASKS]
        yield f"| `{target}` | model, {mhz} MHz | megcc | {' | '.join(cells)} |"
        for row in PUBLISHED:
            if row.target == target:
                cells = ["–" if ms is None else f"{ms:g}" for ms in row.ms]
                yield f"| | {row.board}, {row.mhz} MHz | {row.engine} | {' | '.join(cells)} |"


def with_flash(rows: Sequence[Row]) -> Iterator[str]:
    """Modelled milliseconds of int8 with the flash of the boards' chips."""
    tasks = [network.task for network in NETWORKS if network.dtype == "int8"]
    yield f"| target | chip | weights | {' | '.join(tasks)} |"
    yield "|---|---|---|" + "--:|" * len(tasks)
    for target, name in BOARD_CHIPS.items():
        ours = {row.network.task: row for row in rows if row.target == target and row.cycles and row.waits is not None}
        waits: dict[str, dict[str, int]] = {
            "without wait states": dict.fromkeys(ours, 0),
            "in flash": {task: row.waits or 0 for task, row in ours.items()},
            "in RAM": {task: row.waits_in_ram or 0 for task, row in ours.items()}}
        for where, cycles in waits.items() if ours else ():
            cells = [f"{((ours[task].cycles or 0) + cycles[task]) / clock(target) / 1e3:.2f}" if task in ours else "–"
                     for task in tasks]
            yield f"| `{target}` | {name}, {CHIPS[name].mhz} MHz | {where} | {' | '.join(cells)} |"


def duty(rows: Sequence[Row]) -> Iterator[str]:
    """The part of the time that the wake word's network takes, a frame of features every `FRAME_MS`."""
    yield "| target | at | 30 frames at a time | duty cycle | each new frame | duty cycle |"
    yield "|---|--:|--:|--:|--:|--:|"
    for target in dict.fromkeys(row.target for row in rows):
        ours = {row.network.task: row for row in rows if row.target == target and row.cycles}
        if not all(task in ours for task in WAKE_WORDS):
            continue
        cells = []
        for task in WAKE_WORDS:
            row = ours[task]
            ms = ((row.cycles or 0) + (row.waits or 0)) / clock(target) / 1e3
            cells.append(f"{ms:.2f} ms | {ms / FRAME_MS:.1%}")
        yield f"| `{target}` | {clock(target)} MHz | {' | '.join(cells)} |"


PAGE = """# MLPerf Tiny

The five networks of [MLPerf Tiny](https://github.com/mlcommons/tiny) in the emulator, as `make mlperf-tiny` measures
them (`benchmarks/mlperf_tiny.py --page` wrote this page; `-O {optimize}`, gcc 12, kernels `-O2`). Instructions are
exact. **Cycles are a model** ([microcontrollers.md](microcontrollers.md#cycles)): memory without wait states, no
caches.
Flash is code and model, RAM is without stack, both in bytes. kws is keyword spotting, ic image classification,
vww visual wake words, ad anomaly detection, sww the streaming wake word.

{table}

## Beside what was published

Milliseconds of the closed division, int8. The submitters measured theirs on boards (result files of the rounds,
`github.com/mlcommons/tiny_results_v…`). Ours are modelled cycles at the board's clock, **not measured on a board**, and
without the wait states of its flash, which the next table adds.

{beside}

## With the flash of the boards

Modelled milliseconds of int8 with wait states, prefetch and caches of the boards' chips
([microcontrollers.md](microcontrollers.md#wait-states)), the first run after reset. *In RAM*: compiled with
`--region {regions}`, so that the session copies the weights into RAM when it is opened.

{with_flash}

## Streaming wake word

A frame of 40 features arrives every {frame} ms, and the network reads the last 30. Compiled as it is, it computes all
of them anew. With `--stream axis=1,block=1` it computes what is new and keeps the rest in states of 3,960 bytes; the
results have the same bits ([streaming.md](streaming.md)). The duty cycle is that of the network, with the flash of the
board's chip where it is modelled, and without the computation of the features.

{duty}

## Accuracy

Accuracy is that of the model files: int8 results have the same bits as LiteRT's reference kernels; tests compare them.
The benchmark's repository has the labels of its validation inputs, but not the inputs. Those of image classification
are 200 test images of CIFAR-10. `--cifar10 test_batch.bin` counts the images of that file whose class is right: 744 of
the first 846, 87.9 % (the benchmark requires 85), and each output has the bits of LiteRT's. The accuracy of the others
is not measured here. `megcc export --for mlperf-tiny` writes the files that a board runs with the benchmark's runner
([packages.md](packages.md)).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=os.environ.get("MEGCC_MODELS"))
    parser.add_argument("--only", default="kws,ic,vww,ad,sww", help="tasks (default: all five)")
    parser.add_argument("--dtype", default="int8,float32")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("-O", dest="optimize", choices=("speed", "size"), default="speed")
    parser.add_argument("--page", type=Path, help="also write the page")
    parser.add_argument("--cifar10", type=Path, metavar="FILE", help="only say of how many images of this file, of "
                        "CIFAR-10's binary version, image classification in int8 names the class rightly")
    options = parser.parse_args(arguments)
    if options.cifar10:
        options.only, options.dtype = "ic", "int8"
    models = Path(options.models) if options.models else None
    asked = [network for network in NETWORKS if network.task.partition(",")[0] in options.only.split(",")
             and network.dtype in options.dtype.split(",")]
    paths = {network: models and network.find(models) for network in asked}
    missing = [network for network, path in paths.items() if path is None]
    if missing:
        print(missing_text(missing, models), file=sys.stderr, end="")
    rows = []
    with tempfile.TemporaryDirectory() as where:
        if options.cifar10:
            (path,) = paths.values()
            if path is None:
                return 1
            try:
                right, count = right_answers(path, options.cifar10, Path(where))
            except (MegccError, OSError) as error:
                print(error, file=sys.stderr)
                return 1
            print(f"{right:,} of {count:,} images of {options.cifar10} are right: {right / count:.1%}")
            return 0
        for target in options.targets.split(","):
            for network, path in paths.items():
                if path is None:
                    continue
                try:
                    rows.append(measured(network, path, target, options.optimize, Path(where)))
                except ToolError as error:
                    print(f"{target} is left out: {error}", file=sys.stderr)
                    break
                except MegccError as error:
                    print(f"{network.task}, {network.dtype} on {target} is left out: {error}", file=sys.stderr)
                    continue
                print(f"{network.task}, {network.dtype} on {target}: {rows[-1].instructions:,} instructions",
                      file=sys.stderr)
                for folder in Path(where).iterdir():
                    shutil.rmtree(folder)
    if not rows:
        return 1
    order = {network: index for index, network in enumerate(NETWORKS)}
    rows.sort(key=lambda row: order[row.network])
    print("\n".join([*table(rows), "", *beside(rows), "", *with_flash(rows), "", *duty(rows)]))
    if options.page:
        options.page.write_text(PAGE.format(optimize=options.optimize, table="\n".join(table(rows)),
                                            beside="\n".join(beside(rows)), regions=WEIGHTS_IN_RAM,
                                            frame=FRAME_MS, with_flash="\n".join(with_flash(rows)),
                                            duty="\n".join(duty(rows))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
