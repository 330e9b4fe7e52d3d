# SPDX-License-Identifier: Apache-2.0
"""`megcc export` of a language model: texts in each language are those of `megcc lm generate`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiled.tools.test_language_model import CHAT, WORDS, _written
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.codegen.packages import language_model as packages
from tvm_megcc.errors import MegccError
from tvm_megcc.options import CompileOptions
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel
from tvm_megcc.tools.lm.sampling import Sampling

from .test_languages import needs, ran
from .test_mobile import java

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
SAMPLED = {"temperature": 1.2, "top_k": 30, "top_p": 0.97, "min_p": 0.001, "repetition_penalty": 1.3,
           "seed": 2 ** 40 + 5}
#: Whether a question is asked, its system message, the text, and the options. A text without a system message follows
#: the one before it.
TEXTS: list[tuple[bool, str | None, str, dict[str, Any]]] = [
    (False, "", "cdefgh", {"max_tokens": 10}),
    (False, "", "cdef", {"max_tokens": 12, **SAMPLED}),
    (False, "", "cdef", {"max_tokens": 12, "stop": ["zz", "BB"], **SAMPLED}),
    (True, "", "k", {"max_tokens": 3}),
    (True, None, "ef", {"max_tokens": 3}),
    (True, "g", "k", {"max_tokens": 4, "temperature": 0.7, "seed": 3}),
    (False, "", "c" * 21, {"max_tokens": 0}),
]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    return _written(tmp_path_factory.mktemp("packages") / "small.gguf", WORDS, CHAT)


def compiled(gguf: Path, target: str, folder: Path) -> Path:
    return compile_model(gguf, folder, target, CompileOptions(reproducible=True), context=24, prompt=4)


@pytest.fixture(scope="module")
def wanted(gguf) -> list[str]:
    """What `LanguageModel` makes of TEXTS."""
    model, found, messages = LanguageModel(compiled(gguf, "native", gguf.parent / "native")), [], []
    for asks, system, text, options in TEXTS:
        given = {"stop": (), **options}
        sampling = Sampling(**{name: value for name, value in given.items() if name not in ("stop", "max_tokens")})
        if system is not None:
            model.reset()
            messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        prompt = model.chat(messages) if asks else text
        if system is None:  # the part of the conversation that was not read yet
            prompt = "C" + prompt.rpartition("C")[2]
        found.append("".join(model.generate(prompt, given["max_tokens"] or 99, sampling, given["stop"])))
        messages.append({"role": "assistant", "content": found[-1]})
    assert len({*found}) > 5 and "" not in found and found[2] == found[1][:found[1].index("BB")]
    return found


#: Prints the texts as JSON, after the package has refused what no language model takes.
PYTHON = """
import json, sys, threading, numpy as np, some_lm
model, found, inf = some_lm.Model(), [], float("inf")
for asks, system, text, options in json.loads(sys.stdin.read()):
    if system is not None:
        model.reset()
    begun = model.ask(text, system=system or None, **options) if asks else model.generate(text, **options)
    found.append("".join(begun))
    assert all(piece for piece in begun), "it is complete"
model.reset()
pieces = list(model.generate("cdefgh", max_tokens=10))
assert len(pieces) > 1 and model.length == 16, pieces
model.reset()
logits = model.step(model.encode("cdef"))
logits = model.step(np.array(model.encode("gh")))
assert logits.shape == (some_lm.VOCABULARY,) and logits.dtype == np.float32 and some_lm.CONTEXT == 24
assert some_lm.decode([int(logits.argmax())]) == pieces[0], pieces
assert model.encode("ab<end>") == [39, 0] and some_lm.token_bytes(39) == b"ab"
for wrong, error in (
        (dict(temperature=inf), ValueError), (dict(temperature=float("nan")), ValueError),
        (dict(temperature="1"), TypeError),
        (dict(temperature=1e39), ValueError), (dict(max_tokens=-1), ValueError), (dict(max_tokens=1.0), TypeError),
        (dict(top_k=-1), ValueError), (dict(top_p=1.1), ValueError), (dict(min_p=-0.1), ValueError),
        (dict(repetition_penalty=inf), ValueError), (dict(seed=2**64), ValueError), (dict(stop="a"), TypeError),
        (dict(stop=[None]), TypeError), (dict(stop=["a\\0b"]), ValueError), (dict(stop=["a"] * 17), ValueError),
        (dict(stop=["a" * 1024]), ValueError), (dict(beams=2), TypeError)):
    model.reset()
    try:
        list(model.generate("c", **wrong))
        raise SystemExit(f"not refused: {wrong}")
    except error:
        assert not model.length
for text, error in (("", ValueError), ("c" * 25, ValueError), ("a" * 600, ValueError), (None, TypeError),
                    (b"c", TypeError)):
    model.reset()
    try:
        list(model.generate(text))
        raise SystemExit(f"not refused: {text}")
    except error:
        pass
for wrong in ([], [40], [2**32 - 1], [1] * 25):
    model.reset()
    try:
        model.step(wrong)
        raise SystemExit(f"not refused: {wrong}")
    except ValueError:
        pass
list(model.ask("k", max_tokens=2))
try:
    list(model.ask("k", system="g\\0"))
    raise SystemExit("not refused")
except ValueError:
    pass
model.reset()
for text in ("c\\udcffd", "c\\0d", "c\\ufffdd"):
    assert model.encode(text)
first = model.generate("cdef", max_tokens=9)
next(first)
model.reset()
try:
    next(first)
    raise SystemExit("not refused")
except RuntimeError as error:
    assert "another text was begun" in str(error)
threads = [threading.Thread(target=lambda: model.step([3])) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert model.length == 4
print(json.dumps(found))
"""


def test_a_wheel(gguf, wanted, tmp_path):
    folder = compiled(gguf, "native", tmp_path / "small")
    assert main(["export", str(folder), "--for", "wheel", "--name", "some_lm", "-q", "-o", str(tmp_path / "out")]) == 0
    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    path = f"{tmp_path / 'site'}{os.pathsep}{Path(np.__file__).parents[1]}"
    done = subprocess.run([sys.executable, "-c", PYTHON], input=json.dumps(TEXTS), capture_output=True, text=True,
                          check=False, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted


#: The same in JavaScript.
JAVASCRIPT = """
import { readFileSync } from "node:fs";
import { context, load, Model, vocabulary } from "./index.js";
const ok = (condition, text) => { if (!condition) throw new Error(text ?? "wrong"); };
const collect = async (pieces) => {
  const found = [];
  for await (const piece of pieces) found.push(piece);
  return found;
};
const refused = async (kind, run) => {
  try {
    await run();
  } catch (error) {
    ok(error instanceof kind, `${error.name}: ${error.message}`);
    return error.message;
  }
  throw new Error(`not refused: ${run}`);
};
const told = [], found = [], weights = readFileSync(new URL("./small.megcc", import.meta.url));
const model = await load({ progress: (loaded, all) => told.push([loaded, all]) });
ok(told.at(-1)[0] === told[0][1] && told.at(-1)[1] === weights.length);
const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
for (const [asks, system, text, options] of JSON.parse(readFileSync(0))) {
  if (system !== null) model.reset();
  const given = Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), value]));
  const begun = asks ? model.ask(text, { ...given, system: system || undefined }) : model.generate(text, given);
  found.push((await collect(begun)).join(""));
}
model.reset();
const pieces = await collect(model.generate("cdefgh", { maxTokens: 10, seed: 3n }));
ok(pieces.length > 1 && model.length === 16 && context === 24);
model.reset();
model.step(model.encode("cdef"));
const logits = model.step(Uint32Array.from(model.encode("gh")));
ok(logits.length === vocabulary && model.decode([logits.indexOf(Math.max(...logits))]) === pieces[0]);
ok(model.encode("ab<end>").join() === "39,0" && new TextDecoder().decode(model.tokenBytes(39)) === "ab");
for (const [wrong, kind] of [
  [{ temperature: Infinity }, RangeError], [{ temperature: NaN }, RangeError], [{ temperature: "1" }, TypeError],
  [{ temperature: 1e39 }, RangeError], [{ maxTokens: -1 }, RangeError], [{ maxTokens: 1.5 }, TypeError],
  [{ topK: -1 }, RangeError], [{ topP: 1.1 }, RangeError], [{ minP: -0.1 }, RangeError],
  [{ repetitionPenalty: Infinity }, RangeError], [{ seed: 2n ** 64n }, RangeError], [{ seed: -1 }, RangeError],
  [{ seed: 0.5 }, TypeError], [{ stop: "a" }, TypeError], [{ stop: [null] }, TypeError],
  [{ stop: ["a\\0b"] }, RangeError], [{ stop: Array(17).fill("a") }, RangeError],
  [{ stop: ["a".repeat(1024)] }, RangeError], [{ max_tokens: 3 }, TypeError]]) {
  model.reset();
  await refused(kind, () => collect(model.generate("c", wrong)));
  ok(model.length === 0);
}
for (const [text, kind] of [["", RangeError], ["c".repeat(25), RangeError], ["a".repeat(600), RangeError],
                            [null, TypeError], [undefined, TypeError], [3, TypeError]]) {
  model.reset();
  await refused(kind, () => collect(model.generate(text)));
}
for (const [wrong, kind] of [[[], RangeError], [[40], RangeError], [[2 ** 32 - 1], RangeError], [[-1], RangeError],
                             [[0.5], TypeError], [Array(25).fill(1), RangeError], [3, TypeError]])
  await refused(kind, () => model.step(wrong));
await refused(RangeError, () => model.tokenBytes(vocabulary));
await refused(RangeError, () => collect(model.ask("k", { system: "g\\0" })));
model.reset();
for (const text of ["c\\ud800d", "c\\0d", "c\\ufffdd"]) ok(model.encode(text).length > 0);
const first = model.generate("cdef", { maxTokens: 9 });
await first.next();
model.reset();
ok((await refused(Error, () => first.next())).includes("another text was begun"));
const controller = new AbortController();
const stopped = model.generate("cdef", { maxTokens: 9, signal: controller.signal });
await stopped.next();
controller.abort();
ok((await refused(Error, () => stopped.next())).includes("aborted"));
const wasm = await WebAssembly.compile(readFileSync(new URL("./small.wasm", import.meta.url)));
for (const given of [weights, new Response(new Blob([weights]))]) {
  const same = await load({ wasm, weights: given });
  ok((await collect(same.generate("cdefgh", { maxTokens: 10 }))).join("") === pieces.join(""));
}
ok((await refused(Error, () => load({ wasm, weights: weights.subarray(1) }))).includes("of another package"));
const twice = Buffer.concat([weights, weights]);
ok((await refused(Error, () => load({ wasm, weights: twice }))).includes("of another package"));
await refused(Error, () => load({ wasm, weights: new Uint8Array(weights.length) }));
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def npm(gguf) -> Path:
    needs("node")
    find_compiler(TARGETS["wasm32-simd128"])
    folder = compiled(gguf, "wasm32-simd128", gguf.parent / "wasm")
    assert main(["export", str(folder), "--for", "npm", "-q", "-o", str(gguf.parent / "npm")]) == 0
    return gguf.parent / "npm"


def test_npm(npm, wanted):
    (npm / "texts.mjs").write_text(JAVASCRIPT)
    done = subprocess.run(["node", npm / "texts.mjs"], input=json.dumps(TEXTS), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted
    shown = subprocess.run(["node", "test.mjs", "cdefgh"], cwd=npm, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(wanted[0]) and shown.endswith("tokens a second\n")


def exported(gguf: Path, system: str, folder: Path, target: str = "native") -> Path:
    """The package "some_lm" of a language."""
    small = compiled(gguf, target, folder / "small")
    assert main(["export", str(small), "--for", system, "--name", "some_lm", "-q", "-o", str(folder / "out")]) == 0
    return folder / "out"


def numbers(options: dict[str, Any], form: str, separator: str = ", ") -> str:
    """The options that are numbers, as statements or fields. form: with NAME and VALUE."""
    return separator.join(form.replace("NAME", name).replace("VALUE", str(value))
                          for name, value in options.items() if name != "stop")


def camel(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def quoted(strings: list[str]) -> str:
    return ", ".join(map(json.dumps, strings))


def test_a_crate(gguf, wanted, tmp_path, monkeypatch):
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = exported(gguf, "rust", tmp_path)
    texts = []
    for asks, system, text, options in TEXTS:
        fields = numbers(options, "NAME: VALUE") + f", stop: &[{quoted(options.get('stop', []))}]"
        message = f"Some({json.dumps(system)})" if system else "None"
        call = f"ask({json.dumps(text)}, {message}, &options)" if asks else f"generate({json.dumps(text)}, &options)"
        texts += ["    model.reset();"] * (system is not None)
        texts.append(f"    let options = Options {{ {fields}, ..Default::default() }};\n"
                     f"    println!(\"{{}}\", model.{call}?.collect::<Result<String, _>>()?);")
    (made / "examples/texts.rs").write_text("""use some_lm::{token, Error, Model, Options, CONTEXT, VOCABULARY};
fn main() -> Result<(), Error> {
    let mut model = Model::new()?;
TEXTS
    model.reset();
    let stop = ["a"; 17];
    for options in [
        Options { temperature: f32::INFINITY, ..Default::default() },
        Options { temperature: f32::NAN, ..Default::default() },
        Options { temperature: -1.0, ..Default::default() }, Options { top_p: 1.5, ..Default::default() },
        Options { repetition_penalty: f32::INFINITY, ..Default::default() },
        Options { stop: &["a\\0b"], ..Default::default() }, Options { stop: &stop, ..Default::default() }] {
        assert_eq!(model.generate("c", &options).err().unwrap().status, 0x10);
        assert_eq!(model.length(), 0);
    }
    let options = Options { max_tokens: 3, ..Default::default() };
    for text in ["", &"c".repeat(25), &"a".repeat(600)] {
        assert_eq!(model.generate(text, &options).err().unwrap().status, 0x10);
    }
    let error = model.generate(&"c".repeat(25), &options).err().unwrap();
    assert!(error.to_string().contains("does not fit in what is left"));
    assert!(model.ask("k", Some("g\\0"), &options).is_err() && model.step(&[]).is_err() && model.step(&[40]).is_err());
    model.generate("cdef", &options)?.next().unwrap()?;
    model.reset();
    let tokens = model.encode("ab<end>")?;
    assert!(tokens == [39, 0] && token(39) == Some(b"ab") && token(40).is_none() && CONTEXT == 24);
    assert_eq!(model.step(&tokens)?.len(), VOCABULARY);
    let other = std::thread::spawn(move || model.length());
    assert_eq!(other.join().unwrap(), 2);
    Ok(())
}
""".replace("TEXTS", "\n".join(texts)))
    assert ran("cargo", "run", "-q", "--example", "texts", cwd=made).splitlines() == wanted
    assert "two_models_give_the_same ... ok" in ran("cargo", "test", cwd=made)


def test_a_class(gguf, wanted, tmp_path, monkeypatch):
    needs("cmake", "c++")
    monkeypatch.setenv("CXXFLAGS", "-Wall -Wextra -Werror -fno-exceptions -fno-rtti")
    made = exported(gguf, "cpp", tmp_path)
    texts = []
    for asks, system, text, options in TEXTS:
        stops = options.get("stop", [])
        texts += ["    model.reset();"] * (system is not None)
        texts.append("    {\n        some_lm::Options options;\n        "
                     + numbers(options, "options.NAME = VALUE;", " ")
                     + (f"\n        const char *stop[] = {{{quoted(stops)}}};\n        options.stop = stop;\n"
                        f"        options.stops = {len(stops)};" if stops else "")
                     + (f"\n        options.system = {json.dumps(system)};" if system else "")
                     + f"\n        show(model.{'ask' if asks else 'generate'}({json.dumps(text)}, options));\n    }}")
    (made / "examples/generate.cpp").write_text("""
#include "some_lm.hpp"
#include <cmath>
#include <cstdio>
#include <string>
static some_lm::Model model;
static void show(some_lm::Model::Pieces pieces)
{
    for (std::string_view piece : pieces)
        std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::puts(model.ok() ? "" : "failed");
}
static bool refused(std::string_view text, const some_lm::Options &options, std::string_view where)
{
    model.reset();
    for (std::string_view piece : model.generate(text, options))
        return piece.empty();
    return model.status() == MEGCC_E_ARGUMENT && model.where() == where && model.length() == 0;
}
int main()
{
TEXTS
    int wrong = 0;
    for (float number : {INFINITY, NAN, -1.0f}) {
        some_lm::Options options;
        options.temperature = number;
        wrong += !refused("c", options, "options");
        options.temperature = 0;
        options.repetition_penalty = number;
        wrong += !refused("c", options, "options");
    }
    some_lm::Options options;
    options.stops = 1;
    wrong += !refused("c", options, "options");
    options.stops = 0;
    wrong += !refused("", options, "tokens") + !refused({}, options, "tokens");
    wrong += !refused(std::string(25, 'c'), options, "context") + !refused(std::string(600, 'a'), options, "work");
    std::string taken;
    model.reset();
    options.max_tokens = 9;
    const bool ended = model.generate("cdef", options, [&](std::string_view piece) {
        taken += piece;
        return taken.size() < 3;
    });
    wrong += !ended + (taken.size() != 3);
    std::uint32_t tokens[9];
    model.reset();
    wrong += model.encode("ab<end>", tokens, 9) != 2 || tokens[0] != 39 || some_lm::Model::token(39) != "ab";
    wrong += !model.step(tokens, 2) || model.length() != 2 || some_lm::Model::token(40).data();
    wrong += model.step(nullptr, 1) || model.step(tokens, 0) || model.ok();
    return wrong;
}
""".replace("TEXTS", "\n".join(texts)))
    ran("cmake", "-S", ".", "-B", "build", cwd=made)
    ran("cmake", "--build", "build", "-j2", cwd=made)
    assert ran("build/generate", cwd=made).splitlines() == wanted


def test_go(gguf, wanted, tmp_path, monkeypatch):
    needs("go", "cc")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    texts = []
    for asks, system, text, options in TEXTS:
        named = {"".join(map(str.capitalize, name.split("_"))): value for name, value in options.items()}
        fields = numbers({name: value for name, value in named.items() if name != "Stop"}, "NAME: VALUE")
        fields += f", Stop: []string{{{quoted(options.get('stop', []))}}}, System: {json.dumps(system or '')}"
        texts += ["\tmodel.Reset()"] * (system is not None)
        texts.append(f"\tshow(model.{'Ask' if asks else 'Generate'}({json.dumps(text)}, Options{{{fields}}}))")
    made = exported(gguf, "go", tmp_path)
    (made / "texts_test.go").write_text("""package some_lm

import "fmt"

func show(pieces Pieces) {
\ttext, err := collect(pieces)
\tif err != nil {
\t\tpanic(err)
\t}
\tfmt.Println(text)
}

func Example() {
\tmodel, err := New()
\tif err != nil {
\t\tpanic(err)
\t}
TEXTS
\tmodel.Reset()
\tfirst := model.Generate("cdef", Options{})
\tfirst(func(piece string, err error) bool {
\t\tmodel.Reset()
\t\tfmt.Println(err == nil || err == ErrInterrupted)
\t\treturn true
\t})
\tfor _, options := range []Options{{Stop: []string{"a\\x00b"}}, {TopP: 2}, {Stop: make([]string, 17)}} {
\t\t_, err := collect(model.Generate("c", options))
\t\tfmt.Println(err != nil)
\t}
\t// Output:
WANTED
}
""".replace("TEXTS", "\n".join(texts)).replace(
        "WANTED", "\n".join(f"\t// {line}" for line in [*wanted, *["true"] * 5])))
    assert "ok" in ran("go", "test", ".", cwd=made)


def test_java(gguf, wanted, tmp_path, monkeypatch):
    texts = []
    for asks, system, text, options in TEXTS:
        fields = numbers({camel(name): value for name, value in options.items()}, "options.NAME = VALUE;", " ")
        for name in ("temperature", "topP", "minP", "repetitionPenalty"):
            fields = re.sub(rf"(options.{name} = [^;]+)", r"\1f", fields)
        fields = re.sub(r"(options.seed = [^;]+)", r"\1L", fields)
        texts += ["        model.reset();"] * (system is not None)
        texts.append(f"        options = new Model.Options(); {fields} options.stop = new String[] {{"
                     f"{quoted(options.get('stop', []))}}}; options.system = {json.dumps(system or None)};\n"
                     f"        model.{'ask' if asks else 'generate'}({json.dumps(text)}, options, show);\n"
                     "        System.out.println();")
    made = exported(gguf, "android", tmp_path, "x86-64,arm64")
    assert java(made, "some_lm", """
import some_lm.Model;
public final class Main {
    static void refused(Model model, String text, Model.Options options) {
        model.reset();
        try {
            model.generate(text, options, piece -> true);
        } catch (IllegalArgumentException error) {
            if (model.length() == 0)
                return;
        }
        throw new AssertionError(text);
    }
    public static void main(String[] arguments) {
        Model model = new Model();
        Model.Options options;
        Model.Listener show = piece -> {
            System.out.print(piece);
            return true;
        };
TEXTS
        for (float wrong : new float[] {Float.POSITIVE_INFINITY, Float.NaN, -1}) {
            options = new Model.Options();
            options.temperature = wrong;
            refused(model, "c", options);
            options.temperature = 0;
            options.repetitionPenalty = wrong;
            refused(model, "c", options);
        }
        options = new Model.Options();
        options.maxTokens = -1;
        refused(model, "c", options);
        options = new Model.Options();
        options.stop = new String[] {"a\\0b"};
        refused(model, "c", options);
        options.stop = new String[0];
        options.system = "a\\0";
        refused(model, "c", options);
        for (String text : new String[] {"", "c".repeat(25), "a".repeat(600)})
            refused(model, text, null);
        try {
            model.generate(null, null, show);
            throw new AssertionError();
        } catch (NullPointerException error) {
        }
        model.reset();
        StringBuilder taken = new StringBuilder();
        model.generate("cdef", null, piece -> taken.append(piece).length() < 3);
        model.reset();
        int[] tokens = model.encode("ab<end>");
        float[] logits = model.step(tokens);
        if (taken.length() != 3 || tokens.length != 2 || tokens[0] != 39 || model.length() != 2
            || !new String(Model.token(39)).equals("ab") || Model.token(40) != null
            || logits.length != Model.VOCABULARY)
            throw new AssertionError(taken.toString());
        for (int[] wrong : new int[][] {{}, {40}, {-1}, new int[25]})
            try {
                model.step(wrong);
                throw new AssertionError();
            } catch (IllegalArgumentException error) {
            }
        model.close();
        model.close();
        try {
            model.reset();
            throw new AssertionError();
        } catch (IllegalStateException error) {
        }
    }
}
""".replace("TEXTS", "\n".join(texts)), monkeypatch).splitlines() == wanted


def test_swift(gguf, tmp_path):
    """The C compiles against its header; where there is Swift, its tests pass."""
    needs("cc")
    made = exported(gguf, "swift", tmp_path, "x86-64,arm64")
    assert (made / "Sources/some_lm/small.megcc").exists() and not list(made.glob("src/*_data*"))
    assert '.copy("small.megcc")' in (made / "Package.swift").read_text()
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Isrc"]
    ran("cc", *flags, "src/some_lm_block.c", "src/small_lm.c", cwd=made)
    if shutil.which("swift"):
        ran("swift", "test", cwd=made)


def test_systems_without_language_models(gguf, tmp_path, capsys):
    folder = compiled(gguf, "c", tmp_path / "small")
    for system in ("zephyr", "arduino", "meson", "tvm-ffi"):
        assert main(["export", str(folder), "--for", system, "-o", str(tmp_path / system)]) == 1
        assert f"is a language model, which has no package for {system}: export it for " in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"container_bytes": 1 << 32}, {"programs": [{"arena_bytes": 7 << 30}]}],
                         ids=["weights", "context"])
def test_models_beyond_32_bits(gguf, change, tmp_path):
    """The functions of a package count bytes in 32 bits: a session would get too little memory."""
    folder = compiled(gguf, "c", tmp_path / "small")
    manifest = read_manifest(folder)
    assert packages.LanguageModel.of(folder, manifest)
    manifest = {**manifest, "models": [manifest["models"][0] | change]}
    with pytest.raises(MegccError, match=r"4\.0 GB|7\.0 GB"):
        packages.LanguageModel.of(folder, manifest)
