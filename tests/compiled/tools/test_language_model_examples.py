# SPDX-License-Identifier: Apache-2.0
"""tutorials/language_model: the server and the page in a browser stream what the model generates."""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import queue
import runpy
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.c_flags import native_compiler
from tests.compiled.tools.test_language_model import CHAT, SHAPE, WORDS, _written
from tests.compiled.tools.test_report import BROWSERS, QUIET
from tvm_megcc.cli import main
from tvm_megcc.errors import MissingTool
from tvm_megcc.options import CompileOptions
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel
from tvm_megcc.tools.lm.sampling import Sampling

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[3] / "tutorials" / "language_model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    native_compiler()
    path = _written(tmp_path_factory.mktemp("examples") / "small.gguf", WORDS)
    return compile_model(path, path.parent / "small", context=24, prompt=4)


@pytest.fixture
def server(folder, monkeypatch):
    """The names of the server's module."""
    pytest.importorskip("fastapi", reason="FastAPI is not installed")
    monkeypatch.setenv("LANGUAGE_MODEL", str(folder))
    return runpy.run_path(str(EXAMPLES / "server.py"))


def _asked(text: str, **others: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **others}


def _generated(folder: Path, text: str, sampling: Sampling | None = None) -> list[str]:
    return list(LanguageModel(folder).generate(text, 8, sampling))


def test_the_server_streams(server, folder):
    """The pieces are those of `generate`; a second conversation is as the first one."""
    testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed", exc_type=RuntimeError)
    client = testclient.TestClient(server["app"])
    for _ in range(2):
        with client.stream("POST", "/chat", json=_asked("cde", max_tokens=8)) as answer:
            assert answer.status_code == 200 and list(answer.iter_text()) == _generated(folder, "cde")
    drawn = client.post("/chat", json=_asked("cde", max_tokens=8, sampling={"temperature": 2, "seed": 3}))
    assert drawn.text == "".join(_generated(folder, "cde", Sampling(temperature=2, seed=3)))
    for wrong in (_asked("c" * 30), _asked("c", sampling={"temperature": -1}), _asked("c", max_tokens=0), {}):
        refused = client.post("/chat", json=wrong)
        assert refused.status_code == 422 and refused.json()["detail"]


def test_conversations_of_a_server_take_turns(server, folder):
    """Answers that begin at the same time are not mixed, also if one of them is left in the middle."""

    async def together() -> list[list[str]]:
        async def pieces(text: str, most: int) -> list[str]:
            answer = await server["chat"](server["Conversation"](**_asked(text, max_tokens=8)))
            found = []
            async for piece in answer.body_iterator:
                found.append(piece)
                await asyncio.sleep(0)
                if len(found) == most:
                    break
            await answer.body_iterator.aclose()
            return found

        return await asyncio.wait_for(asyncio.gather(pieces("cde", 99), pieces("fgh", 2), *(
            pieces("hij", 99) for _ in range(50))), 60)

    first, left, *others = asyncio.run(together())
    assert first == _generated(folder, "cde") and left == _generated(folder, "fgh")[:2]
    assert all(other == _generated(folder, "hij") for other in others[:2])


def test_the_server_is_short():
    assert len((EXAMPLES / "server.py").read_text().splitlines()) <= 40


#: Asks the page in the frame twice, with "New" between, and gives up a long text of the package in a worker by a timer.
#: Sends the server all texts that the answers had, and the number of pieces of the long one.
DRIVER = """
<!doctype html><iframe src="chat.html?package=small_npm/" width="900" height="600"></iframe>
<script type="module">
const frame = document.querySelector("iframe");
await new Promise((resolve) => (frame.onload = resolve));
const page = frame.contentDocument, by = (id) => page.getElementById(id), found = [];
const until = async (holds) => { while (!holds()) await new Promise((resolve) => setTimeout(resolve, 20)); };
await until(() => !by("send").disabled);
for (let turn = 0; turn < 2; turn++) {
  const texts = [];
  new MutationObserver(() => texts.push(page.querySelector(".answer")?.textContent)).observe(
    by("log"), { childList: true, subtree: true });
  by("question").value = "cde";
  by("send").click();
  await until(() => !by("send").disabled);
  found.push({ texts: [...texts], state: by("state").textContent, asked: page.querySelector(".question").textContent });
  by("forget").click();
}
const worker = new Worker("long.js", { type: "module" });
const pieces = await new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)));
await fetch("/", { method: "POST", body: JSON.stringify([found, pieces]) });
</script>
"""
LONG = """
import { load } from "./small_npm/index.js";
const model = await load(), controller = new AbortController();
let pieces = 0;
try {
  for await (const piece of model.ask("cde", { maxTokens: 0, signal: controller.signal }))
    if (!pieces++) setTimeout(() => controller.abort(), 20);
} catch (error) {
  if (!controller.signal.aborted) throw error;
}
postMessage(pieces);
"""
CONTEXT = 4096


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and puts what is sent to it into a queue."""

    def __init__(self, *arguments, received: queue.Queue, **named):
        self.received = received
        super().__init__(*arguments, **named)

    def do_POST(self):
        self.received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def browser_for_wasm() -> str:
    """The browser; skips the test without one, and without a compiler of WebAssembly."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    try:
        find_compiler(TARGETS["wasm32-simd128"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    return browser


def test_the_page_in_a_browser(tmp_path, monkeypatch):
    """The words of the answer appear one after the other, and are those of `generate`. A text can be given up."""
    browser = browser_for_wasm()
    monkeypatch.setattr("tests.compiled.tools.test_language_model.SHAPE", SHAPE.with_(context=CONTEXT))
    path = _written(tmp_path / "small.gguf", WORDS, CHAT)
    folders = {target: compile_model(path, tmp_path / f"small_{target[:4]}", target,
                                     CompileOptions(reproducible=True), context=CONTEXT, prompt=4)
               for target in ("native", "wasm32-simd128")}
    model = LanguageModel(folders["native"])
    pieces = list(model.generate(model.chat([{"role": "user", "content": "cde"}])))
    package = tmp_path / "small_npm"
    assert main(["export", str(folders["wasm32-simd128"]), "--for", "npm", "-o", str(package), "-q"]) == 0
    for name in ("chat.html", "worker.js"):
        shutil.copyfile(EXAMPLES / name, tmp_path / name)
    (tmp_path / "driver.html").write_text(DRIVER)
    (tmp_path / "long.js").write_text(LONG)
    received: queue.Queue = queue.Queue()
    handler = functools.partial(_Handler, directory=tmp_path, received=received)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = [option for option in QUIET if not option.startswith("--virtual-time")]
    running = subprocess.Popen([browser, *options, f"--user-data-dir={tmp_path / 'profile'}",
                                f"http://127.0.0.1:{server.server_port}/driver.html"], stderr=subprocess.DEVNULL)
    try:
        turns, long = received.get(timeout=120)
    finally:
        running.terminate()
        running.wait(30)
        server.shutdown()
    for turn in turns:
        assert turn["asked"] == "cde" and "tokens per second" in turn["state"]
        assert turn["texts"][-1] == "".join(pieces) and len(set(turn["texts"])) > min(len(pieces), 3)
    assert 0 < long < CONTEXT // 2, "timers wait until a text has ended"
