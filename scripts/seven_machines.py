#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/seven-machines.md: networks on seven machines, and the hash of what each of them computes.

    python scripts/seven_machines.py > docs/seven-machines.md     # from the checkout, with the models in $MEGCC_MODELS
"""

from __future__ import annotations

import functools
import http.server
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tvm_megcc
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS
from tvm_megcc.tools import verify
from tvm_megcc.tools.export import npm
from tvm_megcc.version import VERSION

#: Machines by target; WebAssembly is run twice.
MACHINES = {"x86-64-v3": "x86-64 with AVX2", "arm64": "64-bit Arm", "armv7": "32-bit Arm", "riscv64": "64-bit RISC-V",
            "cortex-m7": "Cortex-M7, a microcontroller"}
WEB = "wasm32-simd128"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: A browser that shows nothing and fetches nothing by itself.
ALONE = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")
#: Seconds that a browser has.
PATIENCE = 240

#: The hash of `megcc verify` (docs/reproducible.md) in JavaScript, as a module beside the package for npm.
DIGEST = """\
import { inputs, load, outputs } from "./index.js";

function mixed(x) {
  x = Math.imul(x ^ x >>> 16, 0x85ebca6b);
  x = Math.imul(x ^ x >>> 13, 0xc2b2ae35);
  return (x ^ x >>> 16) >>> 0;
}

function testInput(port, index, run) {
  const array = new port.array(port.shape.reduce((a, b) => a * b, 1));
  const real = port.type === "float32";
  if (!real && port.type !== "int8" && port.type !== "uint8") throw new TypeError(port.type);
  return array.map((_, i) => {
    const byte = mixed(i + index * 2 ** 20 + run * 2 ** 28) >>> 24;
    return real ? byte / 128 - 1 : byte;
  });
}

export async function digest() {
  const { subtle } = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
  const model = await load(), given = inputs.filter((port) => !port.kept), found = [];
  for (let run = 0; run < (given.length < inputs.length ? RUNS : 1); run++) {
    const result = model.run(given.map((port, index) => testInput(port, index, run)));
    for (const port of outputs) if (!port.kept) found.push(result[port.name].map((x) => x === x ? x : NaN));
  }
  const hash = new Uint8Array(await subtle.digest("SHA-256", await new Blob(found).arrayBuffer()));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
"""
PAGE = """\
<!doctype html><script type="module">
const said = import("./digest.js").then(({ digest }) => digest()).catch((error) => `error: ${error}`);
fetch("/said", { method: "POST", body: await said });
</script>
"""
HEAD = f"""\
# One network, seven machines

Written by `python scripts/seven_machines.py`, with tvm_megcc {VERSION}: each network is compiled once, built for each
machine, and run there or in an emulator on the inputs of [`megcc verify`](reproducible.md#what-is-hashed); its outputs
are hashed. A test does the same with the emulators that a machine has installed.

"""


@dataclass(frozen=True)
class Network:
    """name: of the folder in $MEGCC_MODELS. what: of its numbers. arguments: of `tvm_megcc.compile`."""

    name: str
    what: str
    file: str = "model.onnx"
    arguments: dict = field(default_factory=dict)


NETWORKS = (
    Network("silero_vad_16k_static", "voice activity, float32, `--reproducible`, three steps of a stream",
            arguments={"states": {"stateN": "state"}, "reproducible": True}),
    Network("kws_dscnn_f32", "keyword spotting, float32, `--reproducible`",
            arguments={"input_shapes": {"input_1": (1, 49, 10, 1)}, "reproducible": True}),
    Network("mobilenet_v1_025_224_uint8", "MobileNetV1 0.25, 8-bit integers", "model.tflite"),
)


def digests(model: str | Path, name: str, **arguments) -> Iterator[tuple[str, str, str, str]]:
    """Machine, compiler, what runs it, and the hash, or why there is none ("no …"), for each of the seven."""
    with tempfile.TemporaryDirectory() as aside:
        compiled = tvm_megcc.compile(model, ",".join([*MACHINES, WEB]), name=name, **arguments)
        folder = compiled.save(Path(aside) / name)
        for target, machine in MACHINES.items():
            yield machine, *_by(target), _attempt(
                lambda target=target: verify.verify(folder, [TARGETS[target]])["targets"][0]["sha256"])
        package = Path(aside) / "package"
        try:
            files = npm.package(folder)
        except MissingTool as missing:
            for run in ("node", "Chromium"):
                yield f"WebAssembly in {run}", "", "", _reason(missing)
            return
        files |= {"digest.js": DIGEST.replace("RUNS", str(verify.RUNS)).encode(), "digest.html": PAGE.encode()}
        for path, data in files.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_bytes(data)
        compiler = _by(WEB)[0]
        yield "WebAssembly in node", compiler, "node", _attempt(lambda: in_node(package))
        yield "WebAssembly in Chromium", compiler, "Chromium", _attempt(lambda: in_browser(package))


def in_node(package: Path) -> str:
    """The hash that the package gives in node."""
    node = shutil.which("node")
    if node is None:
        raise MissingTool("no node")
    code = f'import({str((package / "digest.js").as_uri())!r}).then((m) => m.digest()).then(console.log)'
    done = subprocess.run([node, "-e", code], capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise MegccError(f"node: {done.stderr}")
    return done.stdout.strip()


def in_browser(package: Path) -> str:
    """The hash that the package gives in a browser, which is told the page's address and answers to it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise MissingTool("no Chromium")
    answers: queue.Queue[str] = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            answers.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(package)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [browser, *ALONE, f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_port}/digest.html"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            answer = answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise MegccError(f"{browser} does not answer") from None
        finally:
            process.terminate()
            process.wait()
            server.shutdown()
    if answer.startswith("error"):
        raise MegccError(f"{browser}: {answer}")
    return answer


def _attempt(run) -> str:
    try:
        return run()
    except MissingTool as missing:
        return _reason(missing)


def _reason(missing: MissingTool) -> str:
    return "no " + str(missing).splitlines()[0].removeprefix("no ")


def _by(target: str) -> tuple[str, str]:
    """The compiler of a target and what runs it here."""
    try:
        compiler = Path(find_compiler(TARGETS[target]).command[0]).name
        emulator = find_emulator(TARGETS[target])
    except MissingTool:
        return "", ""
    return compiler, Path(emulator[0]).name if emulator else "this machine"


def main() -> None:
    models = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[2] / "shared" / "models"))
    text = HEAD
    for network in NETWORKS:
        rows = list(digests(models / network.name / network.file, network.name, **network.arguments))
        found = {hash_ for *_, hash_ in rows if not hash_.startswith("no ")}
        text += f"## `{network.name}`\n\n{network.what[0].upper()}{network.what[1:]}.\n\n"
        text += f"SHA-256: `{found.pop()}` on all.\n\n" if len(found) == 1 else f"{len(found)} hashes.\n\n"
        text += "| machine | compiler | run by | SHA-256 begins with |\n|---|---|---|---|\n"
        for machine, compiler, runner, hash_ in rows:
            cell = f"left out: {hash_}" if hash_.startswith("no ") else f"`{hash_[:16]}`"
            text += f"| {machine} | {compiler} | {runner} | {cell} |\n"
        text += "\n"
    print(text.rstrip())


if __name__ == "__main__":
    main()
