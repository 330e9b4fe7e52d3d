# SPDX-License-Identifier: Apache-2.0
"""A server that streams the answers of a compiled language model: pip install 'tvm_megcc[llm]' fastapi uvicorn

    LANGUAGE_MODEL=smollm2 uvicorn --app-dir tutorials/language_model server:app
    curl -N localhost:8000/chat --json '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
"""
import os
from asyncio import Lock

from fastapi import FastAPI
from fastapi.concurrency import iterate_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from tvm_megcc import MegccError
from tvm_megcc.tools.lm.model import LanguageModel
from tvm_megcc.tools.lm.sampling import Sampling

app = FastAPI(exception_handlers={MegccError: lambda _, error: JSONResponse({"detail": str(error)}, 422)})
model, turn = LanguageModel(os.environ["LANGUAGE_MODEL"]), Lock()


class Conversation(BaseModel):
    messages: list[dict[str, str]]
    max_tokens: int = Field(256, ge=1)
    sampling: Sampling = Sampling()


@app.post("/chat")
async def chat(asked: Conversation):
    async def answer():
        async with turn:  # the model holds one conversation at a time
            model.reset()
            async for piece in iterate_in_threadpool(model.generate(prompt, asked.max_tokens, asked.sampling)):
                yield piece

    prompt = model.chat(asked.messages)
    if len(model.tokenizer.encode(prompt).ids) >= model.settings.context:
        raise MegccError("the conversation is longer than the context of the model")
    return StreamingResponse(answer(), media_type="text/plain; charset=utf-8")
