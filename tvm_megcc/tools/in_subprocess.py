# SPDX-License-Identifier: Apache-2.0
"""Calls functions in a subprocess, since other engines may crash it; the crash is then reported.

The subprocess is started once, and waits for calls until this process ends. A call and its answer are pickles, each
after its length, over private pipes.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from typing import IO, Any

from .. import paths
from ..errors import InternalError, shortened


class Refused(Exception):
    """Raised if an engine refuses a call, with its message and its name."""

    def __init__(self, words: str, engine: str = ""):
        super().__init__(words, engine)
        self.engine = engine

    def __str__(self) -> str:
        return str(self.args[0])


class Ended(Exception):
    """Raised if the subprocess ended, with its exit status and last output."""


def call(module: str, function: str, *given: Any) -> Any:
    """Calls a function of a module in the subprocess and returns its result.

    Raises:
        Refused: if the function raises it.
        Ended: if the subprocess ended.
        InternalError: for any other exception.
    """
    with _lock:
        try:
            return _process().call(module, function, given)
        except (Refused, InternalError):
            raise
        except BaseException:  # it ended, or this process is interrupted: the next call starts a new one
            _close()
            raise


class _Process:
    """The subprocess with its pipes. log: its stderr, whose end explains a crash. owner: the id of the process that
    started it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.log = tempfile.TemporaryFile()
        search_path = os.pathsep.join([str(paths.PACKAGE.parent), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": search_path}
        self.process = subprocess.Popen([sys.executable, "-c", f"from {__name__} import main; main()"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment)

    def call(self, *asked: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            _write(self.process.stdin, asked)
            done, answer = _read(self.process.stdout)
        except (BrokenPipeError, EOFError):
            raise Ended(self._end()) from None
        if done:
            return answer
        raise answer if isinstance(answer, Refused) else InternalError(f"in a process of its own: {answer}")

    def _end(self) -> str:
        status = self.process.wait()
        ending = signal.Signals(-status).name if status < 0 else f"status {status}"
        self.log.seek(0)
        words = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return ending + (f", {shortened(words[-1], 200)}" if words else "")

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        self.log.close()


_lock = threading.Lock()
_started: list[_Process] = []


def _process() -> _Process:
    """Returns the running subprocess, starting it if necessary. A forked process gets one of its own."""
    if _started and _started[0].owner != os.getpid():
        _started.clear()
    if not _started:
        _started.append(_Process())
    return _started[0]


@atexit.register
def _close() -> None:
    while _started:
        _started.pop().close()


def _write(file: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    file.write(struct.pack("<Q", len(data)))
    file.write(data)
    file.flush()


def _read(file: IO[bytes]) -> Any:
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """The main function of the subprocess, which answers calls until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what engines print to stdout goes to stderr
    while True:
        try:
            module, function, given = _read(calls)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = True, getattr(importlib.import_module(module), function)(*given)
        except Refused as error:
            answer = False, error
        except Exception:
            answer = False, traceback.format_exc()
        _write(answers, answer)
