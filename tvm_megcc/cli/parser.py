# SPDX-License-Identifier: Apache-2.0
"""A verb's parser, and the options that several verbs have."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..deprecated import FLAGS
from ..options import MEMORY, CompileOptions, all_options

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction["Verb"]


class Verb(argparse.ArgumentParser):
    """The parser of a verb. It reports errors itself, since argparse would show the usage of the whole command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(self._renamed(args), namespace)
        if unknown:
            similar = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, 1)
            self.error(f"unrecognized argument '{unknown[0]}'" + (f", did you mean {similar[0]}?" if similar else ""))
        return found, unknown

    def _renamed(self, args: Sequence[str] | None) -> list[str]:
        """Replaces deprecated names of this verb's options by the new ones, with a warning."""
        renamed, words = [], sys.argv[1:] if args is None else args
        for position, word in enumerate(words):
            old, *value = word.split("=", 1)
            new = FLAGS.get(old, "")
            following = [*value, *words[position + 1:]]
            if new in self._option_string_actions and not self._is_current(old, following):
                print(f"megcc: {old} is deprecated and will be removed in the next release: use {new}", file=sys.stderr)
                word = "=".join([new, *value])
            renamed.append(word)
        return renamed

    def _is_current(self, name: str, following: Sequence[str]) -> bool:
        """Returns whether a deprecated name is meant as another, current option of the verb, one of whose choices
        follows: `--profile safety` is such an option, `--profile` alone is the old name of --times."""
        choices = action.choices if (action := self._option_string_actions.get(name)) else None
        return bool(following and following[0] in (choices or ()))

    def error(self, message: str) -> NoReturn:
        super().error(message + self._choices(message))

    def _choices(self, message: str) -> str:
        """Returns what argparse's message leaves out: the value that was probably meant, or all values if there is none
        but one is required."""
        given = re.search(r"invalid choice: '([^']*)'", message)
        for action in self._actions:
            if action.choices and _is_about(message, action):
                choices = [str(choice) for choice in action.choices]
                if given is None:
                    return f" (one of {', '.join(choices)})" if "required" in message else ""
                word = given[1].lower()
                similar = difflib.get_close_matches(word, choices, 1) or [
                    choice for choice in choices if choice[:3] == word[:3]]
                return f", did you mean {similar[0]}?" if similar else ""
        return ""


def _is_about(message: str, action: argparse.Action) -> bool:
    """Whether argparse's message contains the option's names, or the name of a positional argument, as a whole word."""
    options = [rf"{name}(?![\w-])" for name in action.option_strings]
    positional = rf"\b{action.metavar or action.dest}(?![\w-])"
    return any(re.search(pattern, message) for pattern in (*options, positional))


def count(text: str) -> int:
    """Parses a number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{text}': expected a number of at least 1")
    return int(text)


def byte_count(text: str) -> int:
    """Parses a number of bytes such as `256K`."""
    from ..context import bytes_of

    found = bytes_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number of bytes, such as 4096, 256K or 100M")
    return found


def add_verb(verbs: Verbs, name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    """Adds a verb with the options that all have. run: returns the exit status. about: its help, in lower case."""
    verb = verbs.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    verb.set_defaults(run=run)
    verb.add_argument("--json", action="store_true", help="print the report as JSON")
    verb.add_argument("-q", "--quiet", action="store_true", help="print neither report nor progress")
    verb.add_argument("-v", "--verbose", action="store_true",
                      help="print every step and tracebacks of unexpected errors")
    return verb


def add_target(verb: argparse.ArgumentParser | argparse._ArgumentGroup, about: str, default: str = "") -> None:
    """Adds --target."""
    verb.add_argument("--target", default=default, help=about)


def add_path(verb: argparse.ArgumentParser) -> None:
    """Adds PATH, a model or a compiled folder."""
    verb.add_argument("path", metavar="PATH", help="a model, a compiled folder or the .megcc file in it")


def add_model(verb: argparse.ArgumentParser) -> None:
    """Adds --model, for folders of several."""
    verb.add_argument("--model", metavar="NAME", dest="model_name", help="name of the model, if the folder has several")


def add_feeds(verb: argparse.ArgumentParser) -> None:
    """Adds --inputs and --seed, the inputs of a run."""
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")


def add_shape(verb: argparse.ArgumentParser) -> None:
    """Adds --shape, for runs of models whose shapes change."""
    verb.add_argument("--shape", metavar="SHAPES", help='shapes of dynamic inputs, or sizes of dimensions: '
                                                        '"data=(1,3,224,224)", "batch=1;sequence=16"')


def add_compiler(verb: argparse.ArgumentParser | argparse._ArgumentGroup, about: str = "the C compiler") -> None:
    """Adds --cc."""
    verb.add_argument("--cc", help=about)


def add_output(verb: argparse.ArgumentParser, default: str, is_path: bool = False) -> None:
    """Adds --output, the folder to write, and --force. default: shown in the help. is_path: it
    is also the value, and not a pattern such as NAME_megcc."""
    verb.add_argument("-o", "--output", metavar="DIR", default=default if is_path else None,
                      help=f"folder to write (default: {default})")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")


def add_rpc(verb: argparse.ArgumentParser) -> None:
    """Adds the options of a device that TVM's RPC reaches."""
    group = verb.add_argument_group("on a device")
    group.add_argument("--rpc", metavar="HOST:PORT", help="TVM's RPC tracker that the device is registered at")
    group.add_argument("--key", metavar="KEY", help="name under which it is registered")


#: The attribute of a compile option in the parsed command line, which cannot collide with other options.
_COMPILING = "compiling {}"
#: Kind of option -> argparse's arguments for it.
_KINDS: dict[str, dict[str, Any]] = {
    "string": {}, "path": {}, "strings": {"action": "append"}, "paths": {"action": "append"},
    "flag": {"action": "store_true"}, "count": {"type": int}, "bytes": {"type": byte_count}}


def add_compiling(verb: argparse.ArgumentParser, memory_limits: bool = True) -> None:
    """Adds the options that change the generated code; used wherever a model may be given. memory_limits:
    also those that limit memory."""
    verb.set_defaults(compiles=True)  # so `cli.with_options` adds `args.options`, the `compile_options` of the verb
    group = verb.add_argument_group("compiling")
    for name, option in all_options():
        if memory_limits or name not in MEMORY:
            known: dict[str, Any] = {"choices": option.kind} if isinstance(option.kind, tuple) else _KINDS[option.kind]
            shown: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
            group.add_argument(option.flag, dest=_COMPILING.format(name), default=argparse.SUPPRESS, help=option.help,
                               **known, **shown)


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """Returns the compile options of a command line.

    Raises:
        MegccError: for an invalid value.
    """
    given = {name: vars(args)[key] for name, _ in all_options() if (key := _COMPILING.format(name)) in args}
    return CompileOptions(**given)
