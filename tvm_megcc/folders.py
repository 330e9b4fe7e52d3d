# SPDX-License-Identifier: Apache-2.0
"""Locks and atomic replacement of folders that several processes read and write.

A lock is `flock` on the folder itself: there is no lock file to clean up, and the system releases it when its process
ends. If folders cannot be locked (NFS, Windows), everything is still written aside and renamed.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from .errors import MegccError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Flags of renameat2(2).
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: Bytes of a file that are compared at once.
_PART = 1 << 22
#: Names in the temporary folder: the new folder, and the one that it replaces.
_NEW, _OLD = "new", "old"
#: The prefix of the names of folders that `scratch` makes.
_SCRATCH = ".megcc-"
#: The most bytes that are read of a file, and of a device, which may be endless.
MOST, MOST_OF_DEVICE = (1 << 31) - 1, 1 << 20


Bytes = bytes | bytearray | memoryview


class Contents(Protocol):
    """The contents of a large file: its size, and its pieces in order."""

    def __len__(self) -> int: ...

    def pieces(self) -> Iterable[Bytes]: ...


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on the folder. If the folder is replaced while we wait, locks the new one.

    Raises:
        OSError: if the folder does not exist.
    """
    while True:
        lock = None
        try:
            lock = _lock(folder)
            if lock is None or _is_at(lock, folder):
                yield
                return
        finally:
            _unlock(lock)


def replace(folder: Path, files: Mapping[str, bytes | Contents], keep: str) -> None:
    """Replaces the folder by one of these files in one step. A reader always sees the old or the new one, also after a
    failure.

    A folder of just these files is left alone. Leftovers of killed processes beside the folder are removed.

    Args:
        files: name below the folder -> contents, large ones in pieces.
        keep: a folder below it that the new one gets from the old one.

    Raises:
        OSError: if it cannot be written; the old one is still there then.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_writer(folder):
        _remove_leftovers(folder, keep)
    if _consists_of(folder, files, keep):
        return
    with _aside(folder, keep) as aside:
        new, lock = aside / _NEW, None
        new.mkdir()
        try:
            lock = _lock(new)  # it is the folder from the exchange on: nobody builds in it before it has `keep`
            for name, data in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, data)
            with _one_writer(folder):
                if not _consists_of(folder, files, keep):  # another process may have written the same
                    _put(new, folder, keep)
        finally:
            _unlock(lock)


def refuse_precious(folder: Path, needed: Iterable[str | Path] = ()) -> None:
    """Raises MegccError for a folder that nobody means to replace as a whole: a file, a repository of git, the folder
    that this process runs in or one around it, and one with a file or folder that is `needed`."""
    there = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise MegccError(f"{folder} is a file: name a folder to write")
    with suppress(FileNotFoundError):
        if there in (Path.cwd(), *Path.cwd().parents):
            raise MegccError(f"{folder} would be replaced as a whole, and this process runs in it: name a new folder, "
                             f"such as {folder / 'network'}")
    if (folder / ".git").exists():
        raise MegccError(f"{folder} would be replaced as a whole, and is a repository of git: name a new folder, such "
                         f"as {folder / 'network'}")
    for path in map(Path, needed):
        if there in (path.resolve(), *path.resolve().parents):
            raise MegccError(f"{folder} would be replaced as a whole, with {path}: name another folder")


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Excludes other writers of this path. It locks the parent, because without an exchange the folder itself is absent
    for moments."""
    lock = None
    try:
        lock = _lock(folder.parent)
        yield
    finally:
        _unlock(lock)


def _put(new: Path, folder: Path, keep: str) -> None:
    """Moves the new folder to the path of the old one."""
    if folder.is_dir():
        with locked(folder):
            _swap(new, folder)
            _settle(new.parent, folder, keep)
    elif folder.exists():
        _swap(new, folder)
    else:
        new.rename(folder)


def _swap(new: Path, folder: Path) -> None:
    """Exchanges the folder and the new one, or moves the folder into the temporary one."""
    if not _exchange(new, folder):
        old = new.with_name(_OLD)
        try:
            folder.rename(old)
            new.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two paths in one step; False where the system or the file system has no such step."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))


@contextmanager
def _aside(folder: Path, keep: str) -> Iterator[Path]:
    """Yields a temporary folder next to it, locked while this process uses it, and removes it at the end."""
    while True:
        aside, lock = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent)), None
        try:
            with suppress(FileNotFoundError):
                lock = _lock(aside)
            if aside.exists():  # else another process took it for a leftover
                yield aside
                return
        finally:
            _settle(aside, folder, keep)
            _unlock(lock)


def _settle(aside: Path, folder: Path, keep: str) -> None:
    """Removes a temporary folder, wherever replacing ended; if the folder is missing, moves it back first."""
    if (aside / _OLD).exists() and not folder.exists():
        (aside / _OLD).rename(folder)
    for part in (_OLD, _NEW):  # what we wrote has no `keep`, only a folder that was replaced can
        _keep_from(aside / part, folder, keep)
    shutil.rmtree(aside, ignore_errors=True)


def _keep_from(old: Path, folder: Path, keep: str) -> None:
    if (old / keep).is_dir() and folder.is_dir() and not (folder / keep).exists():
        (old / keep).rename(folder / keep)


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yields a temporary folder in another one, and removes it at the end; `sweep` removes those of killed
    processes."""
    while True:
        path, lock = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent)), None
        try:
            with suppress(FileNotFoundError):
                lock = _lock(path)
            if path.exists():  # else another process took it for a leftover
                yield path
                return
        finally:
            shutil.rmtree(path, ignore_errors=True)
            _unlock(lock)


def sweep(parent: Path) -> None:
    """Removes the `scratch` folders of killed processes: nobody has them locked."""
    for path in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            lock = _lock(path, wait=False)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                _unlock(lock)


def _remove_leftovers(folder: Path, keep: str) -> None:
    """Settles temporary folders of killed processes: nobody has them locked."""
    for aside in folder.parent.glob(f"{glob.escape(_prefix(folder))}*"):
        lock = None
        with suppress(OSError):
            try:
                lock = _lock(aside, wait=False)
                if lock is not None and {entry.name for entry in aside.iterdir()} <= {_OLD, _NEW}:
                    _settle(aside, folder, keep)
            finally:
                _unlock(lock)


def _prefix(folder: Path) -> str:
    return f".{folder.name}.megcc-"


def read(path: str | Path, most: int = MOST) -> bytes:
    """Returns the bytes of a file or pipe.

    Raises:
        OSError: if it cannot be read; MegccError: if there are more than `most` bytes.
    """
    parts, size = [], 0
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode) and os.fstat(file.fileno()).st_size <= most:
            return file.read()
        most = most if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) else min(most, MOST_OF_DEVICE)
        while size <= most and (part := file.read(min(_PART, most + 1))):
            parts.append(part)
            size += len(part)
    if size > most:
        raise MegccError(f"{path} has more than {most:,} bytes, which is more than such a file can have")
    return b"".join(parts)


def sha256(path: Path) -> str:
    """Returns the digest of a file, which may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
    return digest.hexdigest()


def pieces(data: bytes | Contents) -> Iterable[Bytes]:
    """Yields the contents of a file piece by piece."""
    return (data,) if isinstance(data, bytes) else data.pieces()


def _write(path: Path, data: bytes | Contents) -> None:
    with path.open("wb") as file:
        file.writelines(pieces(data))


def _holds(path: Path, data: bytes | Contents) -> bool:
    if path.stat().st_size != len(data):
        return False
    with path.open("rb") as file:
        return all(file.read(len(part)) == part for piece in pieces(data)
                   for part in _parts(memoryview(piece)))


def _parts(piece: memoryview) -> Iterator[memoryview]:
    """Splits a piece into a few megabytes at a time."""
    return (piece[begin:begin + _PART] for begin in range(0, len(piece), _PART))


def _consists_of(folder: Path, files: Mapping[str, bytes | Contents], keep: str) -> bool:
    """Whether the folder has these files and no others, but for those in `keep`."""
    try:
        present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        present = {name: path for name, path in present.items() if not name.startswith(keep + "/")}
        return present.keys() == files.keys() and all(_holds(present[name], files[name]) for name in files)
    except OSError:  # it is being replaced
        return False


def _lock(folder: Path, wait: bool = True) -> int | None:
    """Returns the folder, open and locked; None if it cannot be locked, or, without waiting, if another process has it
    locked."""
    if fcntl is None:
        return None
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return lock
    except BaseException as error:
        os.close(lock)
        if isinstance(error, OSError):
            return None
        raise


def _unlock(lock: int | None) -> None:
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile may have it open
        os.close(lock)


def _is_at(lock: int, path: Path) -> bool:
    """Whether this path still leads to the open folder."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def require_other_file(output: str | Path, *read: str | Path) -> None:
    """Raises MegccError for an output that is one of the files that are read: it would be lost."""
    for source in map(Path, read):
        if source.is_file() and Path(output).is_file() and source.samefile(output):
            raise MegccError(f"{output} is read for this, and would be lost: choose another name to write")
