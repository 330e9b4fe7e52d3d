#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The accuracy of a language model beside its own weights in float64: greedy texts, errors of logits, and the KL
divergence for each quantisation.

    benchmarks/lm_accuracy.py greedy MODEL.gguf                      # 128 tokens of ten prompts
    benchmarks/lm_accuracy.py divergence MODEL.gguf --types Q4_0,Q6_K  # 512 tokens of English text
    … --python PATH        # an interpreter with llama-cpp-python, which is compared too, and writes the quantised files

The model is of the architecture llama, such as SmolLM2. float64 means: the weights as the package gguf dequantises
them, and every operation in numpy's float64. Each token of a greedy text is compared with the likeliest one in float64
after the same tokens, so equal texts are those of a float64 model. `divergence` pads the model with channels and heads
of zeros to rows of multiples of 256, which K-quants need; the padded model computes the same function.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ("Once upon a time", "The capital of France is", "Water boils when", "In the year 1905, Albert Einstein",
           "def fibonacci(n):", "Dear Sir or Madam,", "The three laws of motion are", "To bake bread, you need",
           "Q: Why is the sky blue?\nA:", "The history of computers begins with")
#: Types of `divergence`, and their numbers in llama.cpp's `llama_ftype`.
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25}


# float64.


class Reference:
    """A model of the architecture llama in float64. file: as `gguf.GGUFReader` reads it."""

    def __init__(self, path: Path):
        import gguf

        self.file, self.dequantize = gguf.GGUFReader(path), gguf.quants.dequantize
        self.tensors = {tensor.name: tensor for tensor in self.file.tensors}
        self.heads, self.kv_heads, self.layers = (int(self.value(name)) for name in (
            "attention.head_count", "attention.head_count_kv", "block_count"))
        self.epsilon, self.theta = self.value("attention.layer_norm_rms_epsilon"), self.value("rope.freq_base")

    def value(self, name: str) -> Any:
        return self.file.fields[f"llama.{name}"].contents()

    def weight(self, name: str) -> np.ndarray:
        tensor = self.tensors[f"{name}.weight"]
        found: np.ndarray = self.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        return found

    def logits(self, texts: list[list[int]]) -> list[np.ndarray]:
        """Returns float64 [tokens, vocabulary] for each text."""
        embedding = self.weight("token_embd")
        states = [embedding[tokens] for tokens in texts]
        for layer in range(self.layers):
            names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
                     "ffn_down")
            w = {name: self.weight(f"blk.{layer}.{name}") for name in names}
            states = [self.block(x, w) for x in states]
        head = self.weight("output") if "output.weight" in self.tensors else embedding
        return [self.norm(x, self.weight("output_norm")) @ head.T for x in states]

    def block(self, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
        x = x + self.attention(self.norm(x, w["attn_norm"]), w)
        y = self.norm(x, w["ffn_norm"])
        gate = y @ w["ffn_gate"].T
        return x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T

    def norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon) * gain

    def attention(self, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
        count = len(x)
        q, k, v = ((x @ w[f"attn_{name}"].T).reshape(count, heads, -1).swapaxes(0, 1) for name, heads in (
            ("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)))
        q, k = self.rotated(q), self.rotated(k)
        k, v = (np.repeat(each, self.heads // self.kv_heads, 0) for each in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]) + np.triu(np.full((count, count), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        y = weights / weights.sum(-1, keepdims=True) @ v
        result: np.ndarray = y.swapaxes(0, 1).reshape(count, -1) @ w["attn_output"].T
        return result

    def rotated(self, x: np.ndarray) -> np.ndarray:
        """Rotates neighbouring elements of each head, x [heads, tokens, elements]."""
        size = x.shape[-1]
        angles = np.outer(np.arange(x.shape[1]), self.theta ** (-np.arange(0, size, 2) / size))
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


# The engines, each in a process.


def run_engine(job: SimpleNamespace) -> None:
    """Writes the tokens and logits of all texts of a job: logits after each token, or of `count` tokens that are
    generated after a text, always the likeliest one."""
    spec = importlib.util.spec_from_file_location("peers", ROOT / "tvm_megcc" / "tools" / "lm" / "peers.py")
    assert spec is not None and spec.loader is not None
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    engine = peers.engine_class(job.engine, "")(job)
    engine.prepare()
    engine.load()
    for number, given in enumerate(job.texts):
        engine.reset()
        tokens, rows = list(given), []
        for at in range(len(given) + job.count - 1):
            rows.append(np.array(engine.read([tokens[at]])))
            if at >= len(given) - 1 and job.count:
                tokens.append(int(rows[-1].argmax()))
        if not job.count:
            rows.append(np.array(engine.read(tokens[-1:])))
        np.savez(f"{job.result}_{number}.npz", tokens=tokens, logits=np.array(rows))


def engine_results(args: argparse.Namespace, scratch: Path, engine: str, texts: list[list[int]], count: int,
                   model: Path, folder: Path | None = None) -> list[tuple[list[int], np.ndarray]]:
    """Returns the tokens and logits of each text that an engine gives."""
    job = {"engine": engine, "model": str(model), "folder": str(folder), "target": args.target, "threads": 1,
           "context": 1024, "prompt": 1, "level": "", "texts": texts, "count": count, "result": str(scratch / "result")}
    interpreter = args.python if engine == "llama.cpp" else sys.executable
    subprocess.run([interpreter, __file__, "engine", json.dumps(job)], check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)} if engine == "megcc" else None)
    found = []
    for number in range(len(texts)):
        path = scratch / f"result_{number}.npz"
        with np.load(path) as arrays:
            found.append((arrays["tokens"].tolist(), arrays["logits"]))
        path.unlink()
    return found


def compiled(args: argparse.Namespace, model: Path, activations: str, folder: Path) -> Path:
    from tvm_megcc.options import CompileOptions
    from tvm_megcc.tools.lm.compile import compile_model

    return compile_model(model, folder, args.target, CompileOptions(activations=activations), 1024, 1, force=True)


def tokens_of(folder: Path, text: str) -> list[int]:
    from tvm_megcc.tools.lm.model import LanguageModel

    return LanguageModel(folder).encode(text)


# Greedy texts.


def greedy(args: argparse.Namespace, scratch: Path) -> None:
    folders = {name: compiled(args, args.model, name, scratch / name) for name in ("float32", "int8")}
    prompts = [tokens_of(folders["float32"], text) for text in PROMPTS]
    reference = Reference(args.model)
    for name in (*folders, *(["llama.cpp"] if args.python else [])):
        engine = "llama.cpp" if name == "llama.cpp" else "megcc"
        found = engine_results(args, scratch, engine, prompts, args.count, args.model, folders.get(name))
        wanted = reference.logits([tokens[:-1] for tokens, _ in found])
        largest, equal = 0.0, 0
        for prompt, (tokens, logits), exact in zip(prompts, found, wanted, strict=True):
            largest = max(largest, float((np.abs(logits - exact).max(1) / np.abs(exact).max(1)).max()))
            best = exact[len(prompt) - 1:].argmax(1)
            different = np.flatnonzero(best != tokens[len(prompt):])
            equal += not different.size
            if different.size:
                row = exact[len(prompt) - 1 + different[0]]
                margin = row.max() - row[tokens[len(prompt) + different[0]]]
                print(f"  {name}: {PROMPTS[prompts.index(prompt)]!r} differs at token {different[0]}: in float64, its "
                      f"logit is {margin:.2g} below the highest, {row.max():.4g}")
        print(f"{name}: {equal} of {len(prompts)} texts of {args.count} tokens are those of float64; logits differ by "
              f"at most {largest:.2g} of the largest one", flush=True)


# Divergence.


def padded(source: Path, target: Path) -> None:
    """Writes a model with float32 weights, whose width and heads are padded with zeros to multiples of 256."""
    import gguf

    reference, writer = Reference(source), gguf.GGUFWriter(target, "llama")
    width, heads, kv_heads = int(reference.value("embedding_length")), reference.heads, reference.kv_heads
    head, wide = width // heads, -(-width // 256) * 256
    more = wide // head
    changed = {"embedding_length": wide, "attention.head_count": more,
               "attention.head_count_kv": kv_heads * more // heads,
               "attention.layer_norm_rms_epsilon": float(reference.epsilon) * width / wide}
    for field in reference.file.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, changed.get(field.name.removeprefix("llama."), field.contents()), kind,
                             field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    extents = {width: wide, kv_heads * head: kv_heads * more // heads * head}
    for name in reference.tensors:
        array = reference.weight(name.removesuffix(".weight"))
        axes = [(0, extents.get(extent, extent) - extent) for extent in array.shape]
        array = np.pad(array * (np.sqrt(width / wide) if array.ndim == 1 else 1), axes)
        writer.add_tensor(name, array.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source: str, target: str, kind: str) -> None:
    """Writes a file with every matrix in the type `kind`, by llama.cpp."""
    import ctypes

    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.pure, options.allow_requantize, options.nthread = FILE_TYPES[kind], True, True, 1
    if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(options)):
        sys.exit(f"llama.cpp does not write {kind}")


def divergences(exact: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns the KL divergence of each row from `exact` to `given`, in nats."""
    p, q = (rows - rows.max(1, keepdims=True) for rows in (exact, given.astype(np.float64)))
    p, q = (rows - np.log(np.exp(rows).sum(1, keepdims=True)) for rows in (p, q))
    found: np.ndarray = (np.exp(p) * (p - q)).sum(1)
    return found


def divergence(args: argparse.Namespace, scratch: Path) -> None:
    from pydoc_data.topics import topics

    text = args.text.read_text("utf-8") if args.text else " ".join(topics["objects"].split())
    wide = scratch / "wide.gguf"
    padded(args.model, wide)
    for kind in args.types.split(","):
        model = scratch / f"{kind}.gguf"
        subprocess.run([args.python, __file__, "quantise", str(wide), str(model), kind], check=True)
        folder = compiled(args, model, "int8", scratch / "folder")
        tokens = tokens_of(folder, text)[:args.count]
        reference = Reference(model)
        used = sorted({tensor.tensor_type.name for tensor in reference.tensors.values() if len(tensor.shape) == 2})
        (exact,) = reference.logits([tokens])
        for name, engine in (("int8", "megcc"), ("llama.cpp", "llama.cpp")):
            ((_, logits),) = engine_results(args, scratch, engine, [tokens], 0, model, folder)
            each, same = divergences(exact, logits), np.mean(exact.argmax(1) == logits.argmax(1))
            error = np.abs(logits - exact).max(1) / np.abs(exact).max(1)
            print(f"{kind} ({', '.join(used)}) {name}: KL divergence over {len(tokens)} tokens: mean {each.mean():.3g},"
                  f" median {np.median(each):.3g}, largest {each.max():.3g}; the likeliest token is the same for "
                  f"{100 * same:.1f} %; logits differ by {np.median(error):.3g} (median), {error.max():.3g}",
                  flush=True)
        model.unlink()


def main() -> None:
    if sys.argv[1:2] == ["engine"]:
        return run_engine(SimpleNamespace(**json.loads(sys.argv[2])))
    if sys.argv[1:2] == ["quantise"]:
        return quantise(*sys.argv[2:5])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["greedy", "divergence"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--python", default="", help="an interpreter with llama-cpp-python")
    parser.add_argument("--target", default="native")
    parser.add_argument("--types", default=",".join(FILE_TYPES))
    parser.add_argument("--count", type=int, help="tokens")
    parser.add_argument("--text", type=Path, help="an English text; default is a page of Python's documentation")
    args = parser.parse_args()
    args.count = args.count or {"greedy": 128, "divergence": 512}[args.what]
    sys.path.insert(0, str(ROOT))
    if args.what == "divergence" and not args.python:
        parser.error("llama.cpp writes the quantised files: --python")
    with tempfile.TemporaryDirectory() as scratch:
        {"greedy": greedy, "divergence": divergence}[args.what](args, Path(scratch))


if __name__ == "__main__":
    main()
