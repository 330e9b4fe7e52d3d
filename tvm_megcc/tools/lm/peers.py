# SPDX-License-Identifier: Apache-2.0
"""Adapters for other programs that run language models, with a common interface, and the process in which one of them
is measured.

    python peers.py measure JOB     loads the model (`start`); then runs a `sequence` for each line on stdin

JOB is a JSON object, as `against.py` writes it (`Engine`). A line of JSON on stdout has the results of the start, and
one those of each sequence. The interpreter that has the engine runs this file. It needs numpy but not this package:
only `tvm_megcc/tools/bench/peers.py` is imported, by its path.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


def _import_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_bench = _import_file("bench_peers", Path(__file__).parents[1] / "bench" / "peers.py")


class Engine:
    """One engine with one language model, on `job.threads` threads.

    package: the name for pip. job: what is measured:
        engine: its name; file: the Python file of a user's engine, else "".
        model: a file or folder of the engine's own; folder, target: our compiled model.
        context: tokens; prompt: the most tokens that are read at a time; threads.
        level: the x86 level that engines are to be limited to, "" for the machine's own.
        processors: those that the process may run on; empty for all.
        tokens: the prompt of each sequence; count: the number of tokens to generate after it.
        result: the file for the logits after the prompt.
    """

    package = ""

    def __init__(self, job: SimpleNamespace):
        self.job = job
        self.version = self.installed()

    def installed(self) -> str:
        """Returns the engine's version; raises Absent if there is none."""
        try:
            return importlib.metadata.version(self.package) if self.package else ""
        except importlib.metadata.PackageNotFoundError:
            raise _bench.Absent(f"not installed: pip install {self.package}") from None

    def is_limited(self) -> bool:
        """Whether the engine is limited to the requested x86 level."""
        return not self.job.level

    def prepare(self) -> None:
        """Imports the engine, so that loading a model does not include this."""

    def load(self) -> None:
        """Loads the model."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forgets all tokens that were read."""
        raise NotImplementedError

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Reads tokens, at most `job.prompt`, after those read so far. Returns the logits [vocabulary] of the next
        token."""
        raise NotImplementedError


class LlamaCpp(Engine):
    """llama.cpp, through the functions of the C library in the package llama-cpp-python."""

    package = "llama-cpp-python"

    def prepare(self) -> None:
        self.library: Any = importlib.import_module("llama_cpp")
        self.library.llama_backend_init()
        self.silent = self.library.llama_log_callback(lambda *_: None)
        self.library.llama_log_set(self.silent, ctypes.c_void_p(0))

    def is_limited(self) -> bool:
        return not self.job.level or b"AVX512 = 1" not in self.library.llama_print_system_info()

    def load(self) -> None:
        library, job = self.library, self.job
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = library.llama_model_load_from_file(os.fsencode(job.model), options)
        if not self.model:
            raise _bench.Absent(f"it does not load {job.model}")
        options = library.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = job.context, job.prompt, job.prompt
        options.n_threads = options.n_threads_batch = job.threads
        self.context = library.llama_init_from_model(self.model, options)
        if not self.context:
            raise _bench.Absent(f"it makes no context of {job.context} tokens")
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.model))

    def reset(self) -> None:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        array = (self.library.llama_token * len(tokens))(*tokens)
        status = self.library.llama_decode(self.context, self.library.llama_batch_get_one(array, len(tokens)))
        if status:
            raise _bench.Absent(f"llama_decode returns {status}")
        logits = self.library.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.vocabulary,))


class OnnxRuntimeGenai(Engine):
    """onnxruntime-genai, of a folder that its model builder wrote."""

    package = "onnxruntime-genai"

    def prepare(self) -> None:
        self.library: Any = importlib.import_module("onnxruntime_genai")

    def load(self) -> None:
        config = self.library.Config(self.job.model)
        threads = {"intra_op_num_threads": self.job.threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self.model = self.library.Model(config)
        self.reset()

    def reset(self) -> None:
        options = self.library.GeneratorParams(self.model)
        options.set_search_options(max_length=self.job.context, do_sample=False)
        self.generator: Any = None  # frees the caches of the last one before there are new ones
        self.generator = self.library.Generator(self.model, options)

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        self.generator.append_tokens(np.array([tokens], np.int32))
        logits: np.ndarray = self.generator.get_logits()
        last: np.ndarray = logits.reshape(-1, logits.shape[-1])[-1]
        return last


class Megcc(Engine):
    """Our engine: the folder `job.folder`, built for `job.target`."""

    def is_limited(self) -> bool:
        return True     # it was compiled for the level

    def prepare(self) -> None:
        self.library: Any = importlib.import_module("tvm_megcc.tools.lm.model")

    def load(self) -> None:
        self.model = self.library.LanguageModel(self.job.folder, self.job.target or None, self.job.threads)

    def reset(self) -> None:
        self.model.reset()

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        logits: np.ndarray = self.model.read(tokens)
        return logits


GENAI = OnnxRuntimeGenai.package
#: The engines of `--against`.
PEERS: dict[str, type[Engine]] = {"llama.cpp": LlamaCpp, GENAI: OnnxRuntimeGenai}
OURS = "megcc"


def engine_class(name: str, file: str) -> type[Engine]:
    """Returns the engine of this name, or the class `Engine` of a user's file, which can import this module as
    `peers`."""
    if not file:
        return {**PEERS, OURS: Megcc}[name]
    sys.modules["peers"] = sys.modules[__name__]
    found: type[Engine] = _import_file("own_engine", Path(file)).Engine
    return found


# The process.


def read_all(engine: Engine, tokens: Sequence[int]) -> np.ndarray:
    """Reads tokens, `job.prompt` at a time. Returns the logits of the next token."""
    logits = np.empty(0)
    for first in range(0, len(tokens), engine.job.prompt):
        logits = engine.read(tokens[first:first + engine.job.prompt])
    return logits


def sequence(engine: Engine) -> dict[str, Any]:
    """Reads the prompt `job.tokens`, then generates `job.count` tokens, always the likeliest one. Returns the seconds
    of both."""
    engine.reset()
    begin = time.perf_counter()
    logits = read_all(engine, engine.job.tokens)
    read = time.perf_counter()
    for _ in range(engine.job.count):
        logits = engine.read([int(logits.argmax())])
    return {"prompt": read - begin, "generation": time.perf_counter() - read}


def start(engine: Engine) -> dict[str, Any]:
    """Loads the model, and reads one token. Stores the logits after the prompt in the file `job.result`.

    Returns:
        Seconds of loading and of the first token; `bare`: bytes of memory with the engine imported, before loading;
        `held`: whether the engine is limited to the x86 level.
    """
    engine.prepare()
    bare = _bench.resident("VmRSS")
    with _bench.undisturbed():
        begin = time.perf_counter()
        engine.load()
        loaded = time.perf_counter()
        engine.read(engine.job.tokens[:1])
        first = time.perf_counter()
    engine.reset()
    np.save(engine.job.result, read_all(engine, engine.job.tokens))
    return {"version": engine.version, "load": loaded - begin, "first": first - begin, "bare": bare,
            "held": engine.is_limited()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)       # engines print: into the log

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    job = SimpleNamespace(**json.loads(sys.argv[2]))
    try:
        engine = engine_class(job.engine, job.file)(job)
        if job.processors:
            os.sched_setaffinity(0, job.processors)     # before the engine starts its threads
        answer(**start(engine), peak=_bench.resident("VmHWM"))
        for _ in sys.stdin:
            with _bench.undisturbed() as alone:
                times = sequence(engine)
            answer(**times, alone=alone, peak=_bench.resident("VmHWM"))
    except _bench.Absent as reason:
        answer(absent=str(reason))
    except Exception as error:
        answer(absent=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


if __name__ == "__main__":
    main()
