# SPDX-License-Identifier: Apache-2.0
"""The verbs of `megcc lm`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MegccError

if TYPE_CHECKING:
    from ..target import Target


def compile_(args: argparse.Namespace) -> int:
    """Compiles a GGUF file, or the folder of an ONNX file, to a folder of C, and describes the folder on stdout."""
    from ..option_values import parse_regions
    from ..options import CompileOptions
    from ..tools.lm.compile import compile_model
    from ..tools.lm.grammars.files import read_networks
    from ..tools.report import describe
    from .verbs import _print, _progress

    with _progress(args, f"compiling {args.model}"):
        options = CompileOptions(activations=args.activations, cache=args.cache, sinks=args.sinks, threads=args.threads,
                                 reproducible=args.reproducible, regions=parse_regions(args.region))
        grammars = read_networks(args.grammar, args.json_schema)
        folder = compile_model(args.model, args.output or "", args.target, options, context=args.context,
                               prompt=args.prompt, force=args.force, sequences=args.sequences, grammars=grammars)
    _print(args, describe.folder(folder), describe.folder_text)
    return 0


def tokenizer_(args: argparse.Namespace) -> int:
    """Writes the tokenizer of a file as C."""
    from ..tools.lm.tokenizers import folder as tokenizer_folder
    from .verbs import _print, _progress

    with _progress(args, f"reading {args.path}"):
        report = tokenizer_folder.write(args.path, args.output, args.name)
    _print(args, report, tokenizer_folder.text)
    return 0


def embed_(args: argparse.Namespace) -> int:
    """Prints the embedding of each string, or of each line of stdin, as a line of JSON; or writes a folder of C."""
    from ..tools.lm.embedding import EmbeddingModel
    from .verbs import _progress

    normalize = False if args.no_normalize else None
    if args.output:
        return _embedding_folder(args, normalize)
    with _progress(args, f"compiling and building {args.path}"):
        model = EmbeddingModel(args.path, args.target or "native", threads=args.threads, pooling=args.pooling,
                               normalize=normalize)
    for text in args.text or (line.rstrip("\n") for line in sys.stdin):
        print("[" + ", ".join(map(str, model.embed([text])[0].tolist())) + "]", flush=True)
    return 0


def _embedding_folder(args: argparse.Namespace, normalize: bool | None) -> int:
    from ..options import CompileOptions
    from ..tools.lm import embedding_folder
    from ..tools.report import describe
    from .verbs import _print, _progress

    if args.text:
        raise MegccError("with --output a folder is written, and no string is embedded")
    with _progress(args, f"compiling {args.path}"):
        folder = embedding_folder.write(args.path, args.output, args.target or "native",
                                        CompileOptions(threads=args.threads), pooling=args.pooling,
                                        normalize=normalize, force=args.force)
    _print(args, describe.folder(folder), describe.folder_text)
    return 0


def rerank_(args: argparse.Namespace) -> int:
    """Prints strings in the order of their scores for a query, each as a line of JSON; or writes a folder of C."""
    from ..tools.lm.reranker import Reranker
    from .verbs import _progress

    if args.output:
        return _reranker_folder(args)
    if args.query is None:
        raise MegccError("the query is missing: megcc lm rerank DIR QUERY [TEXT ...]")

    with _progress(args, f"compiling and building {args.path}"):
        model = Reranker(args.path, args.target or "native", threads=args.threads,
                         sigmoid=False if args.logits else None)
    strings = args.text or [line.rstrip("\n") for line in sys.stdin]
    scores = model.scores(args.query, strings).tolist()
    for index in sorted(range(len(strings)), key=lambda index: -scores[index]):
        print(json.dumps({"score": scores[index], "index": index, "text": strings[index]}), flush=True)
    return 0


def _reranker_folder(args: argparse.Namespace) -> int:
    from ..options import CompileOptions
    from ..tools.lm import reranker_folder
    from ..tools.report import describe
    from .verbs import _print, _progress

    if args.query is not None:
        raise MegccError("with --output a folder is written, and no string is scored")
    with _progress(args, f"compiling {args.path}"):
        folder = reranker_folder.write(args.path, args.output, args.target or "native",
                                       CompileOptions(threads=args.threads), sigmoid=False if args.logits else None,
                                       force=args.force)
    _print(args, describe.folder(folder), describe.folder_text)
    return 0


def generate_(args: argparse.Namespace) -> int:
    """Generates text after a prompt, on stdout. On a microcontroller, tokenizer and sampler are those of the firmware,
    unless an option needs Python's."""
    if not (args.chat or args.stop or args.log_probabilities or args.grammar or args.json_schema) \
            and (emulated := _emulated_target(args)):
        return _generate_in_emulator(args, emulated)
    grammar, model = _grammar(args), _model(args)
    prompt = model.chat([{"role": "user", "content": args.text}]) if args.chat else args.text
    found: list[tuple[int, float]] | None = [] if args.log_probabilities else None
    pieces = model.generate(prompt, args.max_tokens, _sampling(args), stop=args.stop, log_probabilities=found,
                            grammar=grammar)
    answer: list[str] = []
    if found is None:
        _print_text(pieces, answer)
        if not (answer or args.chat or args.quiet) and model.settings.chat_template:
            print("megcc: the model ended the text at once; --chat asks the question as its chat template has it",
                  file=sys.stderr)
    else:
        for _ in pieces:
            _print_tokens(model, found)
        _print_tokens(model, found)  # those of a stop string, after the last piece of text
    _print_speed(args, model)
    return 0


def _emulated_target(args: argparse.Namespace) -> Target | None:
    """Returns the microcontroller that the folder is built for; None for other targets, and other folders."""
    from ..codegen.manifest import MANIFEST, read_manifest
    from ..runtime.build import target_of

    folder = Path(args.path)
    if not (folder / MANIFEST).exists():
        return None
    target = target_of(read_manifest(folder), args.target or None, folder)
    return target if target.bare_metal else None


def _generate_in_emulator(args: argparse.Namespace, target: Target) -> int:
    from dataclasses import asdict

    from ..runtime.emulator import text
    from .verbs import _progress

    with _progress(args, f"building {args.path} and running it in the emulator"):
        generated = text.generate(args.path, args.text, args.max_tokens, asdict(_sampling(args)), target)
    _print_text(iter([generated.text]))
    if not args.quiet:
        print(f"{len(generated.tokens)} tokens, deepest stack {generated.stack_bytes:,} bytes", file=sys.stderr)
    return 0


def chat_(args: argparse.Namespace) -> int:
    """Holds a conversation: reads lines from stdin and prints answers to stdout. Ctrl-C ends an answer, the end of
    stdin the program."""
    grammar, model = _grammar(args), _model(args)
    messages = [{"role": "system", "content": args.system}] if args.system else []
    while (line := _line()) is not None:
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        answer: list[str] = []
        model.reset()
        try:
            _print_text(model.generate(model.chat(messages), args.max_tokens, _sampling(args), grammar=grammar),
                        answer)
        except KeyboardInterrupt:
            print(flush=True)
        messages.append({"role": "assistant", "content": "".join(answer)})
        _print_speed(args, model)
    return 0


def bench_(args: argparse.Namespace) -> int:
    """Prints tokens per second for each number of threads, on stdout."""
    from ..tools.lm import bench
    from .verbs import _print, _progress

    if args.against:
        return _bench_against(args)
    if args.python:
        raise MegccError("--python names interpreters of other engines: it needs --against")
    with _progress(args, f"measuring {args.path}"):
        rows = [bench.measure(args.path, args.target or None, threads, prompt=args.prompt, tokens=args.max_tokens,
                              repeats=args.repeats)
                for threads in args.threads or [None]]
    _print(args, bench.report(rows), bench.text)
    return 0


def _bench_against(args: argparse.Namespace) -> int:
    from ..tools.lm import against
    from .verbs import _print, logged

    folder = Path(args.path)
    settings = against.Settings(
        folder=folder, target=args.target or "", engines=against.parse_engines(args.against, folder),
        pythons=args.python or [], prompt=args.prompt, tokens=args.max_tokens, rounds=args.repeats)
    with nullcontext() if args.quiet or args.verbose else logged(against.logger, logging.INFO):
        rows = [against.compare(settings, threads) for threads in args.threads or [None]]
    _print(args, {"comparisons": rows}, against.text)
    return 0


def _model(args: argparse.Namespace):
    from ..tools.lm.model import LanguageModel
    from .verbs import _progress

    with _progress(args, f"building {args.path}"):
        model = LanguageModel(args.path, args.target or None, args.threads)
        model.tokenizer  # noqa: B018  (read now, so that a damaged one is told before the first question)
    return model


def _sampling(args: argparse.Namespace):
    from ..tools.lm.sampling import Sampling

    return Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, min_p=args.min_p,
                    repetition_penalty=args.repetition_penalty, seed=args.seed)


def _grammar(args: argparse.Namespace):
    """Returns the grammar of --grammar or --json-schema; None without them."""
    from ..tools.lm import grammar

    if args.grammar and args.json_schema:
        raise MegccError("give --grammar or --json-schema, not both")
    path = args.grammar or args.json_schema
    return grammar.read(path, is_schema=not args.grammar) if path else None


def _line() -> str | None:
    """Reads a line of stdin, on a terminal after a prompt; None at the end."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _print_text(pieces: Iterator[str], answer: list[str] | None = None) -> None:
    """Prints pieces of text as they are generated, and appends them to `answer`."""
    for piece in pieces:
        print(piece, end="", flush=True)
        if answer is not None:
            answer.append(piece)
    print(flush=True)


def _print_tokens(model, found: list[tuple[int, float]]) -> None:
    """Prints tokens as lines of JSON, and removes them from the list."""
    for token, value in found:
        text = model.tokenizer.decode([token], skip_special_tokens=False)
        print(json.dumps({"token": token, "text": text, "log_probability": value}), flush=True)
    found.clear()


def _print_speed(args: argparse.Namespace, model) -> None:
    """Prints the tokens per second of the last answer, on stderr."""
    if not args.quiet:
        print(f"megcc: {model.figures}", file=sys.stderr, flush=True)
