# SPDX-License-Identifier: Apache-2.0
"""Restricts a generated text to a grammar in llama.cpp's notation (GBNF) or to a JSON schema: before each token, a mask
says which tokens can follow.

The package llguidance computes the masks. It matches bytes over the trie of the vocabulary by Earley's algorithm, so a
token may reach over the ends of several rules, and rules may be left-recursive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import MegccError, MissingTool, shortened
from .grammars.gbnf import OPTIONS, lark_of

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from numpy.typing import NDArray

#: The largest number of characters of a grammar or schema.
MAX_CHARACTERS = 1 << 20


class Grammar:
    """A grammar that a generated text matches from its beginning to its end.

    >>> Grammar.gbnf('root ::= "yes" | "no"')
    >>> Grammar.json_schema({"type": "object", "properties": {"age": {"type": "integer"}}})

    Use the class methods; `text` is in the notation of llguidance.
    """

    def __init__(self, text: str):
        self.text = text

    @classmethod
    def gbnf(cls, text: str) -> Grammar:
        """Reads GBNF. The rule `root` is the whole text.

        Raises:
            MegccError: for what is no such grammar, and one that is too large or too deep.
            MissingTool: if the package llguidance is not installed.
        """
        _require_size("grammar", text)
        return cls(_llguidance().LLMatcher.grammar_from_lark(lark_of(text)))

    @classmethod
    def json_schema(cls, schema: str | dict[str, Any]) -> Grammar:
        """Reads a JSON schema. Keywords that are not supported, such as `not` and `uniqueItems`, are refused by name
        when text is generated.

        Raises:
            MegccError: for what is no JSON, and a schema that is too large.
            MissingTool: if the package llguidance is not installed.
        """
        try:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            _require_size("JSON schema", text)
            lark = f"{OPTIONS}\nstart: %json {json.dumps(json.loads(text))}\n"
            return cls(_llguidance().LLMatcher.grammar_from_lark(lark))
        except (ValueError, TypeError, RecursionError) as error:
            raise MegccError(f"the JSON schema cannot be read: {_line(error)}") from None


def read(path: str | Path, is_schema: bool) -> Grammar:
    """Reads the file of a grammar or, if `is_schema`, of a JSON schema. Errors are those of `Grammar`, and MegccError
    for a file that cannot be read."""
    text = read_text(path, is_schema)
    return Grammar.json_schema(text) if is_schema else Grammar.gbnf(text)


def read_text(path: str | Path, is_schema: bool) -> str:
    """Returns the text of such a file.

    Raises:
        MegccError: if it cannot be read or is too large.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise MegccError(f"{path} cannot be read: {error}") from None
    _require_size("JSON schema" if is_schema else "grammar", text)
    return text


class Matcher:
    """The place in a grammar that a text has reached.

    Raises:
        MegccError: if the grammar is refused; the message names what is not supported.
    """

    def __init__(self, tokenizer: LLTokenizer, grammar: Grammar):
        self._matcher = _llguidance().LLMatcher(tokenizer, grammar.text, log_level=0)
        self._vocabulary = tokenizer.vocab_size
        self._words = np.zeros(-(-self._vocabulary // 32), np.uint32)  # a bit for each token
        self._require_no_error()

    def mask(self) -> NDArray[np.bool_]:
        """Returns which tokens can follow, bool [vocabulary]; those that end a text can if the text is complete.

        Raises:
            MegccError: if no token can, and if finding out takes too many steps.
        """
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._require_no_error()
        bits = np.unpackbits(self._words.astype("<u4").view(np.uint8), bitorder="little")
        found = bits[:self._vocabulary].astype(np.bool_)
        if not found.any():
            raise MegccError("no token of this model can follow here in the grammar")
        return found

    def accept(self, token: int) -> None:
        """Appends a token to the text. Raises MegccError if the mask does not have it."""
        self._matcher.consume_token(token)
        self._require_no_error()

    @property
    def is_complete(self) -> bool:
        """Whether nothing can follow the text."""
        return bool(self._matcher.is_stopped())

    def _require_no_error(self) -> None:
        if self._matcher.is_error():  # after the error come a dump of the parser, or lines of the grammar
            error = re.split(r"<state>|\n +1 \| ", self._matcher.get_error())[0]
            raise MegccError(f"the grammar is refused: {_line(error)}")


def token_trie(tokenizer_file: Path, ends: Sequence[int], vocabulary: int) -> LLTokenizer:
    """Returns the trie of a vocabulary.

    Args:
        tokenizer_file: tokenizer.json.
        ends: tokens that end a text.
        vocabulary: the number of logits.

    Raises:
        MegccError: for a tokenizer that llguidance does not support; MissingTool: if it is not installed.
    """
    tokenizer = _llguidance().LLTokenizer
    try:
        trie: LLTokenizer = tokenizer(str(tokenizer_file), n_vocab=vocabulary, eos_token=list(ends) or None)
        return trie
    except Exception as error:  # it raises Exception itself
        raise MegccError(f"grammars do not work with the tokenizer of this model: {_line(error)}") from None


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise MissingTool("grammars need the package llguidance: pip install 'tvm_megcc[grammar]'") from None
    return llguidance


def _require_size(what: str, text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise MegccError(f"the {what} has {len(text):,} characters, more than {MAX_CHARACTERS:,}")


def _line(error: object) -> str:
    """Returns a message in one line."""
    return shortened(" ".join(str(error).split()), 300)
