# SPDX-License-Identifier: Apache-2.0
"""A compiled language model: text in, text out, a piece at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ...api import load
from ...errors import MegccError, MissingTool
from ...frontends.contents import is_gguf
from ...frontends.gguf.transformer import LOGITS, TOKENS
from .sampling import Sampling, choose

#: Files of a generated folder that a language model has besides.
TOKENIZER, SETTINGS = "language_model/tokenizer.json", "language_model/settings.json"
#: A character of which some bytes are still to come, as the decoder shows it.
_INCOMPLETE = "\ufffd"


@dataclass
class Figures:
    """Tokens and seconds of an answer: of reading the prompt, and of generating."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [f"{count} tokens of {what} at {count / max(seconds, 1e-9):.1f} a second" for what, count, seconds in (
            ("the prompt", self.prompt_tokens, self.prompt_seconds), ("text", self.tokens, self.seconds)) if count]
        return ", ".join(parts)


@dataclass(frozen=True)
class Settings:
    """Facts about a language model that its network does not have.

    context: tokens there is room for. prompt: new tokens that a run takes at most. bos: token before every text,
    -1 for none. ends: tokens that end a text. chat_template: in Jinja, "" for none.
    """

    context: int
    prompt: int
    bos: int
    ends: tuple[int, ...]
    chat_template: str

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=True) + "\n"


class LanguageModel:
    """A language model in a folder that `megcc lm compile` wrote.

    >>> model = LanguageModel("smollm2")
    >>> for piece in model.generate("Once upon a time", max_tokens=100):
    ...     print(piece, end="")

    Raises:
        MegccError: where the folder has no language model, or a tool is missing.
    """

    def __init__(self, folder: str | Path, target: str | None = None, threads: int | None = None):
        """threads: workers of a run, as of `tvm_megcc.load`."""
        self.settings, self.tokenizer = _read(Path(folder))
        self.session = load(folder, target, threads=threads)
        self.tokens: list[int] = []
        self.figures = Figures()

    def reset(self) -> None:
        """Begins anew: the next text has nothing before it."""
        self.session.reset()
        self.tokens = []

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, the model's first one in front where there is nothing before it."""
        first = [self.settings.bos] if self.settings.bos >= 0 and not self.tokens else []
        found = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found if found[:1] == first else first + found

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Returns the text that a conversation is to the model, ready for its answer.

        Args:
            messages: dictionaries with `role` ("system", "user", "assistant") and `content`.

        Raises:
            MegccError: where the model has no chat template, or that refuses the messages.
        """
        return _rendered(self.settings.chat_template, messages)

    def generate(self, prompt: str, max_tokens: int = 256, sampling: Sampling | None = None,
                 stop: Sequence[str] = ()) -> Iterator[str]:
        """Goes on after what the model has read so far with the prompt, and gives what it says, a piece at a time.

        Args:
            max_tokens: how many tokens are generated at most; the end of the context ends it too.
            sampling: how tokens are chosen; the likeliest ones by default.
            stop: strings that end it; they are not part of it.

        Raises:
            MegccError: where there is no room for the prompt.
        """
        sampling = sampling or Sampling()
        generator, found, given, text = sampling.generator(), [], "", ""
        begin, read = time.perf_counter(), self.encode(prompt)
        logits = self.read(read)
        self.figures = Figures(len(read), time.perf_counter() - begin)
        for _ in range(max_tokens):
            token = choose(logits, self.tokens, sampling, generator)
            if token in self.settings.ends:
                break
            found.append(token)
            text = self.tokenizer.decode(found, skip_special_tokens=False)
            ends = [at for each in stop if each and (at := text.find(each)) >= 0]
            text = text[:min(ends)] if ends else text
            sure = text[:len(text) - _begun(text, stop)]
            if not text.endswith(_INCOMPLETE) and len(sure) > len(given):
                yield sure[len(given):]
                given = sure
            if ends or len(self.tokens) == self.settings.context:
                break
            begin = time.perf_counter()
            logits = self.read([token])
            self.figures.tokens += 1
            self.figures.seconds += time.perf_counter() - begin
        if len(text) > len(given):
            yield text[len(given):]

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits [vocabulary] of the token after these, which the model reads after what it has read so far.

        Raises:
            MegccError: for no tokens, and for more than there is room for.
        """
        room = self.settings.context - len(self.tokens)
        if not tokens:
            raise MegccError("the prompt is empty")
        if len(tokens) > room:
            raise MegccError(f"the prompt has {len(tokens)} tokens, and there is room for {room} more of "
                             f"{self.settings.context}; compile the model with a larger --context, or begin anew")
        at = 0
        while at < len(tokens):
            part = tokens[at:at + self.settings.prompt]
            logits = self.session.run({TOKENS: np.array([part], np.int64)})[LOGITS]
            self.tokens += part
            at += len(part)
        return np.asarray(logits).reshape(-1)


def _begun(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of a text may become one of `stop`."""
    return max((count for each in stop for count in range(1, len(each)) if text.endswith(each[:count])), default=0)


def _read(folder: Path):
    """Settings and tokenizer of a folder, which is as hostile as any file.

    Raises:
        MegccError: where they are missing or damaged.
    """
    if not (folder / SETTINGS).is_file():
        if is_gguf(folder):
            made = Path(f"{folder.stem}_megcc")
            raise MegccError(f"{folder} is not compiled yet: 'megcc lm compile {folder} -o {made}' makes the folder "
                             f"{made}")
        raise MegccError(f"{folder} is no language model: 'megcc lm compile MODEL.gguf -o {folder}' makes one")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingTool("language models need the package tokenizers: pip install 'tvm_megcc[llm]'") from None
    try:
        given = json.loads((folder / SETTINGS).read_text("utf-8"))
        settings = Settings(int(given["context"]), int(given["prompt"]), int(given["bos"]),
                            tuple(map(int, given["ends"])), str(given["chat_template"]))
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # tokenizers raises Exception itself
        raise MegccError(f"{folder}: {SETTINGS} or {TOKENIZER} is damaged: {error}") from None
    if min(settings.context, settings.prompt) < 1:
        raise MegccError(f"{folder}: {SETTINGS} is damaged: a context of {settings.context} tokens")
    return settings, tokenizer


def _rendered(template: str, messages: Sequence[Mapping[str, str]]) -> str:
    """The template comes with the model: it runs in a sandbox."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise MegccError(f"the chat template of the model refuses this: {message}")

    if not template:
        raise MegccError("the model has no chat template: it goes on with a text, 'megcc lm generate'")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=True, bos_token="", eos_token="")
    except jinja2.TemplateError as error:
        raise MegccError(f"the chat template of the model cannot be used: {error}") from None


