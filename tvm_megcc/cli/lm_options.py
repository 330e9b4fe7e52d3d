# SPDX-License-Identifier: Apache-2.0
"""`megcc lm` and its verbs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..options import ACTIVATIONS, CACHES
from .parser import Verb, add_output, add_target, add_verb, count

if TYPE_CHECKING:
    from .parser import Verbs


def language_models(verbs: Verbs) -> None:
    """Adds `megcc lm` and its verbs."""
    steps = verbs.add_parser("lm", help="language models: compile a GGUF file or the folder of an ONNX file to C with "
                                        "its tokenizer, and generate text"
                             ).add_subparsers(required=True, metavar="VERB", parser_class=Verb)
    _building_verbs(steps)
    _running_verbs(steps)


def _building_verbs(steps: Verbs) -> None:
    """Adds the verbs that write C: of a model, its tokenizer or an embedding model."""
    from . import lm

    verb = add_verb(steps, "compile", lm.compile_,
                    "compile a language model into a folder of C, its tokenizer beside it")
    verb.add_argument("model", metavar="MODEL", help="a GGUF file, or a folder with an ONNX file and a tokenizer, "
                                                     "of Hugging Face, optimum or ONNX Runtime GenAI")
    add_output(verb, "NAME_megcc")
    verb.add_argument("--context", type=count, default=0, metavar="N",
                      help="context length in tokens (default: the trained length, 2048 at most)")
    verb.add_argument("--prompt", type=count, default=0, metavar="N",
                      help="most tokens of a prompt that a run reads (default: 64, the context at most)")
    verb.add_argument("--sequences", type=count, default=1, metavar="N",
                      help="sequences that a run has new tokens of, each with a KV cache; of GGUF files (default: 1)")
    verb.add_argument("--activations", choices=ACTIVATIONS, default="model",
                      help="dtype of activations that are multiplied by quantised weights: int8, float32, or model, "
                           "which is int8 for GGUF files and for MatMulNBits with accuracy_level 4 (default: model)")
    verb.add_argument("--cache", choices=CACHES, default="float32",
                      help="dtype of the KV cache: float32, float16, or int8 with a scale for each head and token "
                           "(default: float32)")
    verb.add_argument("--sinks", type=count, default=0, metavar="K",
                      help="texts without an end: their first K tokens stay in the KV cache (attention sinks; 4 are "
                           "usual), and new ones replace the oldest others")
    verb.add_argument("--grammar", action="append", default=[], metavar="[NAME=]FILE",
                      help="add a grammar in llama.cpp's GBNF, to which the C program can restrict texts; may be given "
                           "several times (default name: that of the file)")
    verb.add_argument("--json-schema", action="append", default=[], metavar="[NAME=]FILE",
                      help="the same for a JSON schema")
    verb.add_argument("--threads", type=count, default=1, metavar="N",
                      help="plan workspace for N workers (default: 1)")
    verb.add_argument("--reproducible", action="store_true",
                      help="the same bits, and so the same tokens, on every CPU (docs/reproducible.md)")
    verb.add_argument("--region", metavar="NAME=SIZE,…",
                      help="memories of a microcontroller, the fastest first (docs/microcontrollers.md)")
    add_target(verb, "CPUs to compile for, such as native,arm64 ('megcc list targets')", "native")
    verb = add_verb(steps, "tokenizer", lm.tokenizer_, "write the tokenizer of a file as C, without a network")
    verb.add_argument("path", metavar="FILE", help="tokenizer.json, tokenizer.model, a folder with one, or a GGUF file")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_tokenizer)")
    verb.add_argument("--name", metavar="NAME", help="name in C (default: that of the file or its folder)")
    verb = add_verb(steps, "embed", lm.embed_, "print the embeddings of strings, as lines of JSON, or write C")
    verb.add_argument("path", metavar="DIR", help="a folder with tokenizer.json and model.onnx")
    verb.add_argument("text", metavar="TEXT", nargs="*", help="strings (default: lines of stdin)")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder of C to write instead, with NAME_embed()")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--pooling", default="", metavar="WAY",
                      help="mean, cls or max of the tokens (default: that of 1_Pooling/config.json, or mean)")
    verb.add_argument("--no-normalize", action="store_true",
                      help="do not scale embeddings to length 1 (default: scale, unless modules.json has no Normalize)")
    verb.add_argument("--threads", type=count, default=1, metavar="N", help="workers (default: 1)")
    add_target(verb, "CPU to compile for (default: native)", "native")
    _rerank_verb(steps)


def _rerank_verb(steps: Verbs) -> None:
    from . import lm

    verb = add_verb(steps, "rerank", lm.rerank_,
                    "print strings in the order of how well they answer a query, as lines of JSON, or write C")
    verb.add_argument("path", metavar="DIR", help="a folder with tokenizer.json and model.onnx, a cross-encoder")
    verb.add_argument("query", metavar="QUERY", nargs="?", help="the query")
    verb.add_argument("text", metavar="TEXT", nargs="*", help="strings (default: lines of stdin)")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder of C to write instead, with NAME_score()")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--logits", action="store_true",
                      help="print what the network gives (default: its sigmoid, unless config.json says otherwise)")
    verb.add_argument("--threads", type=count, default=1, metavar="N", help="workers (default: 1)")
    add_target(verb, "CPU to compile for (default: native)", "native")


def _running_verbs(steps: Verbs) -> None:
    """Adds the verbs that run a compiled language model."""
    from . import lm

    verb = add_verb(steps, "generate", lm.generate_, "continue a text")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("text", metavar="TEXT", help="the prompt")
    verb.add_argument("--chat", action="store_true", help="put the text into the model's chat template, as a question")
    verb.add_argument("--stop", action="append", default=[], metavar="TEXT", help="string that ends the answer")
    verb.add_argument("--log-probabilities", action="store_true",
                      help="print a line of JSON for each token, with its log-probability, instead of the text")
    _sampling_options(verb)
    verb = add_verb(steps, "chat", lm.chat_, "hold a conversation in the terminal")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("--system", metavar="TEXT", help="system prompt")
    _sampling_options(verb)
    verb = add_verb(steps, "bench", lm.bench_, "measure tokens a second, memory and load time on this machine")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc lm compile' wrote")
    verb.add_argument("--threads", type=count, action="append", metavar="N",
                      help="workers of a run; may be given several times (default: those it was compiled for)")
    verb.add_argument("--prompt", type=count, default=128, metavar="N", help="tokens of a prompt (default: 128)")
    verb.add_argument("--max-tokens", type=count, default=64, metavar="N", help="tokens to generate (default: 64)")
    verb.add_argument("--repeats", type=count, default=3, metavar="N",
                      help="sequences; figures are medians (default: 3)")
    verb.add_argument("--against", metavar="A,B", help="measure other programs in turns, each on its own model: "
                                                       "llama.cpp=FILE.gguf, onnxruntime-genai=FOLDER, or "
                                                       "NAME=FILE.py for one of your own")
    verb.add_argument("--python", action="append", metavar="[NAME=]PATH",
                      help="interpreter that has an engine (default: $MEGCC_BENCH_PYTHON, else this one)")
    add_target(verb, "one of the folder's targets (default: one that runs here)")


def _sampling_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--threads", type=count, metavar="N", help="workers (default: those it was compiled for)")
    verb.add_argument("--max-tokens", type=count, default=256, metavar="N", help="tokens of an answer (default: 256)")
    verb.add_argument("--temperature", type=float, default=0.0, metavar="T",
                      help="divides logits before a token is chosen; 0 takes the most likely token (default: 0)")
    verb.add_argument("--top-k", type=int, default=0, metavar="N",
                      help="choose among the N most likely tokens (default: all)")
    verb.add_argument("--top-p", type=float, default=1.0, metavar="P",
                      help="choose among the most likely tokens with this total probability (default: 1)")
    verb.add_argument("--min-p", type=float, default=0.0, metavar="P",
                      help="choose among tokens with at least this fraction of the highest probability (default: 0)")
    verb.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R",
                      help="divides logits of tokens that occurred (default: 1)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    verb.add_argument("--grammar", metavar="FILE", help="answers match this grammar, in llama.cpp's GBNF")
    verb.add_argument("--json-schema", metavar="FILE", help="answers match this JSON schema")
    add_target(verb, "one of the folder's targets (default: one that runs here)")
