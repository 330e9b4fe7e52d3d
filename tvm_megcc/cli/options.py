# SPDX-License-Identifier: Apache-2.0
"""The command line: verbs and their options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..codegen.packages.systems import SYSTEMS
from ..version import VERSION
from . import verbs as run
from .lm_options import language_models
from .parser import (
    Verb,
    add_compiler,
    add_compiling,
    add_feeds,
    add_model,
    add_output,
    add_path,
    add_rpc,
    add_shape,
    add_target,
    add_verb,
    byte_count,
    count,
)
from .program_options import programs

if TYPE_CHECKING:
    from .parser import Verbs


def command_line() -> argparse.ArgumentParser:
    """Returns the parser of the command with all its verbs."""
    parser = Verb(
        prog="megcc", description="Neural networks to C: a model in, a folder of C out.",
        epilog="MODEL is an ONNX, TFLite (.tflite) or GGUF file or, through TVM, a saved program of torch.export "
               "(.pt2). PATH is a model, a folder that 'megcc compile' wrote, or the .megcc file in it.")
    parser.add_argument("--version", action="version", version=f"megcc {VERSION}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=Verb)
    for add in (_demo, _compile, _build, _run, _bench, _tune, _compare, _verify, _inspect, _evidence, _explain, _report,
                _quantize, _export, language_models, programs, _keygen, _pack, _unpack, _cv, _list):
        add(verbs)
    return parser


def _demo(verbs: Verbs) -> None:
    verb = add_verb(verbs, "demo", run.demo_, "compile, build and run a small network that comes with this package")
    verb.add_argument("-o", "--output", metavar="DIR", default="demo_megcc",
                      help="folder to write (default: demo_megcc)")
    add_target(verb, "CPU to compile for (default: native)", "native")


def _compile(verbs: Verbs) -> None:
    verb = add_verb(verbs, "compile", run.compile_, "compile models into a folder of C")
    group = verb.add_mutually_exclusive_group(required=True)
    group.add_argument("model", nargs="*", metavar="MODEL", default=[],
                       help="ONNX, TFLite, GGUF or .pt2 files; several share one folder, runtime and kernels")
    group.add_argument("--config", metavar="FILE", help="several models with options of their own, as JSON or TOML "
                                                        "(docs/command.md)")
    add_output(verb, "NAME_megcc")
    verb.add_argument("--name", metavar="A,B",
                      help="prefix of all generated names, one for each model (default: the file's name)")
    weights_options = verb.add_mutually_exclusive_group()
    weights_options.add_argument("--embed", action="store_true",
                                 help="store the compiled model as a constant array in C: --weights text")
    weights_options.add_argument(
        "--weights", choices=("file", "text", "incbin"),
        help="how the compiled model is stored: as a file that the program opens (the default), as a C array, or as a "
             "file that the assembler includes (.incbin, #embed), which compiles fast and needs gcc or clang")
    verb.add_argument("--dump", metavar="DIR", help="write the graph or plan after every stage of the compiler")
    verb.add_argument("--same-code-as", metavar="DIR",
                      help="fail if the C code differs from that of this folder, since firmware would be built again")
    add_target(verb, "CPUs to compile for, such as native,arm64 ('megcc list targets')", "native")
    add_compiling(verb)


def _build(verbs: Verbs) -> None:
    verb = add_verb(verbs, "build", run.build_, "build a generated folder with a C compiler")
    add_path(verb)
    add_model(verb)
    add_target(verb, "one of the folder's targets (default: one that runs here)")
    add_compiler(verb, "the C compiler, with arguments (default: found by its usual names)")
    verb.add_argument("--flash", type=byte_count, metavar="SIZE", dest="board_flash",
                      help="flash of a microcontroller, such as 256K")
    verb.add_argument("--ram", type=byte_count, metavar="SIZE", dest="board_ram",
                      help="RAM of a microcontroller, such as 64K")
    add_compiling(verb, memory_limits=False)


def _run(verbs: Verbs) -> None:
    verb = add_verb(verbs, "run", run.run_, "run a model, here or in an emulator")
    add_path(verb)
    add_feeds(verb)
    verb.add_argument("--outputs", metavar="NPZ", help="write the outputs")
    add_shape(verb)
    verb.add_argument("--sequence", action="store_true",
                      help="both files have an additional first axis: the steps of a stream")
    verb.add_argument("--float", action="store_true", dest="as_float",
                      help="read quantised inputs and write quantised outputs as float32")
    verb.add_argument("--repeat", type=int, default=10, metavar="N", help="runs to time (default: 10)")
    verb.add_argument("--times", action="store_true", help="show the time of each kernel call")
    add_model(verb)
    add_target(verb, "target to run (default: one that runs here)")
    add_compiler(verb)
    add_rpc(verb)
    add_compiling(verb)


def _bench(verbs: Verbs) -> None:
    verb = add_verb(verbs, "bench", run.bench_, "time a model, in total and by operator, here or on a device; or "
                                            "compare it with other inference engines")
    verb.add_argument("path", metavar="PATH", nargs="+", help="a model, a compiled folder or the .megcc "
                                                                 "file in it; with --against any number of ONNX files")
    add_feeds(verb)
    add_shape(verb)
    verb.add_argument("--repeat", type=count, metavar="N", help="runs to time (default: about a second of them)")
    verb.add_argument("--trace", metavar="FILE", help="also write the calls one after the other as a trace, for "
                                                      "Perfetto and chrome://tracing")
    verb.add_argument("--blocks", type=count, metavar="N",
                      help="run N times on one processor, in a real-time scheduling class if permitted, and report the "
                           "slowest run relative to the median")
    group = verb.add_argument_group("on a microcontroller (docs/microcontrollers.md)")
    group.add_argument("--chip", metavar="NAME", help="also model waiting for the flash of a chip: stm32l4r5, "
                                                      "stm32u575, stm32h7a3, nrf5340 or rp2350")
    group.add_argument("--fast-code", type=byte_count, metavar="SIZE",
                       help="with --chip: put the functions that wait longest, of so many bytes, into memory without "
                            "wait states, and say what it gains")
    group = verb.add_argument_group("comparison with other engines (docs/tuning.md)")
    group.add_argument("--against", metavar="A,B", help="engines to time in turns with ours, on --threads N each: "
                       "onnxruntime, openvino, litert, ncnn, mnn, tvm, or NAME=FILE.py; reports times, errors, memory "
                       "and start-up")
    group.add_argument("--rounds", type=count, default=9, metavar="N",
                       help="bursts of each engine; reports medians (default: 9)")
    group.add_argument("--processor", type=int, metavar="N",
                       help="first processor that engines are bound to (default: the first there is); with --blocks "
                            "the only one (default: the last)")
    group.add_argument("--python", metavar="[ENGINE=]PATH", action="append",
                       help="Python that has the engines, or one of them (default: $MEGCC_BENCH_PYTHON, else this one)")
    add_model(verb)
    add_target(verb, "target to run (default: one that runs here)")
    add_compiler(verb)
    add_rpc(verb)
    add_compiling(verb)


def _tune(verbs: Verbs) -> None:
    verb = add_verb(verbs, "tune", run.tune_, "time candidate kernels of a model, here or on devices, into a log")
    verb.add_argument("model", nargs="+", metavar="MODEL", help="ONNX, TFLite or .pt2 files")
    verb.add_argument("--trials", type=count, metavar="N",
                      help="at most N candidates of a call, the most promising ones first (default: all)")
    add_target(verb, "CPUs to compile for (default: native)", "native")
    add_compiler(verb)
    add_rpc(verb)
    add_compiling(verb)


def _compare(verbs: Verbs) -> None:
    verb = add_verb(verbs, "compare", run.compare_,
                    "compare the built C with ONNX Runtime, LiteRT or the numpy reference")
    verb.add_argument("path", metavar="MODEL", help="an ONNX, TFLite or .pt2 file")
    verb.add_argument("--folder", metavar="DIR", help="the generated folder (default: compile it now)")
    add_model(verb)
    add_feeds(verb)
    add_shape(verb)
    verb.add_argument("--value", metavar="INPUT=NUMBER,…", action="append", default=[],
                      help="value of an input instead of random numbers: one number for all elements, or one for each")
    verb.add_argument("--layers", action="store_true", help="find the first layer that differs")
    verb.add_argument("--reference", choices=("onnxruntime", "litert", "numpy"),
                      help="reference to compare with (default: onnxruntime, for TFLite files litert, if installed)")
    verb.add_argument("--tolerance", type=float, metavar="T",
                      help="largest difference, relative to the output's largest magnitude (default: 1e-4; of float16 "
                           "2^-10, with --half 2^-5)")
    verb.add_argument("--allow", action="store_true",
                      help="do not fail if an output is empty, all NaN or constant")
    add_target(verb, "target to compile for and run (default: native)", "native")
    add_compiler(verb)
    add_compiling(verb)


def _verify(verbs: Verbs) -> None:
    verb = add_verb(verbs, "verify", run.verify_, "compare a hash of a model's outputs with the recorded one, on every "
                                               "target of a folder")
    add_path(verb)
    add_model(verb)
    verb.add_argument("--record", action="store_true", help="write the hashes into the folder's manifest")
    add_target(verb, "targets to run (default: all of the folder's that run here)")
    add_compiler(verb)
    add_compiling(verb)


def _inspect(verbs: Verbs) -> None:
    verb = add_verb(verbs, "inspect", run.inspect_, "show the content of a generated folder")
    add_path(verb)
    verb.add_argument("--size", action="store_true", help="show bytes of code and constants, built for the target")
    add_target(verb, "target to build for --size (default: one that runs here)")
    add_compiler(verb, "the C compiler, for --size")
    add_compiling(verb)


def _evidence(verbs: Verbs) -> None:
    verb = add_verb(verbs, "evidence", run.evidence_, "show what holds of the C of a folder of the safety profile: "
                                                      "properties, bounds, measurements, and the trace from operators "
                                                      "to functions")
    verb.add_argument("path", metavar="FOLDER", help="a folder that was compiled with --profile safety")
    add_output(verb, "evidence", is_path=True)
    verb.add_argument("--runs", type=count, default=3, metavar="N",
                      help="runs with random inputs that the emulator counts, besides those with the least and the "
                           "greatest numbers (default: 3)")
    verb.add_argument("--value-analysis", type=count, nargs="?", const=3600, default=0, metavar="SECONDS",
                      help="show with Frama-C that the C has no undefined behaviour for any inputs; for folders with "
                           "--target c. SECONDS: of an analysis, at most (default: 3600)")
    add_model(verb)
    add_target(verb, "one of the folder's targets (default: the first)")
    add_compiler(verb, "a gcc for the target (default: found by its usual names)")


def _explain(verbs: Verbs) -> None:
    verb = add_verb(verbs, "explain", run.explain_, "show which kernel computes each operator, and why")
    verb.add_argument("path", metavar="MODEL", help="an ONNX, TFLite or .pt2 file")
    add_target(verb, "CPU to compile for (default: native)", "native")
    add_compiling(verb)


def _report(verbs: Verbs) -> None:
    verb = add_verb(verbs, "report", run.report_,
                    "write a self-contained HTML page: sizes, time, memory, graph, kernels")
    verb.add_argument("path", metavar="MODEL", help="an ONNX, TFLite or .pt2 file")
    verb.add_argument("-o", "--output", metavar="HTML", help="the page to write (default: NAME_report.html)")
    add_feeds(verb)
    add_target(verb, "CPU to compile for (default: native)", "native")
    add_compiler(verb)
    add_compiling(verb)


def _quantize(verbs: Verbs) -> None:
    verb = add_verb(verbs, "quantize", run.quantize_, "quantise a float ONNX model to int8 by calibration, and report "
                                                   "accuracy and speed")
    verb.add_argument("path", metavar="MODEL", help="a float ONNX file")
    verb.add_argument("--calibrate", required=True, metavar="NPZ|DIR",
                      help="samples: arrays by input name, or a folder of images (with --input)")
    verb.add_argument("-o", "--output", metavar="ONNX", help="the model to write (default: NAME_int8.onnx)")
    verb.add_argument("--method", choices=("auto", "minmax", "percentile", "entropy"), default="auto",
                      help="how ranges are calibrated (default: auto, the method with the least noise on the samples)")
    verb.add_argument("--keep-float", metavar="A,B", action="append", default=[],
                      help="nodes, or op_types such as Gemm, that stay float")
    verb.add_argument("--min-snr", type=float, default=20.0, metavar="DB",
                      help="signal-to-noise ratio of the outputs; below it the layers with the largest error stay "
                           "float, at most a quarter of them (default: 20)")
    verb.add_argument("--evaluate", metavar="NPZ|DIR", help="other samples for the accuracy; 'labels' in either .npz "
                                                            "file are the classes")
    verb.add_argument("--samples", type=count, default=128, metavar="N", help="samples to use (default: 128)")
    verb.add_argument("--no-time", action="store_true", help="do not compile and time both models")
    verb.add_argument("--input", metavar="INPUT=WORD,…", action="append", default=[],
                      help="format of the samples, as for 'megcc compile'")
    verb.add_argument("--dim", metavar="NAME=SIZE", action="append", default=[],
                      help="size of a dimension that the model leaves open, as for 'megcc compile'")
    add_target(verb, "CPU to time both models on (default: native)", "native")


def _export(verbs: Verbs) -> None:
    verb = add_verb(verbs, "export", run.export_, "write a model as a package for a build system, a language or a "
                                               "mobile system")
    add_path(verb)
    verb.add_argument("--for", dest="system", required=True, choices=SYSTEMS, metavar="SYSTEM", help=", ".join(SYSTEMS))
    add_output(verb, "NAME_SYSTEM")
    verb.add_argument("--name", help="name of the package and of a model that is compiled for it (default: the file's)")
    verb.add_argument("--separate-weights", dest="separate_weights", action="store_true",
                      help="npm: write the weights to a separate file")
    verb.add_argument("--weights", choices=("text", "incbin"),
                      help="embed the compiled model as C text, or as a file that the assembler includes "
                           "(default: incbin above 1 MB where the system's compilers are gcc and clang)")
    add_compiler(verb, "the C compiler, for packages that contain a library")
    verb.add_argument("--package-version", default="1.0.0", metavar="X.Y.Z", help="(default: 1.0.0)")
    verb.add_argument("--url", default="", help="home page of the package, for registries that require it")
    add_target(verb, "CPU to compile a model for, such as cortex-m4 (npm: wasm32-simd128)")
    add_compiling(verb)


def _keygen(verbs: Verbs) -> None:
    verb = add_verb(verbs, "keygen", run.keygen_, "make a key pair that signs and verifies containers")
    verb.add_argument("name", metavar="NAME", help="writes NAME.pem, NAME.pub.pem and NAME_key.h")


def _pack(verbs: Verbs) -> None:
    verb = add_verb(verbs, "pack", run.pack_, "sign a container: an update for devices (docs/updates.md)")
    verb.add_argument("path", metavar="PATH", help="a folder that 'megcc compile' wrote, or a .megcc file")
    verb.add_argument("--key", required=True, metavar="PEM", help="the private key from 'megcc keygen'")
    verb.add_argument("--counter", required=True, type=int, metavar="N",
                      help="version for rollback protection: the larger number is newer")
    verb.add_argument("--product", metavar="NAME", help="product name, which devices check (default: the model's "
                                                        "name)")
    verb.add_argument("-o", "--output", metavar="FILE", help="file to write (default: NAME.signed)")
    add_model(verb)


def _unpack(verbs: Verbs) -> None:
    verb = add_verb(verbs, "unpack", run.unpack_, "verify the signature of a signed container and write the container")
    verb.add_argument("path", metavar="FILE", help="a file from 'megcc pack'")
    verb.add_argument("--key", required=True, metavar="PEM", help="the public key, or the private one")
    verb.add_argument("--product", metavar="NAME", help="required product name (default: any)")
    verb.add_argument("-o", "--output", metavar="FILE", help="file to write (default: NAME.megcc)")


def _cv(verbs: Verbs) -> None:
    verb = add_verb(verbs, "cv", run.cv_, "write image operators as C functions: resize, rotate, warp, colours, blur")
    add_output(verb, "cv", is_path=True)
    add_target(verb, "CPU to write them for, such as arm64 (default: native)", "native")


def _list(verbs: Verbs) -> None:
    verb = add_verb(verbs, "list", run.list_, "list targets, kernels or operators")
    verb.add_argument("what", choices=("targets", "kernels", "ops", "operators"),
                      help="operators is ops")
    group = verb.add_argument_group("megcc list kernels --op OP: the candidates of one operator")
    group.add_argument("--op", help="the operator ('megcc list ops')")
    group.add_argument("--shape", action="append", default=[], metavar="SHAPE",
                       help="shape of an operand, such as 1x64x56x56 or int64:4; once for each, in order")
    group.add_argument("--weight", action="append", default=[], metavar="SHAPE",
                       help="shape of a constant operand after them, such as 64x64x3x3")
    group.add_argument("--attrs", default="", metavar="A=V;…", help='attributes, such as "pads=1,1,1,1; strides=2,2"')
    group.add_argument("-O", dest="optimize", choices=("speed", "size"), default="speed", help="(default: speed)")
    group.add_argument("--tiles", action="store_true", help="include register tiles that only tuning chooses")
    group.add_argument("--time", action="store_true", help="measure each on this machine, checked against numpy")
    group.add_argument("--network", type=byte_count, metavar="BYTES",
                       help="weights of the whole network, such as 14M: they decide which cache holds the operator's "
                            "weights (default: so many that weights larger than L2 are in memory)")
    add_compiler(group)
    add_target(group, "CPU to compile for (default: native)", "native")
