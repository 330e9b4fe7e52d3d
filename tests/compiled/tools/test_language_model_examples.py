# SPDX-License-Identifier: Apache-2.0
"""tutorials/language_model: the server streams what the model generates."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

from tests.c_flags import native_compiler
from tests.compiled.tools.test_language_model import WORDS, _written
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
