# SPDX-License-Identifier: Apache-2.0
"""Locks and atomic replacement of folders that several processes read and write.

A lock is `flock` on the folder itself: there is no lock file to clean up, and the system releases it when its process
ends. If folders cannot be locked (NFS, Windows), new contents are still written to a staging folder and renamed.

The compiler writes generated folders with `replace`; the caches of the runtime use `locked` and `scratch`.
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

from .errors import MegccError, refused_by_system

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Arguments of renameat2(2).
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: The number of bytes that are read or compared at a time.
_CHUNK_BYTES = 1 << 22
#: The bytes of a large page of memory on most systems.
_LARGE_PAGE = 1 << 21
#: Names in the staging folder: the new folder, and the one that it replaces.
_NEW, _OLD = "new", "old"
#: The prefix of the names of folders that `scratch` makes.
_SCRATCH = ".megcc-"
#: The largest number of bytes that are read from a file, and from a device, which may be endless.
MAX_FILE_BYTES, MAX_DEVICE_BYTES = (1 << 31) - 1, 1 << 20


Bytes = bytes | bytearray | memoryview


class Contents(Protocol):
    """The contents of a large file: its size, and its pieces in order."""

    def __len__(self) -> int: ...

    def pieces(self) -> Iterable[Bytes]: ...


def write_new(folder: Path, files: Mapping[str, bytes | Contents], force: bool) -> None:
    """Writes a folder in one step, with `replace`; its subfolder `build` is kept.

    force: replace an existing folder that is not empty.

    Raises:
        MegccError: for such a folder without `force`, and if the folder cannot be written.
    """
    if folder.exists() and not force and not (folder.is_dir() and not any(folder.iterdir())):
        raise MegccError(f"{folder} exists already; choose another --output, or replace it with --force")
    try:
        replace(folder, files, keep="build")
    except OSError as error:
        raise refused_by_system(error, f"{folder} cannot be written") from None


def require_exists(path: Path) -> None:
    """Raises MegccError for a path at which there is nothing."""
    if not path.exists():
        raise MegccError(f"{path} does not exist")


def require_folder(path: Path) -> None:
    """Raises MegccError for a path that does not exist, or at which there is a file."""
    require_exists(path)
    if not path.is_dir():
        raise MegccError(f"{path} is a file, not a folder")


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
            if lock is None or _is_same_folder(lock, folder):
                yield
                return
        finally:
            _unlock(lock)


def replace(folder: Path, files: Mapping[str, bytes | Contents], keep: str) -> None:
    """Replaces a folder in one step by a new folder with these files. A reader always sees the old folder or the new
    one, also after a failure.

    A folder that already has exactly these files is not touched. Staging folders of killed processes are removed.

    Args:
        files: name below the folder -> contents, large ones in pieces.
        keep: the name of a subfolder that moves from the old folder to the new one (the build folder).

    Raises:
        OSError: if the new folder cannot be written; the old one is unchanged then.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_writer(folder):
        _remove_leftovers(folder, keep)
    if _consists_of(folder, files, keep):
        return
    with _staging(folder, keep) as staging:
        new, lock = staging / _NEW, None
        new.mkdir()
        try:
            # After the exchange this is the folder: the lock stops others from building in it before it has `keep`.
            lock = _lock(new)
            for name, data in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, data)
            with _one_writer(folder):
                if not _consists_of(folder, files, keep):  # another process may have written the same
                    _install(new, folder, keep)
        finally:
            _unlock(lock)


def refuse_precious(folder: Path, needed: Iterable[str | Path] = ()) -> None:
    """Raises MegccError for a path whose replacement would lose something: a file, a repository of git, the working
    folder or a parent of it, and a folder that contains one of the `needed` files."""
    resolved = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise MegccError(f"{folder} is a file: name a folder to write")
    with suppress(FileNotFoundError):
        if resolved in (Path.cwd(), *Path.cwd().parents):
            raise MegccError(f"{folder} would be replaced as a whole, and this process runs in it: name a new folder, "
                             f"such as {folder / 'network'}")
    if (folder / ".git").exists():
        raise MegccError(f"{folder} would be replaced as a whole, and is a repository of git: name a new folder, such "
                         f"as {folder / 'network'}")
    for path in map(Path, needed):
        if resolved in (path.resolve(), *path.resolve().parents):
            raise MegccError(f"{folder} would be replaced as a whole, with {path}: name another folder")


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Excludes other writers of this path. It locks the parent: without an atomic exchange, the folder itself does not
    exist for a moment."""
    lock = None
    try:
        lock = _lock(folder.parent)
        yield
    finally:
        _unlock(lock)


def _install(new: Path, folder: Path, keep: str) -> None:
    """Moves the new folder to the path of the old one."""
    if folder.is_dir():
        with locked(folder):
            _swap(new, folder)
            # While both folders are locked, so that nobody builds in the new one before it has `keep`.
            _recover(new.parent, folder, keep)
    elif folder.exists():
        _swap(new, folder)
    else:
        new.rename(folder)


def _swap(new: Path, folder: Path) -> None:
    """Exchanges the folder and the new one. Where that is not possible, renames the folder to `_OLD` in the staging
    folder, and then the new one."""
    if not _exchange(new, folder):
        old = new.with_name(_OLD)
        try:
            folder.rename(old)
            new.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchanges two paths in one step; False where the system or the file system has no such step."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(second))


@contextmanager
def _staging(folder: Path, keep: str) -> Iterator[Path]:
    """Yields a staging folder next to the folder, locked while this process uses it, and removes it at the end."""
    while True:
        staging, lock = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent)), None
        try:
            with suppress(FileNotFoundError):
                lock = _lock(staging)
            if staging.exists():  # else another process took it for a leftover
                yield staging
                return
        finally:
            _recover(staging, folder, keep)
            _unlock(lock)


def _recover(staging: Path, folder: Path, keep: str) -> None:
    """Removes a staging folder, after a complete or an interrupted replacement; restores the old folder if the new one
    is not in place."""
    if (staging / _OLD).exists() and not folder.exists():
        (staging / _OLD).rename(folder)
    for name in (_OLD, _NEW):  # after an exchange, the old folder has the name of the new one
        _move_kept(staging / name, folder, keep)
    shutil.rmtree(staging, ignore_errors=True)


def _move_kept(old: Path, folder: Path, keep: str) -> None:
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
    """Recovers from the staging folders of killed processes, which nobody has locked."""
    for staging in folder.parent.glob(f"{glob.escape(_prefix(folder))}*"):
        lock = None
        with suppress(OSError):
            try:
                lock = _lock(staging, wait=False)
                if lock is not None and {entry.name for entry in staging.iterdir()} <= {_OLD, _NEW}:
                    _recover(staging, folder, keep)
            finally:
                _unlock(lock)


def _prefix(folder: Path) -> str:
    return f".{folder.name}.megcc-"


def read(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Returns the bytes of a file or pipe.

    Raises:
        OSError: if it cannot be read; MegccError: if there are more than `max_bytes`.
    """
    chunks, size = [], 0
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode) and os.fstat(file.fileno()).st_size <= max_bytes:
            return file.read()
        max_bytes = max_bytes if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) else min(max_bytes, MAX_DEVICE_BYTES)
        while size <= max_bytes and (chunk := file.read(min(_CHUNK_BYTES, max_bytes + 1))):
            chunks.append(chunk)
            size += len(chunk)
    if size > max_bytes:
        raise MegccError(f"{path} has more than {max_bytes:,} bytes, which is more than such a file can have")
    return b"".join(chunks)


def sha256(path: Path) -> str:
    """Returns the digest of a file, as hexadecimal digits; the file may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def pieces(data: bytes | Contents) -> Iterable[Bytes]:
    """Yields the contents of a file piece by piece."""
    return (data,) if isinstance(data, bytes) else data.pieces()


def _write(path: Path, data: bytes | Contents) -> None:
    # Linux keeps a file in large pages if each is written whole; programs that map the file read it faster.
    with path.open("wb", buffering=_LARGE_PAGE) as file:
        rest = bytearray()
        for chunk in (chunk for piece in pieces(data) for chunk in _chunks(memoryview(piece))):
            rest += chunk
            whole = len(rest) - len(rest) % _LARGE_PAGE
            with memoryview(rest) as view:
                file.write(view[:whole])
            del rest[:whole]
        file.write(rest)


def _has_contents(path: Path, data: bytes | Contents) -> bool:
    if path.stat().st_size != len(data):
        return False
    with path.open("rb") as file:
        return all(file.read(len(chunk)) == chunk for piece in pieces(data)
                   for chunk in _chunks(memoryview(piece)))


def _chunks(piece: memoryview) -> Iterator[memoryview]:
    """Splits a piece into chunks of a few megabytes."""
    return (piece[begin:begin + _CHUNK_BYTES] for begin in range(0, len(piece), _CHUNK_BYTES))


def _consists_of(folder: Path, files: Mapping[str, bytes | Contents], keep: str) -> bool:
    """Returns whether the folder has these files and no others, except those in `keep`."""
    try:
        present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        present = {name: path for name, path in present.items() if not name.startswith(keep + "/")}
        return present.keys() == files.keys() and all(_has_contents(present[name], files[name]) for name in files)
    except OSError:  # it is being replaced
        return False


def _lock(folder: Path, wait: bool = True) -> int | None:
    """Opens and locks a folder. Returns the file descriptor; None if the folder cannot be locked, or, if `wait` is
    False, if another process has it locked."""
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


def _is_same_folder(lock: int, path: Path) -> bool:
    """Returns whether this path still leads to the locked folder. lock: its file descriptor."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def require_other_file(output: str | Path, *sources: str | Path) -> None:
    """Raises MegccError for an output that is one of the sources, which would be lost."""
    for source in map(Path, sources):
        if source.is_file() and Path(output).is_file() and source.samefile(output):
            raise MegccError(f"{output} is read for this, and would be lost: choose another name to write")
