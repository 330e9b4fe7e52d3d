# SPDX-License-Identifier: Apache-2.0
"""tutorials/program: Chromium listens to a WAV file as its microphone, and finds a face in a picture that is dropped
on the page."""

from __future__ import annotations

import base64
import functools
import http.server
import io
import os
import queue
import shutil
import subprocess
import sys
import threading
import wave
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.tools.test_language_model_examples import _Handler
from tests.compiled.tools.test_report import BROWSERS, QUIET
from tvm_megcc.cli import main
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.program.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")]
EXAMPLES = Path(__file__).resolve().parents[3] / "tutorials" / "program"
BLUE = (37, 99, 235)
#: Listens until speech has begun and ended twice, then drops a picture; sends what the page showed.
DRIVER = """
<!doctype html><iframe src="program.html?sound=voice_activity_npm/&picture=faces_npm/" allow="microphone" width="900"
 height="900"></iframe>
<script type="module">
const frame = document.querySelector("iframe");
await new Promise((resolve) => (frame.onload = resolve));
const page = frame.contentDocument, by = (id) => page.getElementById(id), likelihoods = [], texts = [];
const until = async (holds) => { while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5)); };
const say = (what) => fetch("/", { method: "POST", body: JSON.stringify(what) });
setTimeout(() => say({ late: [by("heard").textContent, by("found").textContent, likelihoods] }), 60000);
await until(() => !by("listen").disabled && !by("file").disabled);
by("listen").click();
await until(() => by("meter-speech"));
let changes = 0;
await until(() => {
  if (by("heard").textContent !== texts.at(-1)) {
    texts.push(by("heard").textContent);
    likelihoods.push(by("meter-speech").value);
  }
  const spoken = likelihoods.at(-1) > 0.5;
  if (likelihoods.length && spoken !== (changes % 2 === 1) && (spoken || likelihoods.at(-1) < 0.2)) changes++;
  return changes === 4;
});
by("listen").click();
await until(() => by("listen").textContent === "Listen");
const file = new File([await (await fetch("face.jpg")).blob()], "face.jpg", { type: "image/jpeg" });
const dataTransfer = new DataTransfer(), before = by("found").textContent;
dataTransfer.items.add(file);
page.dispatchEvent(new frame.contentWindow.DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
await until(() => by("found").textContent !== before);
await say({ texts, likelihoods, found: by("found").textContent, picture: by("canvas").toDataURL("image/png") });
</script>
"""


def packages(models: Path, folder: Path) -> None:
    for name in ("voice-activity", "faces"):
        compiled = Program.read(name, models).compile(folder / name, "wasm32-simd128")
        assert main(["export", str(compiled), "--for", "npm", "-q", "-o",
                     str(folder / f"{name.replace('-', '_')}_npm")]) == 0


def speech(models: Path, path: Path) -> None:
    """Writes a second of sound whose last third is speech."""
    rows = np.load(models / "silero_vad_16k_static/sequence_speech.npz")["in:input"][:, 0, 64:]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((rows.reshape(-1) * 32767).astype("<i2").tobytes())


def shown(folder: Path, browser: str) -> dict:
    """What the page showed."""
    received: queue.Queue = queue.Queue()
    handler = functools.partial(_Handler, directory=folder, received=received)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = [option for option in QUIET if not option.startswith("--virtual-time")]
    running = subprocess.Popen([
        browser, *options, "--autoplay-policy=no-user-gesture-required", "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={folder / 'speech.wav'}",
        f"--user-data-dir={folder / 'profile'}", f"http://127.0.0.1:{server.server_port}/driver.html"],
        stderr=subprocess.DEVNULL)
    try:
        return received.get(timeout=120)
    finally:
        running.terminate()
        running.wait(30)
        server.shutdown()


def test_a_microphone_and_a_picture(tmp_path):
    """The likelihood of speech rises and falls; the box that is drawn is that of a session on this machine."""
    sample = pytest.importorskip("matplotlib.cbook").get_sample_data("grace_hopper.jpg", asfileobj=False)
    pillow = pytest.importorskip("PIL.Image")
    models = Path(os.environ.get("MEGCC_MODELS", ""))
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not (models / "silero_vad_16k_static").exists():
        pytest.skip("no Chromium on this machine, or MEGCC_MODELS is not set")
    try:
        find_compiler(TARGETS["wasm32-simd128"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    for path in EXAMPLES.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    packages(models, tmp_path)
    speech(models, tmp_path / "speech.wav")
    shutil.copyfile(sample, tmp_path / "face.jpg")
    (tmp_path / "driver.html").write_text(DRIVER)

    result = shown(tmp_path, browser)
    assert "late" not in result, result
    assert max(result["likelihoods"]) > 0.9 and min(result["likelihoods"]) < 0.2
    assert any(text.endswith(": speech") for text in result["texts"])
    assert result["found"].startswith("1 found in ")
    drawn = np.asarray(pillow.open(io.BytesIO(base64.b64decode(result["picture"].partition(",")[2]))).convert("RGB"))
    rows, columns = np.nonzero((drawn == BLUE).all(2))
    photo = pillow.open(sample).convert("RGB")
    scale = min(640 / photo.width, 480 / photo.height)
    given = np.zeros((480, 640, 3), np.uint8)
    small = photo.resize((round(photo.width * scale), round(photo.height * scale)))
    given[:small.height, :small.width] = np.asarray(small)
    with tvm_megcc.load(Program.read("faces", models).compile(tmp_path / "native", "native")) as session:
        wanted = session.run({"picture": given})
    assert wanted["count"].item() == 1
    left, _, right, bottom = wanted["boxes"][0]
    np.testing.assert_allclose([columns.min(), columns.max(), rows.max()], [left, right, bottom], atol=4)
