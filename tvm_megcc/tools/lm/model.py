# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled language model, and generates text piece by piece."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import MegccError, quoted
from ...frontends.decoder_names import LOGITS, TOKENS
from ...runtime.load import load
from ...runtime.session import Array, Arrays, Given, Port, Session
from .chat import rendered
from .grammar import Grammar, Matcher, token_trie
from .sampling import Draws, Sampling, choose, log_probability
from .saved import pack, unpack
from .sequences import Sequences
from .settings import TOKENIZER, Settings, read_settings, read_tokenizer
from .text_stream import TextStream

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from tokenizers import Tokenizer

    from ...runtime.native import Bound

__all__ = ["TOKENIZER", "Figures", "LanguageModel", "Sequences", "Settings", "read_settings", "read_tokenizer",
           "rendered"]


@dataclass
class Figures:
    """Tokens and seconds of an answer, for reading the prompt and for generating."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [f"{count} tokens of {what} at {count / max(seconds, 1e-9):.1f} a second" for what, count, seconds in (
            ("the prompt", self.prompt_tokens, self.prompt_seconds), ("text", self.tokens, self.seconds)) if count]
        return ", ".join(parts)


class LanguageModel(Session):
    """A language model in a folder that `megcc lm compile` wrote. `tvm_megcc.load` returns it. As a session it runs the
    network alone.

    >>> model = tvm_megcc.load("smollm2")
    >>> for piece in model.generate("Once upon a time", max_tokens=100):
    ...     print(piece, end="")

    Raises:
        MegccError: if the folder has no language model, or a tool is missing.
    """

    def __init__(self, folder: str | Path, target: str | None = None, threads: int | None = None):
        """threads: workers of a run, as of `tvm_megcc.load`."""
        self.settings, self._folder = read_settings(Path(folder)), Path(folder)
        if self.settings.sequences > 1:
            raise MegccError(f"{folder} was compiled for {self.settings.sequences} sequences: "
                             f"tvm_megcc.tools.lm.model.Sequences('{folder}') runs it")
        self.session = load(folder, target, threads=threads)
        self.tokens: list[int] = []
        self.figures = Figures()
        self._grammar_trie: LLTokenizer | None = None

    def __getattr__(self, name: str) -> Any:
        """Returns what describes the network, such as `inputs`: it is that of `session`."""
        if name == "session":   # not yet loaded
            raise AttributeError(name)
        return getattr(self.session, name)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the package tokenizers. It is read when it is first used, since that takes ten times as long
        as everything else.

        Raises:
            MissingTool: if the package is not installed; MegccError: if its file is damaged.
        """
        return read_tokenizer(self._folder)

    def reset(self, states: Arrays | None = None) -> None:
        """Resets the KV cache, so that the next text has nothing before it. states: as of `Session.reset`."""
        self.session.reset(states)
        self.tokens = []

    def run(self, inputs: Any, feeds: Arrays | None = None, run_options: object = None) -> Any:
        """Runs the network alone, as `Session.run`. `tokens` does not change, so `reset` comes before the next text."""
        return self.session.run(inputs) if feeds is None else self.session.run(inputs, feeds, run_options)

    @property
    def states(self) -> dict[str, Array]:
        return self.session.states

    def bind(self, inputs: Given | None = None) -> Bound:
        return self.session.bind(inputs)

    def profile(self, inputs: Given) -> list[dict[str, Any]]:
        return self.session.profile(inputs)

    def trace(self, inputs: Given) -> list[bytes | None]:
        return self.session.trace(inputs)

    def close(self) -> None:
        self.session.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __repr__(self) -> str:
        return f"LanguageModel({str(self.folder)!r})"

    def save(self) -> bytes:
        """Returns everything read so far as bytes: the tokens, and their keys and values. With `load`, prompts with a
        common prefix need it read only once."""
        states = self.session.states
        return pack(self.tokens, {port.name: states[port.name][self._filled_part(port, len(self.tokens))]
                                  for port in self.session.state_ports})

    def load(self, saved: bytes) -> None:
        """Replaces everything read by a beginning of a text that `save` returned for the same model.

        Raises:
            MegccError: if the bytes are damaged, or of a model with other keys and values, another context or fewer
                tokens. A model with the same ones is not told apart.
        """
        tokens, given = unpack(saved, "state", self._vocabulary_size(), self._longest())
        states = {}
        for port in self.session.state_ports:
            padded, index = np.zeros(port.shape, np.dtype(port.dtype)), self._filled_part(port, len(tokens))
            value = given.pop(port.name, None)
            fits = value is not None and value.dtype == padded.dtype and value.shape == padded[index].shape
            # A counter is the number of rows of a KV cache that are valid, one for each token.
            if not fits or (port.name in self.session.counters and (value != len(tokens)).any()):
                raise MegccError("the saved state is one of another model: "
                                 f"{quoted(port.name)} is missing or has another shape or dtype")
            padded[index] = value
            states[port.name] = padded
        self.session.reset(states)
        self.tokens = tokens

    def _longest(self) -> float:
        """Returns the most tokens of a text."""
        return math.inf if self.settings.sinks else self.settings.context

    def _vocabulary_size(self) -> int:
        """Returns the number of logits."""
        return int(next(port.shape[-1] for port in self.outputs if port.name == LOGITS))

    def _filled_part(self, port: Port, count: int) -> tuple[slice, ...]:
        """Returns the index of the part of a state that `count` tokens have filled: the first rows of keys and values,
        [1, heads, context, elements]; all of any other state."""
        is_cache = port.name not in self.session.counters and len(port.shape) == 4 \
            and port.shape[2] == self.settings.context
        return (slice(None), slice(None), slice(count)) if is_cache else ()

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, after the model's first token (bos) if nothing was read before. Lone
        surrogates, which Python has for bytes of the command line or of stdin that are no UTF-8, are read as U+FFFD."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        bos = [self.settings.bos] if self.settings.bos >= 0 and not self.tokens else []
        found = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found if found[:1] == bos else bos + found  # a chat template may begin with its text

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Formats a conversation by the model's chat template, ready for the model's answer.

        Args:
            messages: dictionaries with `role` ("system", "user", "assistant") and `content`.

        Raises:
            MegccError: if the model has no chat template, or it refuses the messages.
        """
        return rendered(self.settings, messages)

    def generate(self, prompt: str, max_tokens: int = 256, sampling: Sampling | None = None,
                 stop: Sequence[str] = (), log_probabilities: list[tuple[int, float]] | None = None,
                 grammar: Grammar | None = None) -> Iterator[str]:
        """Reads the prompt after everything read so far, and yields the generated text piece by piece.

        Args:
            max_tokens: the most tokens to generate; the end of the context ends the text too, without attention sinks.
            sampling: how tokens are chosen; by default always the most likely one.
            stop: strings that end the text and are not part of it.
            log_probabilities: gets the tokens of the text, and of each the natural logarithm of its probability in the
                softmax of the network's logits, whatever `sampling` and `grammar` make of them.
            grammar: what the text has to match. A text that ends early, by `max_tokens`, `stop` or the context, is the
                beginning of one that does.

        Raises:
            MegccError: if the prompt does not fit in the context, or the grammar is refused.
        """
        sampling = sampling or Sampling()
        generator, stream = sampling.generator(), TextStream(self.tokenizer, stop)
        begin, prompt_tokens = time.perf_counter(), self.encode(prompt)
        logits = self.read(prompt_tokens)
        self.figures = Figures(prompt_tokens=len(prompt_tokens), prompt_seconds=time.perf_counter() - begin)
        matcher = Matcher(self._trie(len(logits)), grammar) if grammar else None
        for _ in range(max_tokens):
            token = self._next_token(logits, sampling, generator, matcher)
            if token in self.settings.ends:
                break
            if log_probabilities is not None:
                log_probabilities.append((token, log_probability(logits, token)))
            if piece := stream.add(token):
                yield piece
            if stream.stopped or len(self.tokens) >= self._longest() or (matcher and matcher.is_complete):
                break
            begin = time.perf_counter()
            logits = self.read([token])
            self.figures.tokens += 1
            self.figures.seconds += time.perf_counter() - begin
        if piece := stream.end():
            yield piece

    def _next_token(self, logits: np.ndarray, sampling: Sampling, generator: Draws, matcher: Matcher | None) -> int:
        """Returns the next token: one that the grammar allows, if there is one (`matcher`)."""
        if matcher is None:
            return choose(logits, self.tokens, sampling, generator)
        mask = matcher.mask()
        token = choose(np.where(mask, logits, -np.inf), self.tokens, sampling, generator)
        if not mask[token]:  # logits of all allowed tokens are NaN or the lowest number
            token = int(mask.argmax())
        matcher.accept(token)
        return token

    def _trie(self, vocabulary: int) -> LLTokenizer:
        """Returns the trie of the vocabulary for grammars. vocabulary: the number of logits."""
        if self._grammar_trie is None:
            self._grammar_trie = token_trie(self._folder / TOKENIZER, self.settings.ends, vocabulary)
        return self._grammar_trie

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Reads tokens after everything read so far. Returns the logits [vocabulary] of the next token.

        Raises:
            MegccError: for no tokens, and for more than fit in the context. With attention sinks all do.
        """
        remaining = self._longest() - len(self.tokens)
        if not tokens:
            raise MegccError("the prompt is empty")
        if len(tokens) > remaining:
            raise MegccError(f"the prompt has {len(tokens)} tokens, but only {remaining} of the context's "
                             f"{self.settings.context} are left; compile the model with a larger --context, or begin "
                             "anew")
        position = 0
        while position < len(tokens):
            part = tokens[position:position + self.settings.prompt]
            logits = self.session.run({TOKENS: np.array([part], np.int64)})[LOGITS]
            self.tokens += part
            position += len(part)
        return np.asarray(logits).reshape(-1)


