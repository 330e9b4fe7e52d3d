# SPDX-License-Identifier: Apache-2.0
"""Renders the chat template of a model in a sandbox, since it comes with the model."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import MegccError
from .settings import Settings

if TYPE_CHECKING:
    from types import FrameType

#: The most seconds that a chat template may take, and the limit of numbers that it multiplies.
_TEMPLATE_SECONDS, _LARGEST = 3.0, 1_000_000


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
