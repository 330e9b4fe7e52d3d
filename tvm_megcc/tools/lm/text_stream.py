# SPDX-License-Identifier: Apache-2.0
"""The text of tokens that arrive one by one, up to a string that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: The character that the decoder shows if some bytes of a character are still missing.
_INCOMPLETE = "\ufffd"


class TextStream:
    """Decodes tokens one by one. Each call decodes only those since the last complete character, and the ones before
    it, which decide about a space between them.

    stop: strings that end the text and are not part of it.
    stopped: whether one of them has come.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()):
        self.stop, self.stopped = [ending for ending in stop if ending], False
        self._tokenizer = tokenizer
        self._complete: list[int] = []      # the tokens of the last complete characters
        self._new: list[int] = []           # those after them
        self._waiting = ""                  # text that the caller does not have, and may not be final

    def add(self, token: int) -> str:
        """Returns the text that a token makes final; "" if bytes of a character are missing, or the text may be the
        beginning of a string of `stop`."""
        self._new.append(token)
        text = self._new_text()
        found = self._waiting + text
        if text and not text.endswith(_INCOMPLETE):
            self._complete, self._new = self._new, []
        starts = [start for ending in self.stop if (start := found.find(ending)) >= 0]
        if starts:
            self.stopped, self._waiting, self._new = True, "", []
            return found[:min(starts)]
        if self._new:
            return ""
        final = len(found) - _stop_prefix_length(found, self.stop)
        self._waiting = found[final:]
        return found[:final]

    def end(self) -> str:
        """Returns the rest of the text, with U+FFFD for characters whose bytes are missing."""
        rest, self._waiting, self._new = self._waiting + self._new_text(), "", []
        return rest

    def _new_text(self) -> str:
        if not self._new:
            return ""
        before, after = (self._tokenizer.decode(tokens, skip_special_tokens=False)
                         for tokens in (self._complete, self._complete + self._new))
        return after[len(before):]


def _stop_prefix_length(text: str, stop: Sequence[str]) -> int:
    """Returns the number of characters at the end of a text that may be the beginning of one of `stop`."""
    return max((count for ending in stop for count in range(1, len(ending)) if text.endswith(ending[:count])),
               default=0)
