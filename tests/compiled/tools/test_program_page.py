# SPDX-License-Identifier: Apache-2.0
"""tutorials/program: Chromium listens to a WAV file as its microphone, lists what it hears, and finds a face in a
picture that is dropped on the page."""

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
from tests.compiled.tools.test_language_model_examples import _Handler, browser_for_wasm
from tests.compiled.tools.test_report import QUIET
from tests.models.test_programs import wake_word_models
from tvm_megcc.cli import main
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


#: Listens until the list has three lines; sends what it says.
LISTENER = """
<!doctype html><iframe src="program.html?sound=package/" allow="microphone" width="900" height="900"></iframe>
<script type="module">
const frame = document.querySelector("iframe");
await new Promise((resolve) => (frame.onload = resolve));
const by = (id) => frame.contentDocument.getElementById(id);
const said = () => [...by("said").children].map((line) => line.textContent);
const until = async (holds) => { while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5)); };
const say = (what) => fetch("/", { method: "POST", body: JSON.stringify(what) });
setTimeout(() => say({ late: [by("heard").textContent, said()] }), 60000);
await until(() => !by("listen").disabled);
by("listen").click();
await until(() => said().length >= 3);
await say({ said: said(), meters: [...by("meters").querySelectorAll("meter")].map((meter) => meter.id) });
</script>
"""


def exported(program: Program, folder: Path, package: str) -> None:
    compiled = program.compile(folder / program.name, "wasm32-simd128")
    assert main(["export", str(compiled), "--for", "npm", "-q", "-o", str(folder / package)]) == 0


def written(sound: np.ndarray, path: Path) -> None:
    """Writes samples from -1 to 1 at 16 kHz as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((sound * 32767).astype("<i2").tobytes())


def page(folder: Path, driver: str) -> str:
    """Writes the page, and a page around it that uses it. Returns the browser."""
    browser = browser_for_wasm()
    for path in EXAMPLES.iterdir():
        shutil.copyfile(path, folder / path.name)
    (folder / "driver.html").write_text(driver)
    return browser


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
    if not (models / "silero_vad_16k_static").exists():
        pytest.skip("set MEGCC_MODELS")
    browser = page(tmp_path, DRIVER)
    for name in ("voice-activity", "faces"):
        exported(Program.read(name, models), tmp_path, f"{name.replace('-', '_')}_npm")
    rows = np.load(models / "silero_vad_16k_static/sequence_speech.npz")["in:input"][:, 0, 64:]
    written(rows.reshape(-1), tmp_path / "speech.wav")  # a second, whose last third is speech
    shutil.copyfile(sample, tmp_path / "face.jpg")

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


def test_texts_are_listed_as_they_are_found(tmp_path):
    """A program over a stream, which says what it hears in the block in which that begins: 1 of 5 blocks is loud."""
    browser = page(tmp_path, LISTENER)
    program = Program("loudness", {"sound": "float32[3200]"}, [
        Program.Operator("Abs", ["sound"], ["sizes"]), Program.Operator("ReduceMax", ["sizes"], ["most"]),
        Program.Operator("Reshape", ["most", [1]], ["largest"]),
        Program.Operator("Greater", ["largest", [0.3]], ["is_loud"]),
        Program.Operator("Cast", ["is_loud"], ["now"], {"to": 7}),
        Program.Operator("Greater", ["now", "before"], ["is_new"], name="beginning"),
        Program.Operator("Cast", ["is_new"], ["number"], {"to": 7}, name="number_of_word"),
        Program.Operator("Max", ["now", [1]], ["count"]),
        Program.Text("labels", {"tokens": "number", "count": "count"}, {"text": "text"}, {
            "labels": ["", "It is loud \u00df"], "most": 40})], ["text", "number"],
        {"before": Program.State("int64[1]", "now")}, {"sound": 16000})
    exported(program, tmp_path, "package")
    times = np.arange(16000) / 16000
    written(0.8 * np.sin(900 * times) * (times < 0.2), tmp_path / "speech.wav")
    result = shown(tmp_path, browser)
    assert "late" not in result, result
    assert [line.partition(": ")[2] for line in result["said"][:3]] == 3 * ["It is loud \u00df"]
    seconds = [float(line.partition(" s")[0]) for line in result["said"]]
    np.testing.assert_allclose(np.diff(seconds), 1, atol=0.25)
    assert result["meters"] == []


@pytest.mark.parametrize(("name", "output"), [
    ("listen", "wake"), pytest.param("wake-word", "probability", marks=pytest.mark.long)])
def test_a_wake_word_is_listed_when_it_is_heard(name, output, tmp_path):
    models = Path(os.environ.get("MEGCC_MODELS", ""))
    if not (models / "silero_vad_16k_static").exists() or not shutil.which("espeak-ng"):
        pytest.skip("no espeak-ng on this machine, or MEGCC_MODELS is not set")
    heard = f'said().some((line) => line.endsWith("{output}"))'
    browser = page(tmp_path, LISTENER.replace("said().length >= 3", heard))
    wake_word_models(tmp_path)
    shutil.copyfile(models / "silero_vad_16k_static/model.onnx", tmp_path / "silero_vad_16k.onnx")
    exported(Program.read(name, tmp_path), tmp_path, "package")
    voice = subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", "okay nabu"], capture_output=True,
                           check=True).stdout
    sound = np.frombuffer(voice[44:], np.int16) / 32768
    sound = np.interp(np.arange(0, len(sound), 22050 / 16000), np.arange(len(sound)), sound)
    written(np.concatenate([np.zeros(16000), sound, np.zeros(16000)]), tmp_path / "speech.wav")
    result = shown(tmp_path, browser)
    assert "late" not in result, result
    assert result["meters"] == [f"meter-{each}" for each in Program.read(name, tmp_path).outputs]
