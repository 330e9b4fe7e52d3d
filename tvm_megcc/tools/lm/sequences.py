# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled language model of several sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from ...frontends.decoder_names import LOGITS, NEW, TOKENS
from ...runtime.load import load
from ...runtime.session import Array
from .sampling import Sampling, choose
from .saved import pack, unpack
from .settings import read_settings, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
        tokens = self._tokens_of(sequence)
        return pack(tokens, {name: state[sequence][self._filled_part(state[sequence], len(tokens))]
                             for name, state in self.session.states.items() if name not in self.session.counters})

    def load(self, sequence: int, saved: bytes) -> None:
        """Replaces everything that one sequence has read by what `save` returned for the same model.

        Raises:
            MegccError: if the bytes are damaged, or of a model with other keys and values or another context. A model
                with the same ones is not told apart.
        """
        self._tokens_of(sequence)
        tokens, given = unpack(saved, "sequence", int(self.session.outputs[0].shape[-1]), self.settings.context)
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
        self._replace(sequence, tokens, caches)

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
