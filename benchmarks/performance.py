# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark and writes docs/performance.md, and the table of README.md.

    python benchmarks/models.py MODELS
    python benchmarks/performance.py MODELS [NAME …] [--run x86-64-v4] [--python PATH] [--processor N]
    python benchmarks/performance.py        # only writes the page again

What `megcc bench --json` says of a model is a line of benchmarks/results/RUN.jsonl, in place of the line that was there
before. The page is made of these files, and of results/arm64.md and python.md (benchmarks/python_calls.py) where they
are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from tvm_megcc.tools.bench import against_report
from tvm_megcc.tools.bench.against_report import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md"
#: The table of README.md: its head, the networks, and how it names engines.
README, README_HEAD = ROOT / "README.md", "| network | ours, ms | fastest other, ms | ours, MB | theirs, MB |\n"
README_NAMES = ("mobilenet_v1", "efficientnet_b0", "resnet50", "light_vgg19", "unet_small", "yolox_nano",
                "tiny_resnet8")
ENGINES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "litert": "LiteRT", "ncnn": "ncnn", "mnn": "MNN",
           "tvm": "TVM"}
#: Rows of the tables.
NAMES = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_lite0", "efficientnet_b0", "shufflenet_v2",
         "squeezenet1_1", "resnet18", "resnet50", "light_vgg19", "light_inception_v1", "light_densenet121",
         "unet_small", "yolox_nano", "bert_tiny", "minilm_l6", "vit_tiny", "lstm_kws", "gru_kws", "tiny_dscnn_kws",
         "tiny_resnet8", "tiny_vww", "tiny_ad")
TRANSFORMERS = ("bert_tiny", "minilm_l6", "vit_tiny")
LARGE_CNNS = tuple(name for name in NAMES[:14] if name not in ("mobilenet_v3_small", "shufflenet_v2"))


@dataclass(frozen=True)
class Run:
    """A section of the page.

    against, options: of `megcc bench`. words: what a reader has to know. tables: how many of the report are shown.
    """

    title: str
    against: str
    options: tuple[str, ...]
    words: str = ""
    tables: int = 1
    names: tuple[str, ...] = NAMES


RUNS = {
    "x86-64-v4": Run("x86-64-v4", "onnxruntime,openvino,litert,ncnn,mnn,tvm", ("--target", "x86-64-v4"), tables=4),
    "x86-64-v3": Run("x86-64-v3", f"openvino_avx2={Path(__file__).with_name('openvino_avx2.py')},mnn",
                     ("--target", "x86-64-v3"), """\
The same CPU, restricted to AVX2. Ours is compiled for it, MNN's Python package has no code for AVX-512, and OpenVINO is
told that the CPU has none (`benchmarks/openvino_avx2.py`). `ONEDNN_MAX_CPU_ISA=AVX2` restricts only OpenVINO's
convolutions: with that alone minilm_l6 takes 19.9 ms, although AVX2 needs 21.4 for its products. The others cannot
be restricted.
"""),
    "threads": Run("Two threads", f"one={Path(__file__).with_name('one_thread.py')}",
                   ("--target", "x86-64-v4", "--threads", "2", "--processor", "0", f"--python=one={sys.executable}"),
                   """\
Ours on two threads against ours on one, for convolution networks of more than 300 million multiplications, while both
processors share the last cache. When the processors of a virtual machine do not share it, the same runs give 1.0 to
1.6. light_vgg19 is limited by its fully connected layers: they read 494 MB of weights from memory, and two processors
of this machine read 1.25 times as fast as one; that alone leaves 1.80. light_inception_v1 waits for memory as well,
for the transformed weights of its 3x3 layers.
""", names=LARGE_CNNS)}


def bench(model: Path, name: str, args: argparse.Namespace) -> None:
    """Runs one model and keeps its line."""
    run = RUNS[name]
    command = [sys.executable, "-m", "tvm_megcc", "bench", str(model), "--against", run.against, "--json",
               "--rounds", str(args.rounds), "--processor", str(args.processor),
               *(f"--python={path}" for path in args.python), *run.options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{model.stem}: megcc bench ended with {done.returncode}; its line stays as it was", file=sys.stderr)
        return
    report = json.loads(done.stdout)
    lines = {line["rows"][0]["model"]: line for line in read(name)} | {model.stem: report}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.jsonl").write_text(
        "".join(json.dumps(lines[row]) + "\n" for row in run.names if row in lines))
    print(against_report.text(report), flush=True)


def read(run: str) -> list[dict]:
    path = RESULTS / f"{run}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def markdown(table: Table) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in
            (table.columns, ("---", *["--:"] * (len(table.columns) - 1)), *table.rows)]


HEAD = """\
# Performance

Networks with random weights (`benchmarks/models.py`), batch 1, one thread, beside other inference engines. All engines
of a row take turns in one run of

    megcc bench NAME.onnx --against onnxruntime,openvino,litert,ncnn,mnn,tvm --target x86-64-v4

Each engine is a process, bound to one processor. A round is a burst of 60 ms of each engine, after a warm-up
inference, in a real-time scheduling class; times are medians over the rounds. MMAC are millions of multiply-adds.
*Speed* is the time of the best peer of the row divided by ours: the median over the rounds, each ratio inside one
round, with the minimum and maximum. Errors are those of the first output against ONNX Runtime with its optimiser off.
Memory is the peak of resident memory. Loading is timed once, from a file in the system's cache. TVM is its default
build, not tuned. Ratios repeat within a few percent; milliseconds depend on the machine and its day. While the tables
of x86-64-v4 and x86-64-v3 were measured, other programs used the second processor, so the ranges are wide.
[tuning.md](tuning.md#beside-other-engines) says how to measure a model of your own;
[operator-speed.md](operator-speed.md) has single operators. These commands write this page:

    pip install .[bench] torch torchvision  # the peers, and what makes the networks; litert-torch for LiteRT's files
    python benchmarks/models.py MODELS
    python benchmarks/performance.py MODELS
"""
INTEGERS = """\
## Integers

8-bit networks on a Xeon (Sapphire Rapids) with AVX-512 VNNI, by `benchmarks/integers.py`: alternating bursts, one
thread, medians of the shortest inference of each burst. The CPU has AMX, which we do not use; here the system refuses
it to all engines (`--amx` permits it), so all multiply with VNNI. *Speed* is the best peer's time divided by our best
one; `megcc` has the ONNX file, `megcc, TFLite` and LiteRT the TFLite file. resnet8, kws, ad, mobilenet_v1_025, qtdnn,
minilm_l2 and ssd_mobilenet_v1 are networks of [models.md](models.md) (the last only as TFLite: operators and
postprocessing). vww, mobilenet_v2, resnet18 and resnet50 have random weights. `onnxruntime.quantization` made them QDQ
(uint8, weights int8 per channel, float inputs), and ai-edge-quantizer made them TFLite with int8 inputs. In one run
with its float network, on x86-64-v4-vnni, quantised mobilenet_v2 took 1.32 ms and the floats 3.75.

On x86-64-v3 our sums are those of all other targets. OpenVINO's results there differ from those with VNNI (resnet18: by
up to 2.3, for results of -162 to 137; mobilenet_v2 of random inputs: by up to 11 steps of its 8 bits), because products
of bytes with AVX2 saturate at 16 bits. We use the same instruction, but arrange the weights so that no sum saturates
([kernels.md](kernels.md)). A loop of three instructions for 32 products computes 121 billion products a second on this
CPU; a loop of int16 products, which takes four, computes 82. One in 25 (resnet50) to one in 10 (mobilenet_v2) of the
products is computed twice. The rows of vww and resnet18 on x86-64-v3 were measured with earlier kernels.

ncnn and MNN are not in the tables, because they do not compute these files. ncnn reads only quantised networks of its
own tool. MNN 3.6.1 converts resnet8 and kws. When it runs them, it ends with a segmentation fault (resnet8, TFLite),
an error of shapes (resnet8, ONNX), results of another shape (kws, ONNX) or wrong floats (kws, TFLite: in 0.14 ms; ours
takes 0.025).
"""
NOT_MEASURED = "Not measured yet.\n"


def page() -> str:
    """docs/performance.md."""
    parts = [HEAD]
    for name, run in RUNS.items():
        parts += [f"## {run.title}\n", *([run.words] if run.words else []), tables(name)]
    for title, name in (("Calls from Python", "python.md"), ("arm64", "arm64.md")):
        parts += [f"## {title}\n", (RESULTS / name).read_text() if (RESULTS / name).exists() else NOT_MEASURED]
    parts[-2:-2] = [INTEGERS, *integers()]
    return "\n".join(parts)


def readme(text: str) -> str:
    """Returns the text of README.md with the rows of the last results."""
    def row(found: dict) -> str:
        ours, best = found["engines"]["megcc"], found["engines"][found["best"]]
        memory = [f"{(engine['peak'] - engine['bare']) / 1e6:.1f}" for engine in (ours, best)]
        cells = (found["model"], against_report.milliseconds(ours["seconds"]),
                 f"{against_report.milliseconds(best['seconds'])} ({ENGINES[found['best']]})", *memory)
        return f"| {' | '.join(cells)} |\n"

    rows = [row(found) for report in read("x86-64-v4") for found in report["rows"] if found["model"] in README_NAMES]
    before, head, after = text.partition(README_HEAD)
    ruler, _, rest = after.partition("\n")
    return "".join((before, head, ruler, "\n", *rows, "\n", rest.partition("\n\n")[2]))


def integers() -> list[str]:
    """Tables of integers.jsonl, one for each target."""
    parts, reports = [], read("integers")
    for target in dict.fromkeys(report["target"] for report in reports):
        rows = [report for report in reports if report["target"] == target]
        engines = list(dict.fromkeys(name for row in rows for name in row["ms"]))
        speeds = [min(ms for name, ms in row["ms"].items() if "megcc" not in name)
                  / min(ms for name, ms in row["ms"].items() if "megcc" in name) for row in rows]
        versions = {name: number for row in rows for name, number in row["versions"].items()}
        cells = [(row["model"], *(f"{row['ms'][name]:.3g}" if name in row["ms"] else "" for name in engines),
                  f"{speed:.2f}") for row, speed in zip(rows, speeds, strict=True)]
        named = ", ".join(f"{name} {number}" for name, number in versions.items())
        parts += [f"### 8 bits, {target}\n", f"{named}. Geometric mean of the speeds: {geometric_mean(speeds):.2f}.\n",
                  *markdown(Table("", ("ms", *engines, "speed"), cells)), ""]
    return parts


def tables(run: str) -> str:
    """The tables of a run, with what has to be known to read them."""
    reports = read(run)
    if not reports:
        return NOT_MEASURED
    rows = [row for report in reports for row in report["rows"]]
    engines = list(dict.fromkeys(name for report in reports for name in report["engines"]))
    whole = {**reports[-1], "engines": engines, "rows": rows}
    versions = [f"{name} {version}" for name, version in against_report.versions(whole).items()]
    lines = [f"{'; '.join(filter(None, (against_report.heading(whole), ', '.join(versions))))}.", "", means(rows)]
    for table in against_report.tables(whole)[:RUNS[run].tables]:
        lines += ["", f"### {table.title[0].upper()}{table.title[1:]}", "", *markdown(table)]
    notes = against_report.remarks(whole)
    if notes:
        lines += ["", "### Gaps", "", *(f"* {line}" for line in notes)]
    return "\n".join(lines) + "\n"


def means(rows: list[dict]) -> str:
    def mean(rows: list[dict]) -> str:
        value = against_report.mean_speed(rows)
        return "none" if value is None else f"{value:.2f}"

    without = [row for row in rows if row["model"] not in TRANSFORMERS]
    return (f"Geometric mean of the speeds: {mean(rows)}"
            + (f"; without the transformers: {mean(without)}." if len(without) < len(rows) else "."))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="?", type=Path, help="folder that benchmarks/models.py wrote")
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows to measure (default: all)")
    parser.add_argument("--run", action="append", choices=RUNS, help="what to measure (default: all)")
    parser.add_argument("--python", action="append", default=[], help="as in megcc bench")
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_intermixed_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if args.models:
        for run in args.run or RUNS:
            for name in args.names or NAMES:
                if name in RUNS[run].names:
                    bench(args.models / f"{name}.onnx", run, args)
    PAGE.write_text(page())
    README.write_text(readme(README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
