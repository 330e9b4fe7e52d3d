# SPDX-License-Identifier: Apache-2.0
"""The command `megcc`: results on stdout, progress and errors on stderr.

Exit codes: 0 success; 1 an error of the model, the folder or a tool, or a failed comparison; 2 wrong usage; 70 a bug of
tvm_megcc.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from ..errors import InternalError, MegccError, for_the_command, refused_by_system
from .options import command_line
from .parser import compile_options
from .verbs import REFUSED, logged, warnings_on_stderr

USAGE, BUG = 2, 70


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    parser = command_line()
    _complete(parser)
    args = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # the caller replaced the stream
            stream.reconfigure(errors="backslashreplace")
    try:
        with logged(logging.getLogger("tvm_megcc"), logging.DEBUG) if args.verbose else nullcontext():
            with for_the_command(), warnings_on_stderr():
                code = args.run(with_options(args)) or 0
        sys.stdout.flush()
        return code
    except InternalError as error:
        return _bug(args, str(error))
    except MegccError as error:
        return _refused(error, *getattr(args, "compiled", ()))
    except KeyboardInterrupt:
        return 130  # as of a process that SIGINT ended: 128 + 2, the number of the signal
    except BrokenPipeError:
        _leave_stdout()
        return 0
    except MemoryError:
        return _refused(MegccError("there is not enough memory for this; use smaller shapes, or a machine with more"))
    except OSError as error:
        if error.filename is None:  # not a file that we opened: the report
            _leave_stdout()
        return _refused(refused_by_system(error))
    except Exception as error:
        if args.verbose:
            traceback.print_exc()
        return _bug(args, f"{type(error).__name__}: {error}")


def _refused(error: MegccError, folder: Path | None = None, given: Path | None = None) -> int:
    """Prints an error. folder, given: the folder that was compiled for this command, and the model it was compiled
    from, which messages name instead."""
    message = str(error)
    if folder is not None:
        message = re.sub(rf"{re.escape(str(folder))}(?![\\/\w])", lambda found: str(given), message)
    print(f"megcc: {message}", file=sys.stderr)
    return REFUSED


def _leave_stdout() -> None:
    """Discards pending output, since Python would retry at exit and print an error."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line to the arguments that the tools take.

    Raises:
        MegccError: for an invalid compile option.
    """
    return with_options(command_line().parse_args(argv))


def with_options(args: argparse.Namespace) -> argparse.Namespace:
    """Adds the compile options, if the verb has some, to a parsed command line. Raises as `parsed`."""
    if "compiles" in args:
        args.options = compile_options(args)
    return args


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answers a shell's completion request by the optional package argcomplete, which then ends the process."""
    if "_ARGCOMPLETE" in os.environ:
        with suppress(ImportError):
            import argcomplete
            argcomplete.autocomplete(parser)


def _bug(args: argparse.Namespace, message: str) -> int:
    advice = "" if args.verbose else ", with -v for where it happened"
    print(f"megcc: this is a bug of ours: {message}\n"
          f"  Please report it with the folder that 'megcc compile … --dump DIR' writes{advice}.", file=sys.stderr)
    return BUG


