# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled language model, and generates text piece by piece."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import folders
from ...errors import MegccError, MissingTool, quoted
from ...frontends.contents import is_gguf
from ...frontends.decoder_names import LOGITS, NEW, SETTINGS, TOKENS
from ...runtime.load import load
from ...runtime.session import Array, Arrays, Given, Port, Session
from .grammar import Grammar, Matcher, token_trie
from .sampling import Draws, Sampling, choose, log_probability

if TYPE_CHECKING:
    from types import FrameType

    from llguidance import LLTokenizer
    from tokenizers import Tokenizer

    from ...runtime.native import Bound

#: The tokenizer in the generated folder of a language model.
TOKENIZER = "language_model/tokenizer.json"
#: The character that the decoder shows if some bytes of a character are still missing.
_INCOMPLETE = "\ufffd"
#: The most seconds that a chat template may take, and the limit of numbers that it multiplies.
_TEMPLATE_SECONDS, _LARGEST = 3.0, 1_000_000
#: The name of the array of tokens that were read, among the arrays of `LanguageModel.save` and `Sequences.save`.
_SAVED_TOKENS = "read tokens"


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


@dataclass(frozen=True)
class Settings:
    """Settings of a language model besides its network.

    context: capacity of the KV cache in tokens.
    prompt: the most new tokens in a run.
    bos: token before every text, -1 for none.
    ends: tokens that end a text.
    chat_template: in Jinja, "" for none.
    bos_token: the template's variable of this name: the text of the first token, "" if `bos` puts it before a text.
    eos_token: the template's variable of this name: the text of the token that ends a text, "" for none.
    sequences: the number of sequences, each of which has a KV cache.
    sinks: the number of first tokens that stay in a full KV cache, so that a text has no end; 0: it ends then.
    """

    context: int
    prompt: int
    bos: int
    ends: tuple[int, ...]
    chat_template: str
    bos_token: str = ""
    eos_token: str = ""
    sequences: int = 1
    sinks: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=True) + "\n"


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
        vars(self).update(vars(self.session))  # the description of the model: its manifest is not read twice
        self.tokens: list[int] = []
        self.figures = Figures()
        self._grammar_trie: LLTokenizer | None = None

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
        states, written = self.session.states, io.BytesIO()
        parts = {port.name: states[port.name][self._filled_part(port, len(self.tokens))]
                 for port in self.session.state_ports}
        np.savez(written, **{_SAVED_TOKENS: np.array(self.tokens, np.int64)}, **parts)
        return written.getvalue()

    def load(self, saved: bytes) -> None:
        """Replaces everything read by a beginning of a text that `save` returned for the same model.

        Raises:
            MegccError: if the bytes are damaged, or of a model with other keys and values, another context or fewer
                tokens. A model with the same ones is not told apart.
        """
        try:
            with np.load(io.BytesIO(saved), allow_pickle=False) as found:
                given = {name: found[name] for name in found.files}
        except Exception as error:  # numpy lets the errors of zipfile, zlib and its own parser through
            raise MegccError(f"the saved state is damaged: {error}") from None
        tokens, states = given.pop(_SAVED_TOKENS, None), {}
        if tokens is None or tokens.dtype != np.int64 or tokens.ndim != 1 or len(tokens) > self._longest() \
                or not ((tokens >= 0) & (tokens < self._vocabulary_size())).all():
            raise MegccError("the saved state has no tokens, or tokens that this model does not have")
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
        self.tokens = tokens.tolist()

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
        generator, generated, yielded, text = sampling.generator(), [], "", ""
        begin, prompt_tokens = time.perf_counter(), self.encode(prompt)
        logits = self.read(prompt_tokens)
        self.figures = Figures(prompt_tokens=len(prompt_tokens), prompt_seconds=time.perf_counter() - begin)
        matcher = Matcher(self._trie(len(logits)), grammar) if grammar else None
        for _ in range(max_tokens):
            token = self._next_token(logits, sampling, generator, matcher)
            if token in self.settings.ends:
                break
            generated.append(token)
            if log_probabilities is not None:
                log_probabilities.append((token, log_probability(logits, token)))
            text = self.tokenizer.decode(generated, skip_special_tokens=False)
            stops = [start for ending in stop if ending and (start := text.find(ending)) >= 0]
            text = text[:min(stops)] if stops else text
            # Text that further tokens can still turn into a string of `stop` waits for them.
            final = text[:len(text) - _stop_prefix_length(text, stop)]
            if not text.endswith(_INCOMPLETE) and len(final) > len(yielded):
                yield final[len(yielded):]
                yielded = final
            if stops or len(self.tokens) >= self._longest() or (matcher and matcher.is_complete):
                break
            begin = time.perf_counter()
            logits = self.read([token])
            self.figures.tokens += 1
            self.figures.seconds += time.perf_counter() - begin
        if len(text) > len(yielded):
            yield text[len(yielded):]

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


class Sequences:
    """The sequences of a language model in a folder that `megcc lm compile --sequences N` wrote.

    tokens: the tokens that each sequence has read.

    >>> sequences = Sequences("smollm2")
    >>> for text in sequences.generate(["Once upon a time", "In the beginning"], max_tokens=100):
    ...     print(text)

    Raises:
        MegccError: if the folder has no language model, or one for a single sequence, or a tool is missing.
    """

    def __init__(self, folder: str | Path, target: str | None = None, threads: int | None = None):
        """threads: workers of a run, as of `tvm_megcc.load`."""
        self._folder, self.settings = Path(folder), read_settings(Path(folder))
        if self.settings.sequences < 2:
            raise MegccError(f"{folder} was compiled for one sequence: tvm_megcc.load('{folder}') runs it, and "
                             "'megcc lm compile --sequences N' compiles for several")
        self.session = load(folder, target, threads=threads)
        self.tokens: list[list[int]] = [[] for _ in range(self.settings.sequences)]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the package tokenizers. Errors are those of `LanguageModel.tokenizer`."""
        return read_tokenizer(self._folder)

    def read(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, np.ndarray]:
        """Reads tokens of some sequences after everything that they have read so far. A run takes as long for one
        sequence as for all, so prompts are best read together.

        Args:
            tokens: by the number of their sequence, from 0 on.

        Returns:
            the logits [vocabulary] of the next token of each of these sequences.

        Raises:
            MegccError: for no tokens, a sequence that does not exist, and more tokens than fit in the context.
        """
        for sequence, new in tokens.items():
            remaining = self.settings.context - len(self._tokens_of(sequence))
            if not 1 <= len(new) <= remaining:
                raise MegccError(f"sequence {sequence}: {len(new)} tokens; 1 to {remaining} can be read, of a context "
                                 f"of {self.settings.context}")
        most, logits = self.settings.prompt, np.empty(0)
        # A sequence with fewer tokens begins in a later run, so that the last run has the logits of all.
        for runs in range(-(-max(map(len, tokens.values()), default=0) // most), 0, -1):
            first = {sequence: (-(-len(new) // most) - runs) * most for sequence, new in tokens.items()}
            logits = self._run({sequence: new[first[sequence]:first[sequence] + most]
                                for sequence, new in tokens.items() if first[sequence] >= 0})
        return {sequence: logits[sequence] for sequence in tokens}

    def _run(self, tokens: Mapping[int, Sequence[int]]) -> np.ndarray:
        """Runs the network once on these tokens. Returns the logits [sequences, vocabulary]."""
        ids = np.zeros((self.settings.sequences, max(map(len, tokens.values()))), np.int64)
        new_tokens = np.zeros(self.settings.sequences, np.int64)
        for sequence, new in tokens.items():
            new_tokens[sequence] = len(new)
            ids[sequence, :len(new)] = new
        logits = np.asarray(self.session.run({TOKENS: ids, NEW: new_tokens})[LOGITS])
        for sequence, new in tokens.items():
            self.tokens[sequence] += map(int, new)
        return logits

    def generate(self, prompts: Sequence[str], max_tokens: int = 256,
                 sampling: Sampling | None = None) -> list[str]:
        """Reads a prompt in each of the first sequences, and returns the text that each goes on with.

        Args:
            max_tokens: the most tokens of a text; the end of the context ends it too.
            sampling: how tokens are chosen, as of `LanguageModel.generate`; each sequence draws as if it were alone.

        Raises:
            MegccError: for more prompts than sequences, and if one does not fit in the context.
        """
        sampling = sampling or Sampling()
        draws = [sampling.generator() for _ in prompts]
        bos = [self.settings.bos] if self.settings.bos >= 0 else []
        generated: list[list[int]] = [[] for _ in prompts]
        new = {}
        for sequence, prompt in enumerate(prompts):
            first = bos if not self._tokens_of(sequence) else []
            ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids
            new[sequence] = ids if ids[:1] == first else first + ids
        logits = self.read(new)
        for _ in range(max_tokens):
            new = {}
            for sequence, row in logits.items():
                token = choose(row, self.tokens[sequence], sampling, draws[sequence])
                if token not in self.settings.ends:
                    generated[sequence].append(token)
                    if len(self.tokens[sequence]) < self.settings.context:
                        new[sequence] = [token]
            if not new:
                break
            logits = self.read(new)
        return [self.tokenizer.decode(ids, skip_special_tokens=False) for ids in generated]

    def reset(self, sequence: int) -> None:
        """Resets the KV cache of one sequence, so that its next text has nothing before it."""
        self._tokens_of(sequence)
        self._replace(sequence, [], {})

    def copy(self, source: int, target: int) -> None:
        """Lets one sequence have read what another has, so that a common prefix is read once."""
        tokens = self._tokens_of(source)
        self._tokens_of(target)
        self._replace(target, list(tokens), {name: state[source] for name, state in self.session.states.items()
                                             if name not in self.session.counters})

    def save(self, sequence: int) -> bytes:
        """Returns everything that one sequence has read as bytes: the tokens, and their keys and values. Any sequence
        of the same model can `load` them."""
        tokens, written = self._tokens_of(sequence), io.BytesIO()
        parts: dict[str, Any] = {_SAVED_TOKENS: np.array(tokens, np.int64)}
        parts |= {name: state[sequence][self._filled_part(state[sequence], len(tokens))]
                  for name, state in self.session.states.items() if name not in self.session.counters}
        np.savez(written, **parts)
        return written.getvalue()

    def load(self, sequence: int, saved: bytes) -> None:
        """Replaces everything that one sequence has read by what `save` returned for the same model.

        Raises:
            MegccError: if the bytes are damaged, or of a model with other keys and values or another context. A model
                with the same ones is not told apart.
        """
        self._tokens_of(sequence)
        try:
            with np.load(io.BytesIO(saved), allow_pickle=False) as found:
                given = {name: found[name] for name in found.files}
        except Exception as error:  # numpy lets the errors of zipfile, zlib and its own parser through
            raise MegccError(f"the saved sequence is damaged: {error}") from None
        tokens, vocabulary = given.pop(_SAVED_TOKENS, None), self.session.outputs[0].shape[-1]
        if tokens is None or tokens.dtype != np.int64 or tokens.ndim != 1 or len(tokens) > self.settings.context \
                or not ((tokens >= 0) & (tokens < vocabulary)).all():
            raise MegccError("the saved sequence has no tokens, or tokens that this model does not have")
        caches = {}
        for name, state in self.session.states.items():
            if name in self.session.counters:
                continue
            cache, value = np.zeros_like(state[sequence]), given.get(name)
            part = self._filled_part(cache, len(tokens))
            if value is None or value.dtype != cache.dtype or value.shape != cache[part].shape:
                raise MegccError(f"the saved sequence is one of another model: '{name}' is missing or has another "
                                 "shape or dtype")
            cache[part] = value
            caches[name] = cache
        self._replace(sequence, tokens.tolist(), caches)

    def close(self) -> None:
        self.session.close()

    def _tokens_of(self, sequence: int) -> list[int]:
        if not 0 <= sequence < self.settings.sequences:
            raise MegccError(f"there is no sequence {sequence}: the model was compiled for {self.settings.sequences}, "
                             "from 0 on")
        return self.tokens[sequence]

    def _filled_part(self, cache: Array, count: int) -> tuple[slice, ...]:
        """Returns the index of the part of a cache [heads, rows, elements] that `count` tokens have filled; all of a
        ring buffer."""
        return (slice(None), slice(count)) if cache.shape[1] == self.settings.context else ()

    def _replace(self, sequence: int, tokens: list[int], caches: Mapping[str, Array]) -> None:
        """Replaces the tokens and the caches of one sequence; without caches, what is stored there is not read."""
        states = self.session.states
        for name, state in states.items():
            if name in self.session.counters:
                state[sequence] = len(tokens)
            elif name in caches:
                state[sequence] = caches[name]
        self.session.reset(states)
        self.tokens[sequence] = tokens


def _stop_prefix_length(text: str, stop: Sequence[str]) -> int:
    """Returns the number of characters at the end of a text that may be the beginning of one of `stop`."""
    return max((count for ending in stop for count in range(1, len(ending)) if text.endswith(ending[:count])),
               default=0)


def read_settings(folder: Path) -> Settings:
    """Reads the settings of a folder; the file is not trusted.

    Raises:
        MegccError: if it is missing or damaged, or there is no tokenizer.
    """
    if not (folder / SETTINGS).is_file():
        if is_gguf(folder) or any((folder / name).is_file() for name in ("config.json", "genai_config.json")):
            folder_name = Path(f"{folder.stem}_megcc")
            raise MegccError(f"{folder} is not compiled yet: 'megcc lm compile {folder} -o {folder_name}' makes the "
                             f"folder {folder_name}")
        folders.require_folder(folder)
        raise MegccError(f"{folder} is no language model: 'megcc lm compile MODEL.gguf -o {folder}' makes one")
    try:
        given = json.loads((folder / SETTINGS).read_text("utf-8"))
        settings = Settings(context=int(given["context"]), prompt=int(given["prompt"]), bos=int(given["bos"]),
                            ends=tuple(map(int, given["ends"])), chat_template=str(given["chat_template"]),
                            bos_token=str(given.get("bos_token", "")), eos_token=str(given.get("eos_token", "")),
                            sequences=int(given.get("sequences", 1)), sinks=int(given.get("sinks", 0)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MegccError(f"{folder}: {SETTINGS} is damaged: {error}") from None
    if min(settings.context, settings.prompt, settings.sequences) < 1 or not 0 <= settings.sinks < settings.context:
        raise MegccError(f"{folder}: {SETTINGS} is damaged: a context of {settings.context} tokens, of which a run "
                         f"reads {settings.prompt}, and {settings.sinks} stay")
    if not (folder / TOKENIZER).is_file():
        raise MegccError(f"{folder}: {TOKENIZER} is missing")
    return settings


def read_tokenizer(folder: Path) -> Tokenizer:
    """Reads the tokenizer of a folder; the file is not trusted. Errors are those of `LanguageModel.tokenizer`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingTool("language models need the package tokenizers: pip install 'tvm_megcc[llm]'") from None
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # tokenizers raises Exception itself
        raise MegccError(f"{folder}: {TOKENIZER} is damaged: {error}") from None


class DamagedTemplate(MegccError):
    """Raised for a chat template that is no Jinja, fails, or does not end."""


def rendered(settings: Settings, messages: Sequence[Mapping[str, str]]) -> str:
    """Renders the chat template of a model, in a sandbox, since it comes with the model.

    Raises:
        MegccError: if there is no template, or it refuses the messages.
        DamagedTemplate: if it is no Jinja, fails, or takes longer than `_TEMPLATE_SECONDS`.
    """
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise MegccError(f"the chat template of the model refuses this: {message}")

    class Environment(ImmutableSandboxedEnvironment):
        """Products with strings, powers and formats could take all memory."""

        intercepted_binops = frozenset(["*", "**", "%"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not all(isinstance(value, (int, float)) and abs(value) < _LARGEST for value in (left, right)):
                raise OverflowError(f"an operand of {operator} is no number below {_LARGEST:,}")
            return super().call_binop(context, operator, left, right)

    if not settings.chat_template:
        raise MegccError("the model has no chat template, so it cannot chat; 'megcc lm generate' continues a text")
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = refuse
    try:
        template = environment.from_string(settings.chat_template)
        with _deadline(_TEMPLATE_SECONDS):
            return template.render(messages=[dict(message) for message in messages], add_generation_prompt=True,
                                   bos_token=settings.bos_token, eos_token=settings.eos_token)
    except MegccError:
        raise
    except Exception as error:  # a template may raise any, such as those of division
        raise DamagedTemplate(f"the chat template of the model cannot be used: {error}") from None


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in Python code that is called in the context, if it runs for longer: loops of Jinja have no
    other limit."""
    end, before = time.monotonic() + seconds, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if time.monotonic() > end:
            raise TimeoutError(f"it takes longer than {seconds:g} seconds")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
