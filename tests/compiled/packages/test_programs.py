# SPDX-License-Identifier: Apache-2.0
"""`megcc export` of programs of several networks: what each language gets is what `megcc program run` prints, bit for
bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.tokenizers import test_c_wordpiece
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.codegen.packages import program as packages
from tvm_megcc.errors import MegccError
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.program.program import Program

from .test_languages import needs, ran
from .test_mobile import java
from .test_npm import shown
from .test_readmes import missing

pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
#: A label is a separator of lines and one begins with a byte order mark: texts that languages like to change.
LABELS = {"labels": ["a", "ß", " ", "🦀", "\u2028", "\ufeffx", ""]}
RUNS, RESET = 4, 2
#: Strings of each run: the first input of them, and the rows of the second one.
STRINGS = (("", "", ""), ("the ß🦀 of", "x", ""), ("a" * 24, "of", "the" * 5), ("To\u2028be\ufeff", "", "🦀🦀🦀🦀"))


@cache
def tokenizer() -> str:
    """A tokenizer.json; another training would number its tokens in another way."""
    return json.dumps(test_c_wordpiece.vocabulary("uncased", 400))


def hostile(folder: Path) -> Program:
    """A picture, a sound with a state, tokens that become a string, and strings in a loop, and strings that become
    tokens, whose names are words of Rust, Go, Java, Kotlin, Swift, Python and of the generated code."""
    path = folder / "tokenizer.json"
    folder.mkdir(exist_ok=True)
    path.write_text(tokenizer())
    loop = Program.Loop(
        "each", [Program.Text("labels", {"tokens": "row"}, {"text": "line", "bytes": "length"}, LABELS)], 3,
        count="byte", for_each={"row": "match"}, outputs={"string": "line", "lambda": "length"})
    read = Program.Loop("each_string", [Program.Tokenizer(str(path), {"text": "each_row"}, {"tokens": "ids"},
                                                          {"most": 12})],
                        2, for_each={"each_row": "fallthrough"}, outputs={"def": "ids"})
    return Program(
        "fn", {"self": "uint8[12,16,3]", "func": "float32[64]", "match": "int64[3,4]", "byte": "int64[1]",
               "in": "uint8[24]", "fallthrough": "uint8[2,16]"},
        [Program.Image("resize", "self", "is", {"size": [6, 8]}), Program.Operator("Add", ["func", "range"], ["var"]),
         Program.Operator("ReduceSum", ["match", [0]], ["sum"], {"keepdims": 0}),
         Program.Operator("Mod", ["sum", [7]], ["tokens"]),
         Program.Text("labels", {"tokens": "tokens"}, {"text": "model"}, LABELS), loop,
         Program.Tokenizer(str(path), {"text": "in"}, {"tokens": "let"}, {"most": 12}), read],
        ["var", "is", "model", "string", "lambda", "let", "def"], {"range": Program.State("float32[64]", "var")},
        {"func": 16000})


def given() -> Iterator[dict[str, np.ndarray]]:
    random = np.random.default_rng(7)
    for run in range(RUNS):
        yield {"self": random.integers(0, 256, (12, 16, 3), np.uint8),
               "func": random.standard_normal(64).astype(np.float32),
               "match": random.integers(0, 6 + (run > 0), (3, 4)), "byte": np.array([run]),
               "in": rows(STRINGS[run][:1], 24)[0], "fallthrough": rows(STRINGS[run][1:], 16)}


def rows(strings: Sequence[str], size: int) -> np.ndarray:
    return np.array([list(each.encode().ljust(size, b"\0")) for each in strings], np.uint8)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory) -> list[str]:
    """What a run says of each output: its bytes in hexadecimal digits, those of several texts with "|" between them."""
    session, found = tvm_megcc.load(hostile(tmp_path_factory.mktemp("wanted")).compile(
        tmp_path_factory.mktemp("wanted") / "fn", "c")), []
    for run, inputs in enumerate(given()):
        if run == RESET:
            session.reset()
        results = session.with_strings(session.run(inputs))
        texts = {"model": results["model"].item(), "string": "|".join(results["string"])}
        found += [texts[name].encode().hex() if name in texts else array.tobytes().hex()
                  for name, array in results.items()]
    assert len(set(found)) > 4 * RUNS - 2
    return found


def raw(folder: Path) -> Path:
    """The inputs of all runs as a file that is compiled into the program or read by it."""
    path = folder / "inputs.bin"
    path.write_bytes(b"".join(array.tobytes() for inputs in given() for array in inputs.values()))
    return path


def exported(system: str, folder: Path, target: str = "c") -> Path:
    made = hostile(folder).compile(folder / "fn", target)
    assert main(["export", str(made), "--for", system, "--name", "some_fn", "-q", "-o", str(folder / "out")]) == 0
    return folder / "out"


PYTHON = """
import sys
import numpy as np
import some_fn
model = some_fn.Model()
assert some_fn.inputs[1].sample_rate == 16000
assert [port.string_count for port in some_fn.outputs] == [0, 0, 1, 3, 0, 0, 0]
data = open(sys.argv[1], "rb")
for run in range(4):
    if run == 2:
        model.reset()
    given = {port.name: np.fromfile(data, port.dtype, int(np.prod(port.shape))).reshape(port.shape)
             for port in some_fn.inputs}
    given["in"] = given["in"].tobytes().rstrip(b"\\0").decode()
    given["fallthrough"] = [row.tobytes().rstrip(b"\\0").decode() for row in given["fallthrough"]]
    if not given["fallthrough"][1]:
        given["fallthrough"].pop()
    outputs = model.run(given)
    for value in outputs.values():
        if isinstance(value, list):
            value = "|".join(value)
        print((value.encode() if isinstance(value, str) else value.tobytes()).hex())
for wrong in ({}, {"self": 1}, [np.zeros(64, np.float32)], [np.zeros((12, 16, 3), np.uint8), np.zeros(63, np.float32),
              np.zeros((3, 4), np.int64), np.zeros(1, np.int64)]):
    try:
        model.run(wrong)
        raise SystemExit("not refused")
    except TypeError:
        pass
for name, wrong in (("in", "a" * 25), ("in", "🦀" * 7), ("in", "a\\0"), ("in", ["a", "b"]), ("fallthrough", [""] * 3)):
    try:
        model.run({**given, name: wrong})
        raise SystemExit("not refused")
    except ValueError:
        pass
"""


def python(wheel: Path, script: str, *arguments: object) -> str:
    """What a script prints that imports the package of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    path = f"{wheel.parent / 'site'}{os.pathsep}{Path(np.__file__).parents[1]}"
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True,
                          check=False, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel(wanted, tmp_path):
    made = exported("wheel", tmp_path, "native")
    (wheel,) = made.glob("*.whl")
    assert python(wheel, PYTHON, raw(tmp_path)).splitlines() == wanted


JAVASCRIPT = """
import { readFileSync } from "node:fs";
import { inputs, load, outputs } from "./index.js";
const ok = (condition) => { if (!condition) throw new Error("wrong"); };
ok(inputs[1].sampleRate === 16000 && outputs[3].stringCount === 3);
const model = await load(), { buffer } = new Uint8Array(readFileSync(process.argv[2]));
let offset = 0;
for (let run = 0; run < 4; run++) {
  if (run === 2) model.reset();
  const given = inputs.map(({ array, shape, stringCount }) => {
    const length = shape.reduce((a, b) => a * b, 1), begin = offset;
    offset += length * array.BYTES_PER_ELEMENT;
    const text = (begin, end) => Buffer.from(buffer.slice(begin, end)).toString().replace(/\\0+$/, "");
    if (stringCount === 1) return text(begin, offset);
    if (stringCount === 2) return [text(begin, begin + 16), text(begin + 16, offset)];
    return new array(buffer.slice(begin, offset));
  });
  for (const value of Object.values(model.run(given))) {
    const text = Array.isArray(value) ? value.join("|") : value;
    console.log((typeof text === "string" ? Buffer.from(text) : Buffer.from(text.buffer)).toString("hex"));
  }
}
for (const wrong of [{}, [], new Float32Array(64), inputs.map(({ array }) => new array(1))]) {
  try {
    model.run(wrong);
  } catch (error) {
    ok(error instanceof TypeError);
    continue;
  }
  throw new Error("not refused");
}
const zeros = ({ array, shape }) => new array(shape.reduce((a, b) => a * b, 1));
const given = inputs.map((port) => port.stringCount ? [] : zeros(port));
model.run(given);
for (const [index, wrong] of [[4, "a".repeat(25)], [4, "a\\0"], [5, ["", "", ""]], [4, 3]]) {
  try {
    model.run(given.map((each, at) => at === index ? wrong : each));
  } catch (error) {
    ok(error instanceof (wrong === 3 ? TypeError : RangeError));
    continue;
  }
  throw new Error("not refused");
}
"""


@pytest.fixture(scope="module")
def npm(tmp_path_factory) -> Path:
    find_compiler(TARGETS["wasm32-simd128"])
    return exported("npm", tmp_path_factory.mktemp("npm"), "wasm32-simd128")


def test_npm(npm, wanted, tmp_path):
    needs("node")
    (npm / "texts.mjs").write_text(JAVASCRIPT)
    assert ran("node", "texts.mjs", raw(tmp_path), cwd=npm).splitlines() == wanted
    assert "undefined" not in ran("node", "test.mjs", cwd=npm)
    assert '  "model": string;\n' in (npm / "index.d.ts").read_text()


def test_the_page_runs_in_a_browser(npm):
    page = shown(npm)
    assert page.startswith("var: [") and '\nmodel: "aaaa"\nstring: ["","",""]\n' in page


RUST = """use some_fn::{Arena, Error, Model};
use std::io::Read;
fn hex(bytes: &[u8]) {
    println!("{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
}
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim_end_matches('\\0')
}
fn main() -> Result<(), Error> {
    let mut arena = Box::new(Arena::new());
    let mut model = Model::new(&mut arena)?;
    let mut data = Vec::new();
    std::io::stdin().read_to_end(&mut data).unwrap();
    for (run, bytes) in data.chunks_exact(576 + 256 + 96 + 8 + 24 + 32).enumerate() {
        if run == 2 {
            model.reset();
        }
        let mut sound = [0f32; 64];
        let mut tokens = [0i64; 12];
        sound.iter_mut().zip(bytes[576..].chunks(4)).for_each(|(x, b)| *x = f32::from_ne_bytes(b.try_into().unwrap()));
        let numbers = bytes[832..928].chunks(8);
        tokens.iter_mut().zip(numbers).for_each(|(x, b)| *x = i64::from_ne_bytes(b.try_into().unwrap()));
        let count = [i64::from_ne_bytes(bytes[928..936].try_into().unwrap())];
        let outputs = model.run(bytes[..576].try_into().unwrap(), &sound, &tokens, &count, text(&bytes[936..960]),
            &[text(&bytes[960..976]), text(&bytes[976..])])?;
        hex(&outputs.var.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>());
        hex(outputs.is);
        hex(outputs.model_out2.as_bytes());
        hex(outputs.string.join("|").as_bytes());
        for numbers in [&outputs.lambda[..], outputs.let_out5, outputs.def] {
            hex(&numbers.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>());
        }
    }
    let (picture, sound, tokens) = ([0; 576], [0.0; 64], [0; 12]);
    for (text, rows) in [("a\\0", &[""][..]), (&"a".repeat(25), &[]), ("", &["", "", ""])] {
        assert_eq!(model.run(&picture, &sound, &tokens, &[0], text, rows).err(), Some(Error(0x10)));
    }
    model.run(&picture, &sound, &tokens, &[0], "", &[])?;
    Ok(())
}
"""


def test_a_crate_beside_that_of_a_network(wanted, tmp_path, monkeypatch):
    """They share a runtime, in which the program's networks have a memory region together."""
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = exported("rust", tmp_path)
    assert main(["export", saved(model([node("Neg", "x", "y")], {"x": [2]}, {"y": [2]}), tmp_path / "neg.onnx"),
                 "--for", "rust", "--name", "a_net", "--target", "c", "-q", "-o", str(tmp_path / "net")]) == 0
    (made / "Cargo.toml").write_text((made / "Cargo.toml").read_text()
                                     + '[dev-dependencies]\na_net = { path = "../net" }\n')
    (made / "examples/texts.rs").write_text(RUST.replace("    Ok(())", (
        "    let mut other = Box::new(a_net::Arena::new());\n"
        "    assert_eq!(a_net::Model::new(&mut other).unwrap().run(&[1.0, 2.0]).unwrap().y, &[-1.0, -2.0]);\n"
        "    Ok(())")))
    done = subprocess.run(["cargo", "run", "-q", "--example", "texts"], input=raw(tmp_path).read_bytes(), cwd=made,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == wanted
    assert "two_models_give_the_same ... ok" in ran("cargo", "test", cwd=made)


CPP = """#include "some_fn.hpp"
#include <cstdio>
#include <string>
static some_fn::Model model;
static void hex(const void *data, std::size_t size)
{
    for (std::size_t i = 0; i < size; i++)
        std::printf("%02x", static_cast<const unsigned char *>(data)[i]);
    std::puts("");
}
static std::string_view text(const char *bytes, std::size_t size)
{
    return std::string_view(bytes, size).substr(0, std::string_view(bytes, size).find('\\0'));
}
template <class T> static bool filled(T span)
{
    return std::fread(span.data(), sizeof *span.data(), span.size(), stdin) == span.size();
}
int main()
{
    for (int run = 0; filled(model.self_in0()) && filled(model.func()) && filled(model.match_in2())
                      && filled(model.byte()); run++) {
        if (run == 2)
            model.reset();
        char bytes[24 + 32];
        if (std::fread(bytes, sizeof bytes, 1, stdin) != 1 || !model.in_in4(text(bytes, 24))
            || !model.fallthrough(0, text(bytes + 24, 16)) || !model.fallthrough(1, text(bytes + 40, 16))
            || !model.run() || model.in_in4(std::string(25, 'a')) || model.in_in4(std::string(3, '\\0')))
            return 1;
        hex(model.var().data(), sizeof(float) * model.var().size());
        hex(model.is().data(), model.is().size());
        hex(model.model_out2().data(), model.model_out2().size());
        std::string texts(model.string(0));
        for (std::size_t i = 1; i < 3; i++)
            texts.append("|").append(model.string(i));
        hex(texts.data(), texts.size());
        hex(model.lambda().data(), 8 * model.lambda().size());
        hex(model.let_out5().data(), 8 * model.let_out5().size());
        hex(model.def().data(), 8 * model.def().size());
    }
    return !model.ok();
}
"""


def test_a_class(wanted, tmp_path, monkeypatch):
    needs("cmake", "c++")
    monkeypatch.setenv("CXXFLAGS", "-Wall -Wextra -Werror -fno-exceptions -fno-rtti")
    made = exported("cpp", tmp_path)
    ran("cmake", "-S", ".", "-B", "build", cwd=made)
    ran("cmake", "--build", "build", "-j2", cwd=made)
    assert ran("build/zeros", cwd=made).startswith("var: 0 0 0")
    (made / "examples/zeros.cpp").write_text(CPP)
    ran("cmake", "--build", "build", cwd=made)
    done = subprocess.run([made / "build/zeros"], input=raw(tmp_path).read_bytes(), capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == wanted


def test_java(wanted, tmp_path, monkeypatch):
    made = exported("android", tmp_path)
    assert java(made, "some_fn", """
import java.nio.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import some_fn.Model;
public final class Main {
    static void hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes)
            text.append(String.format("%02x", each));
        System.out.println(text);
    }
    static String text(ByteBuffer data, int size) {
        byte[] bytes = new byte[size];
        data.get(bytes);
        String found = new String(bytes, StandardCharsets.UTF_8);
        return found.indexOf('\\0') < 0 ? found : found.substring(0, found.indexOf('\\0'));
    }
    static void refused(Model model, int pixels, String text, String[] rows) {
        try {
            model.run(new byte[pixels], new float[64], new long[12], new long[1], text, rows);
        } catch (IllegalArgumentException error) {
            return;
        }
        throw new AssertionError();
    }
    public static void main(String[] arguments) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of("INPUTS"))).order(ByteOrder.nativeOrder());
        Model model = new Model();
        for (int run = 0; run < 4; run++) {
            if (run == 2)
                model.reset();
            byte[] picture = new byte[576];
            float[] sound = new float[64];
            long[] tokens = new long[12];
            data.get(picture);
            for (int i = 0; i < 64; i++)
                sound[i] = data.getFloat();
            for (int i = 0; i < 12; i++)
                tokens[i] = data.getLong();
            Model.Outputs outputs = model.run(picture, sound, tokens, new long[] {data.getLong()}, text(data, 24),
                new String[] {text(data, 16), text(data, 16)});
            ByteBuffer sums = ByteBuffer.allocate(256).order(ByteOrder.nativeOrder());
            for (float each : outputs.var_out0)
                sums.putFloat(each);
            hex(sums.array());
            hex(outputs.is_out1);
            hex(outputs.model_out2.getBytes(StandardCharsets.UTF_8));
            hex(String.join("|", outputs.string).getBytes(StandardCharsets.UTF_8));
            for (long[] numbers : new long[][] {outputs.lambda, outputs.let_out5, outputs.def}) {
                ByteBuffer bytes = ByteBuffer.allocate(8 * numbers.length).order(ByteOrder.nativeOrder());
                for (long each : numbers)
                    bytes.putLong(each);
                hex(bytes.array());
            }
        }
        refused(model, 575, "", new String[0]);
        refused(model, 576, "a".repeat(25), new String[0]);
        refused(model, 576, "\\0", new String[0]);
        refused(model, 576, "", new String[3]);
        model.close();
    }
}
""".replace("INPUTS", str(raw(tmp_path))), monkeypatch).splitlines() == wanted


GO = """package some_fn

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

func Example() {
	data, err := os.Open("inputs.bin")
	if err != nil {
		panic(err)
	}
	model, err := New()
	if err != nil {
		panic(err)
	}
	for run := 0; run < 4; run++ {
		if run == 2 {
			model.Reset()
		}
		given := zeros()
		for _, each := range []interface{}{given.Self_in0, given.Func_in1, given.Match_in2, given.Byte} {
			if err := binary.Read(data, binary.LittleEndian, each); err != nil {
				panic(err)
			}
		}
		var text [24]byte
		var rows [2][16]byte
		binary.Read(data, binary.LittleEndian, &text)
		binary.Read(data, binary.LittleEndian, &rows)
		given.In_in4 = strings.TrimRight(string(text[:]), "\\x00")
		for _, row := range rows {
			given.Fallthrough_in5 = append(given.Fallthrough_in5, strings.TrimRight(string(row[:]), "\\x00"))
		}
		outputs, err := model.Run(given)
		if err != nil {
			panic(err)
		}
		for _, each := range []interface{}{outputs.Var_out0, outputs.Is, []byte(outputs.Model_out2),
			[]byte(strings.Join(outputs.String, "|")), outputs.Lambda, outputs.Let_out5, outputs.Def} {
			var bytes strings.Builder
			binary.Write(&bytes, binary.LittleEndian, each)
			fmt.Println(hex.EncodeToString([]byte(bytes.String())))
		}
	}
	given := zeros()
	given.Byte = nil
	_, err = model.Run(given)
	fmt.Println(errors.Is(err, ErrLength))
	// Output:
WANTED
	// true
}
"""


def test_go(wanted, tmp_path, monkeypatch):
    needs("go", "cc")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    made = exported("go", tmp_path)
    raw(made)
    ran("go", "test", ".", cwd=made)
    (made / "model_test.go").write_text((made / "model_test.go").read_text().replace("func Example()", "func Shown()"))
    (made / "texts_test.go").write_text(GO.replace("WANTED", "\n".join(f"\t// {line}" for line in wanted)))
    assert "ok" in ran("go", "test", ".", cwd=made)


def test_swift(tmp_path):
    """The C compiles against its header; where there is Swift, its tests pass."""
    needs("cc")
    made = exported("swift", tmp_path)
    assert (made / "Sources/some_fn/fn.megcc").exists() and not list(made.rglob("*_data*"))
    assert '.copy("fn.megcc")' in (made / "Package.swift").read_text()
    assert "public let string: [String]\n" in (made / "Sources/some_fn/Model.swift").read_text()
    ran("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Isrc", "src/some_fn_block.c", "src/fn.c",
        cwd=made)
    if shutil.which("swift"):
        ran("swift", "test", cwd=made)


def test_weights_are_no_c_text_and_readmes_name_files(tmp_path):
    for system, path in (("cpp", "src/fn_data.bin"), ("rust", "src/fn_data.bin"), ("android", "src/fn_data.bin"),
                         ("go", "fn.megcc"), ("swift", "Sources/some_fn/fn.megcc")):
        made = exported(system, tmp_path / system)
        assert (made / path).read_bytes() == (tmp_path / system / "fn/fn.megcc").read_bytes()
        assert sum(file.stat().st_size for file in made.rglob("*_data*.c")) < 4000
        readme = (made / "README.md").read_text()
        assert missing(readme, made) == []
        assert "| input `func` | float32[64], sound of 16,000 samples a second |" in readme


def test_refusals(tmp_path, capsys):
    folder = hostile(tmp_path).compile(tmp_path / "fn", "c")
    for system in ("zephyr", "arduino", "cmake", "meson", "tvm-ffi"):
        assert main(["export", str(folder), "--for", system, "-o", str(tmp_path / system)]) == 1
        assert f"is a program of several networks, which has no package for {system}: export it for rust, cpp" \
            in capsys.readouterr().err
    for system, name, message in (("rust", "", "'fn' is no name of a package, but a word of rust"),
                                  ("npm", "", "compile the model again with --target wasm32-simd128"),
                                  ("wheel", "", "is for levels of one machine"), ("go", "A b", "is no name")):
        arguments = ["--name", name] if name else []
        assert main(["export", str(folder), "--for", system, *arguments, "-o", str(tmp_path / "no")]) == 1
        assert message in capsys.readouterr().err
    manifest = read_manifest(folder)
    assert packages.packaged(folder, manifest)
    for change, message in (({"container_bytes": 1 << 32}, r"4\.0 GB of weights, and packages of programs have"),
                            ({"block_bytes": 1 << 32}, r"4\.0 GB of memory")):
        with pytest.raises(MegccError, match=message):
            packages.packaged(folder, {**manifest, "program": manifest["program"] | change})


def test_voice_activity(tmp_path):
    """A sound in blocks: its states are those of a session."""
    models = Path(os.environ.get("MEGCC_MODELS", ""))
    if not (models / "silero_vad_16k_static").exists():
        pytest.skip("set MEGCC_MODELS")
    folder = Program.read("voice-activity", models).compile(tmp_path / "vad", "native")
    assert main(["export", str(folder), "--for", "wheel", "-q", "-o", str(tmp_path / "out")]) == 0
    blocks = np.random.default_rng(3).standard_normal((12, 512)).astype(np.float32) / 10
    np.save(tmp_path / "blocks.npy", blocks)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    said = python(wheel, "import sys, numpy, voice_activity\nmodel = voice_activity.Model()\n"
                  "for block in numpy.load(sys.argv[1]):\n    print(model.run(block)['speech'].tobytes().hex())",
                  tmp_path / "blocks.npy")
    with tvm_megcc.load(folder) as session:
        assert said.splitlines() == [session(block).tobytes().hex() for block in blocks]
