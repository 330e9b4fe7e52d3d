# SPDX-License-Identifier: Apache-2.0
"""Folders that are replaced, stopped at every line: there is a whole one at any moment. Files that are mapped."""

import errno
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc import folders
from tvm_megcc.runtime.mapped_file import map_file

KEEP = "build"
FIRST = {"a.c": b"first", "kernels/k.c": b"1"}
SECOND = {"a.c": b"second", "b.c": b"2"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file()}


@pytest.fixture(params=["exchanged", "renamed"])
def folder(request, tmp_path, monkeypatch) -> Path:
    """The first folder, with something built in it, where there is an exchange and where there is none."""
    if request.param == "renamed":
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    elif sys.platform != "linux":
        pytest.skip("only Linux exchanges folders")
    path = tmp_path / "out"
    folders.replace(path, FIRST, KEEP)
    (path / KEEP).mkdir()
    (path / KEEP / "mine.o").write_bytes(b"object")
    return path


class Stopped(BaseException):
    """What a signal or a full disk raises somewhere."""


def stopped(number: int, folder: Path, act, but: str = "nothing") -> bool:
    """Replaces the folder, and calls `act` before the `number`-th line of folders.py; whether it came to that.

    but: lines with this word are spared.
    """
    lines, count = Path(folders.__file__).read_text().splitlines(), 0

    def line(frame, event, _argument):
        nonlocal count
        if event == "line" and but not in lines[frame.f_lineno - 1]:
            count += 1
            if count == number:
                act()
        return line

    def call(frame, _event, _argument):
        return line if frame.f_code.co_filename == folders.__file__ and frame.f_code.co_name != but else None

    sys.settrace(call)
    try:
        folders.replace(folder, SECOND, KEEP)
    except Stopped:
        pass
    finally:
        sys.settrace(None)
    return count >= number


def assert_whole(folder: Path) -> None:
    found = contents(folder)
    found.pop(f"{KEEP}/mine.o", None)
    assert found in (FIRST, SECOND)


def raised():
    raise Stopped


def test_an_error_or_interrupt_at_any_line(folder):
    number = 1
    while stopped(number, folder, raised, "_unlock"):  # a lock that is not given up ends with the process
        assert_whole(folder)
        assert (folder / KEEP / "mine.o").exists() or list(folder.parent.rglob("mine.o")), "nothing built is lost"
        folders.replace(folder, FIRST, KEEP)
        assert contents(folder) == {**FIRST, f"{KEEP}/mine.o": b"object"}
        assert os.listdir(folder.parent) == ["out"], "leftovers are removed"
        number += 1
    assert number > 50
    assert contents(folder) == {**SECOND, f"{KEEP}/mine.o": b"object"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_at_any_line(folder, request):
    """Where folders cannot be exchanged there is a moment without one; the next time puts it back."""
    number, came = 1, True
    while came:
        child = os.fork()
        if not child:
            stopped(number, folder, lambda: os.kill(os.getpid(), signal.SIGKILL))
            os._exit(0)
        came = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        if folder.exists() or "exchanged" in request.node.name:
            assert_whole(folder)
        folders.replace(folder, FIRST, KEEP)
        assert contents(folder) == {**FIRST, f"{KEEP}/mine.o": b"object"}
        assert os.listdir(folder.parent) == ["out"]
        number += 1
    assert number > 50


def test_what_other_people_put_beside_it_stays(folder):
    for name in (".out.backup", ".out.megcc-notes"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "text").write_text("mine")
    folders.replace(folder, SECOND, KEEP)
    assert sorted(os.listdir(folder.parent)) == [".out.backup", ".out.megcc-notes", "out"]


def test_the_same_files_are_left_alone(folder):
    before = (folder / "a.c").stat()
    folders.replace(folder, FIRST, KEEP)
    assert os.path.samestat(before, (folder / "a.c").stat())
    (folder / "added.c").write_text("")
    folders.replace(folder, FIRST, KEEP)
    assert "added.c" not in contents(folder)


def test_the_same_files_that_came_meanwhile_are_left_alone(folder, monkeypatch):
    """Two processes write the same new files: the second finds that it need not, or what the first is about to load
    would be away for a moment."""
    consists, before = folders._consists_of, (folder / "a.c").stat()
    answers = iter([lambda *_: False])  # as it was when we came
    monkeypatch.setattr(folders, "_consists_of", lambda *given: next(answers, consists)(*given))
    folders.replace(folder, FIRST, KEEP)
    assert os.path.samestat(before, (folder / "a.c").stat())
    assert os.listdir(folder.parent) == ["out"]


def test_a_link_stays_a_link(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    folders.replace(link, SECOND, KEEP)
    assert link.is_symlink() and "b.c" in contents(folder)


def test_a_file_is_replaced(tmp_path):
    (tmp_path / "out").write_text("a file")
    folders.replace(tmp_path / "out", FIRST, KEEP)
    assert contents(tmp_path / "out") == FIRST and os.listdir(tmp_path) == ["out"]


def test_a_disk_that_is_full(folder, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    monkeypatch.setattr(folders, "_write", full)
    with pytest.raises(OSError, match="No space"):
        folders.replace(folder, SECOND, KEEP)
    assert_whole(folder)
    assert os.listdir(folder.parent) == ["out"]


def test_many_at_once(folder, request):
    """Several writers and readers: the folder is always one of the written ones, and what is built in it stays. Where
    folders cannot be exchanged, readers may come when there is none."""
    readers = "exchanged" in request.node.name
    strings = [{"a.c": b"%d" % i, "b.c": b"%d" % i} for i in range(6)]

    def write(files):
        for _ in range(5):
            folders.replace(folder, files, KEEP)
            if readers:
                check()

    def check():
        with folders.locked(folder):
            now = contents(folder)
            assert now.pop(f"{KEEP}/mine.o") == b"object" and now in strings

    failures: list = []

    def guarded(files):
        try:
            write(files)
        except BaseException as error:  # a thread's own errors are printed, not raised
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(files,)) for files in strings]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # as if each had a processor
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    check()
    assert os.listdir(folder.parent) == ["out"]


def test_a_lock_keeps_others_out_and_ends_with_its_process(tmp_path):
    pytest.importorskip("fcntl")
    order = []

    def second():
        with folders.locked(tmp_path):
            order.append("second")

    with folders.locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    child = os.fork()
    if not child:
        with folders.locked(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with folders.locked(tmp_path):
        pass
    with pytest.raises(OSError), folders.locked(tmp_path / "nowhere"):
        pass


def test_what_killed_processes_left_is_swept(tmp_path):
    """A process that is killed removes nothing; what others use stays."""
    with folders.scratch(tmp_path) as ours:
        child = os.fork()
        if child == 0:
            with folders.scratch(tmp_path) as its:
                (its / "made").write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(list(tmp_path.iterdir())) == 2
        folders.sweep(tmp_path)
        assert list(tmp_path.iterdir()) == [ours]
    assert not list(tmp_path.iterdir())


def test_mapped_file_has_the_bytes_that_were_written(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, 5 << 20, np.uint8).tobytes()
    folders.write_new(tmp_path / "out", {"weights": data}, force=False)
    mapped = map_file(tmp_path / "out" / "weights")
    assert mapped.dtype == np.uint8 and mapped.tobytes() == data and not mapped.flags.writeable
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        map_file(tmp_path / "empty")
