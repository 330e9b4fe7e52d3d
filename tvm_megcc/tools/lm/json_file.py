# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON files beside a model, which are not trusted. Errors name the file and the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import folders
from ...errors import MegccError, quoted, refused_by_system

#: The largest number that counts something, such as tokens.
MAX_COUNT = (1 << 31) - 1


@dataclass(frozen=True)
class JsonFile:
    """An object of a JSON file. path: the file. keys: what comes before its own keys in messages, as "model."."""

    path: Path
    content: Mapping[str, Any]
    keys: str = ""

    @classmethod
    def read(cls, path: Path) -> JsonFile:
        """Reads a file; one that does not exist is an empty object.

        Raises:
            MegccError: if it cannot be read, or is no object of JSON.
        """
        if not path.is_file():
            return cls(path, {})
        try:
            content = json.loads(folders.read(path))
        except OSError as error:
            raise refused_by_system(error, f"{path} cannot be read") from None
        except (ValueError, RecursionError) as error:
            raise MegccError(f"{path} is no JSON file: {error}") from None
        if not isinstance(content, dict):
            raise MegccError(f"{path} is no object of JSON")
        return cls(path, content)

    def error(self, key: str, reason: str) -> MegccError:
        """Returns an error about the value of a key."""
        return MegccError(f"{self.path}: {quoted(self.keys + key)} {reason}")

    def part(self, key: str) -> JsonFile:
        """Returns the object of a key; an empty one if the key is missing."""
        value = self.content.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "is no object")
        return JsonFile(self.path, value, f"{self.keys}{key}.")

    def text(self, key: str, default: str = "") -> str:
        """Returns a string; the default if it is missing or null."""
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "is no string")
        return value

    def count(self, key: str) -> int:
        """Returns a number from 0 to `MAX_COUNT`; 0 if it is missing or null."""
        value = self.content.get(key)
        if value is None:
            return 0
        if not _is_count(value):
            raise self.error(key, f"is {quoted(value)}, and no number from 0 to {MAX_COUNT:,}")
        return int(value)

    def numbers(self, key: str) -> list[int]:
        """Returns the numbers of a list, or of one number; an empty list if the key is missing or null."""
        value = self.content.get(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(map(_is_count, items)):
            raise self.error(key, f"is {quoted(value)}, and no number or list of numbers from 0 to {MAX_COUNT:,}")
        return [int(item) for item in items]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
