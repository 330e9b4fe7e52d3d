# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for npm`: the module gives in node what the model gives, and its page runs in Chromium."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.export import npm

from ..models.test_strings import HOSTILE as TEXTS
from ..models.test_strings import echo
from ..tools.test_report import BROWSERS, QUIET
from .test_languages import written

DIGITS = paths.examples() / "digits.onnx"
#: Reads arrays of float32 by name from stdin, runs the model so many times, and writes what the last run gives.
SCRIPT = """
import { readFileSync } from "node:fs";
import { inputs, load } from "./index.js";
const { arrays, runs } = JSON.parse(readFileSync(0));
const model = await load();
for (const wrong of [{}, { nothing: new Float32Array(1) }, [new Int8Array(64)], [new Float32Array(3)]]) {
  let refused = false;
  try { model.run(wrong); } catch (error) { refused = error instanceof TypeError; }
  if (!refused) throw new Error(`not refused: ${JSON.stringify(wrong)}`);
}
const said = (given) => { try { model.run(given); return ""; } catch (error) { return error.message; } };
const first = inputs.find((port) => !port.kept).name;
for (const [given, text] of [[undefined, `the model takes ${first}`],
                             [{ nothing: 1 }, `no input nothing; the model takes ${first}`],
                             [new Int8Array(3), "and is a Int8Array of 3"], [[null], "and is null"]])
  if (!said(given).includes(text)) throw new Error(said(given));
let found;
for (let run = 0; run < runs; run++)
  found = model.run(Object.fromEntries(arrays.map(([name, values]) => [name, Float32Array.from(values)])));
const ports = inputs.map((port) => port.name);
const lists = Object.entries(found).map(([name, values]) => [name, Array.from(values)]);
console.log(JSON.stringify({ ports, found: lists }));
"""


@pytest.fixture(autouse=True)
def tools():
    try:
        find_compiler(TARGETS["wasm32-simd128"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    if not shutil.which("node"):
        pytest.skip("no node on this machine")


def ran(folder: Path, arrays: dict[str, np.ndarray], runs: int = 1) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names of the inputs, and the outputs, of the package in node."""
    (folder / "given.mjs").write_text(SCRIPT)
    given = {"arrays": [[name, array.ravel().tolist()] for name, array in arrays.items()], "runs": runs}
    done = subprocess.run(["node", folder / "given.mjs"], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return said["ports"], {name: np.array(values, np.float32) for name, values in said["found"]}


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])
def test_the_module_gives_what_the_model_gives(beside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["export", str(DIGITS), "--for", "npm", "--name", "@some/digit-net", "-q",
               *["--separate-weights"] * beside]
    assert main(command) == 0
    package = tmp_path / "digit_net_npm"
    assert json.loads((package / "package.json").read_text())["name"] == "@some/digit-net"
    assert (package / "digit_net.megcc").exists() == beside
    assert (package / "digit_net.wasm").stat().st_size < (50_000 if beside else 90_000)
    image = np.random.default_rng(0).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)
    folder = tvm_megcc.compile(DIGITS, "wasm32-simd128").save(tmp_path / "same")
    wanted = tvm_megcc.load(folder).run({"image": image})["logits"].ravel()
    names, found = ran(package, {"image": image})
    assert names == ["image"]
    np.testing.assert_array_equal(found["logits"], wanted)
    done = subprocess.run(["node", "test.mjs"], cwd=package, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("logits: ") and done.stdout.endswith(" ms\n")
    (package / "one.mjs").write_text("""
import { load } from "./index.js";
const model = await load(), image = new Float32Array(64).fill(3);
console.log(model.run(image).logits.join() === model.run({ image }).logits.join());
""")
    assert subprocess.run(["node", package / "one.mjs"], capture_output=True, text=True).stdout == "true\n"


@pytest.mark.parametrize("name", ["http", "node_modules", "stream"])
def test_reserved_names_are_refused(name, tmp_path):
    folder = tvm_megcc.compile(DIGITS, "wasm32").save(tmp_path / "digits")
    with pytest.raises(MegccError, match="reserved by npm"):
        npm.package(folder, name)


HOSTILE = "*/ `</script>'\"\\${x}\u2028\n__"


@pytest.mark.slow
def test_states_are_kept_and_names_are_no_code(tmp_path):
    """Each run adds its input to the state; the names would end comments, literals and fences, or be a prototype."""
    made = model([node("Add", "__proto__ h", "y"), node("Identity", "y", "n")], {"__proto__": [4], "h": [4]},
                 {"y": [4], "n": [4]})
    made.graph.node[0].output[0] = made.graph.node[1].input[0] = made.graph.output[0].name = HOSTILE
    folder = tvm_megcc.compile(saved(made, tmp_path / "sum.onnx"), "wasm32", states={"n": "h"}).save(tmp_path / "sum")
    for name, data in npm.package(folder).items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(data)
    x = np.arange(4, dtype=np.float32)
    names, found = ran(tmp_path / "out", {"__proto__": x}, runs=3)
    assert names == ["__proto__", "h"] and list(found) == [HOSTILE]
    np.testing.assert_array_equal(found[HOSTILE], 3 * x)


@pytest.mark.slow
def test_strings_are_given_and_taken(tmp_path):
    """Also those that would end a literal, and two that the network does not know."""
    strings = [*TEXTS, "unknown", "other"]
    folder = tvm_megcc.compile(echo(list(TEXTS)), "wasm32", dims={"rows": len(strings)}, name="echo").save(
        tmp_path / "echo")
    made = written(npm.package(folder), tmp_path / "out")
    (made / "given.mjs").write_text("""
import { readFileSync } from "node:fs";
import { load, strings } from "./index.js";
const model = await load(), x = JSON.parse(readFileSync(0));
let refused = false;
const numbers = BigInt64Array.from(x, (_, index) => BigInt(index));
try { model.run({ x: x.map(() => 1), n: numbers }); } catch (error) { refused = error instanceof TypeError; }
const found = model.run({ x, n: numbers });
console.log(JSON.stringify({ refused, known: strings.length, text: found.text, same: found.same }));
""")
    done = subprocess.run(["node", made / "given.mjs"], input=json.dumps(strings), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    readme = (made / "README.md").read_text()
    assert '"x": Array(' in readme and 'outputs["same"]; // Array, strings[' in readme and "BigInt64Array(" in readme
    assert found["refused"] and found["known"] == len({*TEXTS, "none of them"}) and found["same"] == strings
    assert found["text"] == [*TEXTS, "none of them", "none of them"]


@pytest.mark.slow
def test_a_level_that_few_compilers_know(tmp_path):
    """Relaxed vectors: where clang is too old, zig links the module, with arguments of its own."""
    folder = tvm_megcc.compile(DIGITS, "wasm32-relaxed").save(tmp_path / "digits")
    try:
        module = npm.package(folder)["digits.wasm"]
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert module.startswith(b"\0asm") and len(module) < 90_000


#: A program that uses the package as its types say, and in ways that they must refuse.
TYPED = """
import { inputs, load, Model, type Inputs, type Outputs } from "./index.js";

const model: Model = await load({ wasm: new URL("digits.wasm", import.meta.url) });
const given: Inputs = { image: new Float32Array(inputs[0].shape.reduce((all, extent) => all * extent, 1)) };
const found: Outputs = model.run(given);
const same: Float32Array = model.run([given.image]).logits;
const scale: number | undefined = inputs[0].scale;
model.reset();
console.log(found.logits.length, same[0], scale, new inputs[0].array(4));
// @ts-expect-error: another name
model.run({ picture: given.image });
// @ts-expect-error: another type
model.run({ image: new Int8Array(64) });
// @ts-expect-error: no such output
console.log(found.probabilities);
// @ts-expect-error: what is read only
inputs[0].name = "x";
"""


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])
def test_the_types(beside, tmp_path):
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("no TypeScript on this machine: npm install -g typescript")
    package = tmp_path / "digits"
    assert main(["export", str(DIGITS), "--for", "npm", "-o", str(package), "-q",
                 *["--separate-weights"] * beside]) == 0
    (package / "use.ts").write_text(TYPED)
    options = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext",
               "--lib", "es2022,dom", "--types", ""]
    done = subprocess.run([compiler, *options, "use.ts"], cwd=package, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def shown(package: Path) -> str:
    """What the page of a package shows in Chromium."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    handler = functools.partial(_Quiet, directory=package)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run(
            [browser, *QUIET, f"--user-data-dir={package.parent / 'profile'}", "--virtual-time-budget=20000",
             "--dump-dom", f"http://127.0.0.1:{server.server_port}/example/"], capture_output=True, text=True,
            timeout=120)
    finally:
        server.shutdown()
    result = done.stdout.partition('<pre id="result">')[2].partition("</pre>")[0]
    assert result.endswith(" ms"), done.stdout + done.stderr
    return result


@pytest.mark.slow
def test_the_page_runs_in_a_browser(tmp_path):
    assert main(["export", str(DIGITS), "--for", "npm", "-o", str(tmp_path / "digits"), "-q",
                 "--separate-weights"]) == 0
    assert shown(tmp_path / "digits").startswith("logits: [")


@pytest.mark.parametrize(("given", "message"), [
    ({"target": "c"}, "not for WebAssembly"), ({"dispatch": "image[0]=1..*"}, "has no upper bound"),
    ({"name": "Digits"}, "no name of an npm package"), ({"name": "../x"}, "no name of an npm package"),
    ({"version": "1"}, "three numbers"), ({"url": "javascript:x"}, "no address")])
def test_refusals(given, message, tmp_path):
    compiled = {key: given.pop(key) for key in ("dispatch",) if key in given}
    folder = tvm_megcc.compile(DIGITS, given.pop("target", "wasm32"), **compiled).save(tmp_path / "digits")
    with pytest.raises(MegccError, match=message):
        npm.package(folder, **given)
