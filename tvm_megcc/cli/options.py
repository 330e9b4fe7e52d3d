# SPDX-License-Identifier: Apache-2.0
"""The command line: verbs and their options."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..codegen.packages.systems import SYSTEMS
from ..deprecated import FLAGS
from ..options import ACTIVATIONS, MEMORY, CompileOptions, each_option
from ..version import VERSION
from . import verbs as run

if TYPE_CHECKING:
    _Verbs = argparse._SubParsersAction["_Verb"]


class _Verb(argparse.ArgumentParser):
    """The parser of a verb. It reports errors itself, since argparse would show the usage of the whole command."""

    def parse_known_args(self, args=None, namespace=None):
        found, unknown = super().parse_known_args(self._renamed(args), namespace)
        if unknown:
            similar = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, 1)
            self.error(f"unrecognized argument '{unknown[0]}'" + (f", did you mean {similar[0]}?" if similar else ""))
        return found, unknown

    def _renamed(self, args):
        """Replaces deprecated names of this verb's options by the new ones, with a warning."""
        renamed = []
        for word in sys.argv[1:] if args is None else args:
            old, *value = word.split("=", 1)
            new = FLAGS.get(old, "")
            if new in self._option_string_actions:
                print(f"megcc: {old} is deprecated and will be removed in the next release: use {new}", file=sys.stderr)
                word = "=".join([new, *value])
            renamed.append(word)
        return renamed

    def error(self, message: str) -> NoReturn:
        super().error(message + self._choices(message))

    def _choices(self, message: str) -> str:
        """Adds the possible values to argparse's message, and the one that was probably meant."""
        given = re.search(r"invalid choice: '([^']*)'", message)
        for action in self._actions:
            names = [*action.option_strings, action.metavar or action.dest] if action.choices else []
            if any(isinstance(name, str) and re.search(rf"\b{name}(?![\w-])" if name[0] != "-" else
                                                       rf"{name}(?![\w-])", message) for name in names):
                choices = [str(choice) for choice in action.choices or ()]
                if given is None:
                    return f" (one of {', '.join(choices)})" if "required" in message else ""
                similar = difflib.get_close_matches(given[1].lower(), choices, 1) or [
                    choice for choice in choices if choice[:3] == given[1].lower()[:3]]
                return f", did you mean {similar[0]}?" if similar else ""
        return ""


def command_line() -> argparse.ArgumentParser:
    """Returns the parser of the command with all its verbs."""
    parser = _Verb(
        prog="megcc", description="Neural networks to C: a model in, a folder of C out.",
        epilog="MODEL is an ONNX file, a TFLite file (.tflite) or, through TVM, a saved program of torch.export "
               "(.pt2). PATH is a model, a folder that 'megcc compile' wrote, or the .megcc file in it.")
    parser.add_argument("--version", action="version", version=f"megcc {VERSION}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Verb)
    for add in (_demo, _compile, _build, _run, _bench, _tune, _compare, _verify, _inspect, _explain, _report, _quantize,
                _export, _language_models, _programs, _keygen, _pack, _unpack, _cv, _list):
        add(verbs)
    return parser


def _demo(verbs: _Verbs) -> None:
    verb = _verb(verbs, "demo", run.demo_, "compile, build and run a small network that comes with this package")
    verb.add_argument("-o", "--output", metavar="DIR", default="demo_megcc",
                      help="folder to write (default: demo_megcc)")
    _target_option(verb, "CPU to compile for (default: native)", "native")


def _compile(verbs: _Verbs) -> None:
    verb = _verb(verbs, "compile", run.compile_, "compile models into a folder of C")
    group = verb.add_mutually_exclusive_group(required=True)
    group.add_argument("model", nargs="*", metavar="MODEL", default=[],
                       help="several models share one folder, runtime and kernels")
    group.add_argument("--config", metavar="FILE", help="several models with options of their own, as JSON or TOML "
                                                        "(docs/command.md)")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_megcc)")
    verb.add_argument("--name", metavar="A,B",
                      help="prefix of everything generated, one a model (default: the file's name)")
    weights_options = verb.add_mutually_exclusive_group()
    weights_options.add_argument("--embed", action="store_true",
                                 help="the model as a constant array in C instead of a file: --weights text")
    weights_options.add_argument(
        "--weights", choices=("file", "text", "incbin"),
        help="the model as a file that the program opens (the default), as text of C, or as a file that "
             "the assembler takes in (.incbin, #embed): fast to compile, for gcc and clang")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--dump", metavar="DIR", help="write the graph or plan after every stage of the compiler")
    verb.add_argument("--same-code-as", metavar="DIR", help="fail if the C code is not that of this folder")
    _target_option(verb, "CPUs to compile for, such as native,arm64 ('megcc list targets')", "native")
    _compile_options(verb)


def _build(verbs: _Verbs) -> None:
    verb = _verb(verbs, "build", run.build_, "build a generated folder with a C compiler")
    verb.add_argument("path", metavar="PATH")
    _model_option(verb)
    _target_option(verb, "one of the folder's targets (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler, with arguments (default: found by its usual names)")
    verb.add_argument("--flash", type=_bytes, metavar="SIZE", dest="board_flash",
                      help="flash of a microcontroller, such as 256K")
    verb.add_argument("--ram", type=_bytes, metavar="SIZE", dest="board_ram",
                      help="RAM of a microcontroller, such as 64K")
    _compile_options(verb, limits=False)


def _run(verbs: _Verbs) -> None:
    verb = _verb(verbs, "run", run.run_, "run a model, here or in an emulator")
    verb.add_argument("path", metavar="PATH")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--outputs", metavar="NPZ", help="write the outputs")
    verb.add_argument("--shape", metavar="SHAPES", help='shapes of dynamic inputs, or sizes of dimensions: '
                                                          '"data=(1,3,224,224)", "batch=1;sequence=16"')
    verb.add_argument("--sequence", action="store_true",
                      help="both files have an additional first axis: the steps of a stream")
    verb.add_argument("--float", action="store_true", dest="real",
                      help="take and give quantised inputs and outputs as float32")
    verb.add_argument("--repeat", type=int, default=10, metavar="N", help="runs to time (default: 10)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    verb.add_argument("--profile", action="store_true", help="show the time of each kernel call")
    _model_option(verb)
    _target_option(verb, "target to run (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)


def _bench(verbs: _Verbs) -> None:
    verb = _verb(verbs, "bench", run.bench_, "time a model, in total and by operator, here or on a device; or compare "
                                         "it with other inference engines")
    verb.add_argument("path", metavar="PATH", nargs="+", help="one path; with --against any number of ONNX files")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--shape", metavar="SHAPES", help="shapes of dynamic inputs, or sizes of dimensions, as for "
                                                        "'megcc run'")
    verb.add_argument("--repeat", type=_count, metavar="N", help="runs to time (default: about a second of them)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    verb.add_argument("--trace", metavar="FILE", help="also write the calls one after the other as a trace, for "
                                                      "Perfetto and chrome://tracing")
    verb.add_argument("--blocks", type=_count, metavar="N",
                      help="time each of N runs on one processor, in a real-time class where that is permitted: the "
                           "worst over the median")
    group = verb.add_argument_group("comparison with other engines (docs/tuning.md)")
    group.add_argument("--against", metavar="A,B", help="some of onnxruntime, openvino, litert, ncnn, mnn, tvm: "
                       "alternately in one run, --threads N each; prints times, errors, memory, start-up")
    group.add_argument("--rounds", type=_count, default=9, metavar="N",
                       help="bursts of each engine; reports medians (default: 9)")
    group.add_argument("--processor", type=int, metavar="N",
                       help="first processor that engines are bound to (default: the first there is); with --blocks "
                            "the only one (default: the last)")
    group.add_argument("--python", metavar="[ENGINE=]PATH", action="append",
                       help="Python that has the engines, or one of them (default: $MEGCC_BENCH_PYTHON, else this one)")
    _model_option(verb)
    _target_option(verb, "target to run (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)


def _tune(verbs: _Verbs) -> None:
    verb = _verb(verbs, "tune", run.tune_, "time candidate kernels of a model, here or on devices, into a log")
    verb.add_argument("model", nargs="+", metavar="MODEL", help="models")
    verb.add_argument("--trials", type=_count, metavar="N",
                      help="at most N candidates of a call, the most promising ones first (default: all)")
    _target_option(verb, "which CPUs the code is for (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)


def _compare(verbs: _Verbs) -> None:
    verb = _verb(verbs, "compare", run.compare_, "compare the built C with ONNX Runtime, LiteRT or the numpy reference")
    verb.add_argument("path", metavar="MODEL", help="a model")
    verb.add_argument("--folder", metavar="DIR", help="the generated folder (default: compile it now)")
    _model_option(verb)
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--shape", metavar="SHAPES", help='shapes of dynamic inputs, or sizes of dimensions: '
                                                          '"data=(1,3,224,224)", "batch=1;sequence=16"')
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
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    _target_option(verb, "which target (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _compile_options(verb)


def _verify(verbs: _Verbs) -> None:
    verb = _verb(verbs, "verify", run.verify_, "check that every target computes the recorded bits")
    verb.add_argument("path", metavar="PATH")
    _model_option(verb)
    verb.add_argument("--record", action="store_true", help="write the hashes into the folder's manifest")
    _target_option(verb, "which targets (default: all of the folder's that run here)")
    verb.add_argument("--cc", help="the C compiler")
    _compile_options(verb)


def _inspect(verbs: _Verbs) -> None:
    verb = _verb(verbs, "inspect", run.inspect_, "show the content of a generated folder")
    verb.add_argument("path", metavar="PATH")
    verb.add_argument("--size", action="store_true", help="show bytes of code and constants, built for the target")
    _target_option(verb, "which target, for --size (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler, for --size")
    _compile_options(verb)


def _explain(verbs: _Verbs) -> None:
    verb = _verb(verbs, "explain", run.explain_, "show which kernel computes each operator, and why")
    verb.add_argument("path", metavar="MODEL", help="a model")
    _target_option(verb, "CPU to compile for (default: native)", "native")
    _compile_options(verb)


def _report(verbs: _Verbs) -> None:
    verb = _verb(verbs, "report", run.report_, "write a self-contained HTML page: sizes, time, memory, graph, kernels")
    verb.add_argument("path", metavar="MODEL", help="a model")
    verb.add_argument("-o", "--output", metavar="HTML", help="the page to write (default: NAME_report.html)")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    _target_option(verb, "CPU to compile for (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _compile_options(verb)


def _quantize(verbs: _Verbs) -> None:
    verb = _verb(verbs, "quantize", run.quantize_, "quantise a float ONNX model to int8 by calibration, and report "
                                                   "accuracy and speed")
    verb.add_argument("path", metavar="MODEL", help="a float ONNX file")
    verb.add_argument("--calibrate", required=True, metavar="NPZ|DIR",
                      help="samples: arrays by input name, or a folder of images (with --input)")
    verb.add_argument("-o", "--output", metavar="ONNX", help="the model to write (default: NAME_int8.onnx)")
    verb.add_argument("--method", choices=("auto", "minmax", "percentile", "entropy"), default="auto",
                      help="how ranges are calibrated (default: auto, the method with the least noise on the samples)")
    verb.add_argument("--keep-float", metavar="A,B", action="append", default=[],
                      help="nodes, or op_types such as Gemm, that stay float")
    verb.add_argument("--min-snr", dest="enough", type=float, default=20.0, metavar="DB",
                      help="signal-to-noise ratio of the outputs; below it the layers with the largest error stay "
                           "float, at most a quarter of them (default: 20)")
    verb.add_argument("--evaluate", metavar="NPZ|DIR", help="other samples for the accuracy; 'labels' in either .npz "
                                                            "file are the classes")
    verb.add_argument("--samples", type=_count, default=128, metavar="N", help="samples to use (default: 128)")
    verb.add_argument("--no-time", action="store_true", help="do not compile and time both models")
    verb.add_argument("--input", metavar="INPUT=WORD,…", action="append", default=[],
                      help="format of the samples, as for 'megcc compile'")
    verb.add_argument("--dim", metavar="NAME=SIZE", action="append", default=[],
                      help="size of a dimension that the model leaves open, as for 'megcc compile'")
    _target_option(verb, "CPU to time both models on (default: native)", "native")


def _export(verbs: _Verbs) -> None:
    verb = _verb(verbs, "export", run.export_, "write a model as a package of a build system or a language: Zephyr, "
                                               "ESP-IDF, Arduino, PlatformIO, CMSIS-Pack, STM32Cube, CMake, Meson, "
                                               "Rust, C++, Go, Python, npm")
    verb.add_argument("path", metavar="PATH")
    verb.add_argument("--for", dest="system", required=True, choices=SYSTEMS, metavar="SYSTEM", help=", ".join(SYSTEMS))
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_SYSTEM)")
    verb.add_argument("--name", help="name of the package and of a model that is compiled for it (default: the file's)")
    verb.add_argument("--separate-weights", dest="separate_weights", action="store_true",
                      help="npm: write the weights to a separate file")
    verb.add_argument("--weights", choices=("text", "incbin"),
                      help="embed the compiled model as C text, or as a file that the assembler includes "
                           "(default: incbin above 1 MB where the system's compilers are gcc and clang)")
    verb.add_argument("--cc", help="the C compiler, if something is built")
    verb.add_argument("--package-version", default="1.0.0", metavar="X.Y.Z", help="(default: 1.0.0)")
    verb.add_argument("--url", default="", help="home page of the package, for registries that require it")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    _target_option(verb, "CPU to compile a model for, such as cortex-m4 (npm: wasm32-simd128)")
    _compile_options(verb)


def _keygen(verbs: _Verbs) -> None:
    verb = _verb(verbs, "keygen", run.keygen_, "make a key pair that signs and verifies containers")
    verb.add_argument("name", metavar="NAME", help="writes NAME.pem, NAME.pub.pem and NAME_key.h")


def _pack(verbs: _Verbs) -> None:
    verb = _verb(verbs, "pack", run.pack_, "sign a container: an update for devices (docs/updates.md)")
    verb.add_argument("path", metavar="PATH", help="a folder that 'megcc compile' wrote, or a .megcc file")
    verb.add_argument("--key", required=True, metavar="PEM", help="the private key from 'megcc keygen'")
    verb.add_argument("--counter", required=True, type=int, metavar="N",
                      help="version for rollback protection: the larger number is newer")
    verb.add_argument("--product", metavar="NAME", help="product name, which devices check (default: the model's "
                                                        "name)")
    verb.add_argument("-o", "--output", metavar="FILE", help="file to write (default: NAME.signed)")
    _model_option(verb)


def _unpack(verbs: _Verbs) -> None:
    verb = _verb(verbs, "unpack", run.unpack_, "verify the signature of a signed container and write the container")
    verb.add_argument("path", metavar="FILE", help="a file from 'megcc pack'")
    verb.add_argument("--key", required=True, metavar="PEM", help="the public key, or the private one")
    verb.add_argument("--product", metavar="NAME", help="required product name (default: any)")
    verb.add_argument("-o", "--output", metavar="FILE", help="file to write (default: NAME.megcc)")


def _cv(verbs: _Verbs) -> None:
    verb = _verb(verbs, "cv", run.cv_, "write image operators as C functions: resize, rotate, warp, colours, blur")
    verb.add_argument("-o", "--output", metavar="DIR", default="cv", help="folder to write (default: cv)")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    _target_option(verb, "CPU to write them for, such as arm64 (default: native)", "native")


def _list(verbs: _Verbs) -> None:
    verb = _verb(verbs, "list", run.list_, "list targets, kernels or operators")
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
    group.add_argument("--network", type=_bytes, metavar="BYTES",
                       help="weights of the whole network, such as 14M: they decide which cache holds the operator's "
                            "weights (default: so many that weights larger than L2 are in memory)")
    group.add_argument("--cc", help="the C compiler")
    _target_option(group, "CPU to compile for (default: native)", "native")


def _language_models(verbs: _Verbs) -> None:
    """`megcc lm` and its verbs."""
    from . import lm

    steps = verbs.add_parser("lm", help="language models: compile a GGUF file to C with its tokenizer, and generate "
                                        "text").add_subparsers(required=True, metavar="VERB", parser_class=_Verb)
    verb = _verb(steps, "compile", lm.compile_, "compile a language model into a folder of C, its tokenizer beside it")
    verb.add_argument("model", metavar="GGUF", help="a GGUF file")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_megcc)")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--context", type=_count, default=0, metavar="N",
                      help="context length in tokens (default: the trained length, 2048 at most)")
    verb.add_argument("--prompt", type=_count, default=0, metavar="N",
                      help="most tokens of a prompt that a run reads (default: 64, the context at most)")
    verb.add_argument("--activations", choices=ACTIVATIONS, default="model",
                      help="dtype of activations in products with quantised weights: int8, float32, or model, that of "
                           "the file format: int8 (default: model)")
    verb.add_argument("--threads", type=_count, default=1, metavar="N",
                      help="plan workspace for N workers (default: 1)")
    _target_option(verb, "CPUs to compile for, such as native,arm64 ('megcc list targets')", "native")
    verb = _verb(steps, "tokenizer", lm.tokenizer_, "write the tokenizer of a file as C, without a network")
    verb.add_argument("path", metavar="FILE", help="tokenizer.json, tokenizer.model, a folder with one, or a GGUF file")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_tokenizer)")
    verb.add_argument("--name", metavar="NAME", help="name in C (default: that of the file or its folder)")
    verb = _verb(steps, "embed", lm.embed_, "print the embeddings of strings, as lines of JSON, or write C")
    verb.add_argument("path", metavar="DIR", help="a folder with tokenizer.json and model.onnx")
    verb.add_argument("text", metavar="TEXT", nargs="*", help="strings (default: lines of stdin)")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder of C to write instead, with NAME_embed()")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--pooling", default="", metavar="WAY",
                      help="mean, cls or max of the tokens (default: that of 1_Pooling/config.json, or mean)")
    verb.add_argument("--no-normalize", action="store_true",
                      help="leave the length of embeddings (default: 1, unless modules.json has no Normalize)")
    verb.add_argument("--threads", type=_count, default=1, metavar="N", help="workers (default: 1)")
    _target_option(verb, "CPU to compile for (default: native)", "native")
    verb = _verb(steps, "generate", lm.generate_, "continue a text")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("text", metavar="TEXT")
    verb.add_argument("--chat", action="store_true", help="put the text into the model's chat template, as a question")
    verb.add_argument("--stop", action="append", default=[], metavar="TEXT", help="string that ends the answer")
    verb.add_argument("--log-probabilities", action="store_true",
                      help="print a line of JSON for each token, with its log-probability, instead of the text")
    _sampling_options(verb)
    verb = _verb(steps, "chat", lm.chat_, "hold a conversation in the terminal")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("--system", metavar="TEXT", help="system prompt")
    _sampling_options(verb)
    verb = _verb(steps, "bench", lm.bench_, "measure tokens a second, memory and load time on this machine")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("--threads", type=_count, action="append", metavar="N",
                      help="workers of a run; may be given several times (default: those it was compiled for)")
    verb.add_argument("--prompt", type=_count, default=128, metavar="N", help="tokens of a prompt (default: 128)")
    verb.add_argument("--max-tokens", type=_count, default=64, metavar="N", help="tokens to generate (default: 64)")
    verb.add_argument("--repeats", type=_count, default=3, metavar="N",
                      help="sequences; figures are medians (default: 3)")
    _target_option(verb, "one of the folder's targets (default: one that runs here)")


def _programs(verbs: _Verbs) -> None:
    """`megcc program` and its verbs."""
    from . import program

    steps = verbs.add_parser("program", help="programs of several networks: compile their description to one folder "
                                             "and one function, run it").add_subparsers(
        required=True, metavar="VERB", parser_class=_Verb)
    verb = _verb(steps, "compile", program.compile_, "compile a description into one folder of C")
    verb.add_argument("description", metavar="TOML", help="a description, or the name of one of 'megcc program list'")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_megcc)")
    verb.add_argument("--models", metavar="DIR",
                      help="folder that paths of networks are relative to (default: that of the description)")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    _target_option(verb, "CPU to compile for ('megcc list targets')", "native")
    verb = _verb(steps, "run", program.run_, "run a program on this machine")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc program compile' wrote")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--outputs", metavar="NPZ", help="write the outputs")
    verb.add_argument("--sequence", action="store_true",
                      help="both files have an additional first axis: the runs one after the other")
    verb.add_argument("--repeat", type=int, default=10, metavar="N", help="runs to time (default: 10)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    verb.add_argument("--cc", help="the C compiler")
    _target_option(verb, "target of the folder (default: the one it was compiled for)")
    _verb(steps, "list", program.list_, "list the descriptions that ship with the package")


def _sampling_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--threads", type=_count, metavar="N", help="workers (default: those it was compiled for)")
    verb.add_argument("--max-tokens", type=_count, default=256, metavar="N", help="tokens of an answer (default: 256)")
    verb.add_argument("--temperature", type=float, default=0.0, metavar="T",
                      help="0 for the likeliest token each time (default: 0)")
    verb.add_argument("--top-k", type=int, default=0, metavar="N", help="only the N likeliest tokens (default: all)")
    verb.add_argument("--top-p", type=float, default=1.0, metavar="P",
                      help="only the likeliest tokens that have this probability together (default: 1)")
    verb.add_argument("--min-p", type=float, default=0.0, metavar="P",
                      help="only tokens that have this part of the likeliest one's probability (default: 0)")
    verb.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R",
                      help="divides logits of tokens that occurred (default: 1)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    _target_option(verb, "one of the folder's targets (default: one that runs here)")


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def _bytes(text: str) -> int:
    """Parses a number of bytes such as `256K`."""
    from ..context import bytes_of

    count = bytes_of(text)
    if count is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes, such as 4096, 256K or 100M")
    return count


def _verb(verbs: _Verbs, name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    verb.set_defaults(run=run)
    verb.add_argument("--json", action="store_true", help="print the report as JSON")
    verb.add_argument("-q", "--quiet", action="store_true", help="print neither report nor progress")
    verb.add_argument("-v", "--verbose", action="store_true",
                      help="print every step and tracebacks of unexpected errors")
    return verb


def _target_option(verb: argparse.ArgumentParser | argparse._ArgumentGroup, about: str, default: str = "") -> None:
    verb.add_argument("--target", default=default, help=about)


def _model_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--model", metavar="NAME", dest="which", help="name of the model, if the folder has several")


def _rpc_options(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("on a device")
    group.add_argument("--rpc", metavar="HOST:PORT", help="TVM's RPC tracker that the device is registered at")
    group.add_argument("--key", metavar="KEY", help="name under which it is registered")


#: The attribute of a compile option in the parsed command line, which cannot collide with other options.
_COMPILING = "compiling {}"
#: Kind of option -> argparse's arguments for it.
_KINDS: dict[str, dict] = {"string": {}, "path": {}, "strings": {"action": "append"}, "paths": {"action": "append"},
                           "flag": {"action": "store_true"}, "count": {"type": int}, "bytes": {"type": _bytes}}


def _compile_options(verb: argparse.ArgumentParser, limits: bool = True) -> None:
    """Adds the options that change the generated code; used wherever a model may be given. limits: with those of
    memory."""
    verb.set_defaults(compiles=True)
    group = verb.add_argument_group("compiling")
    for name, option in each_option():
        if limits or name not in MEMORY:
            known: dict[str, Any] = {"choices": option.kind} if isinstance(option.kind, tuple) else _KINDS[option.kind]
            shown: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
            group.add_argument(option.flag, dest=_COMPILING.format(name), default=argparse.SUPPRESS, help=option.help,
                               **known, **shown)


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """Returns the compile options of a command line.

    Raises:
        MegccError: for an invalid value.
    """
    given = {name: vars(args)[key] for name, _ in each_option() if (key := _COMPILING.format(name)) in args}
    return CompileOptions(**given)
