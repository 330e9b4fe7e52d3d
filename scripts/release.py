#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of a release from the last commit, in dist/: `make release VERSION=1.2.3`.

    python scripts/release.py [VERSION]

Wheel and sources are built twice, in different folders, by different umasks, time zones and languages, and have to be
equal byte by byte. Without VERSION it is a trial of the version that is there. Beside them: sbom.cdx.json, the wheel
with everything that a bare environment installs for it (CycloneDX); changes.md, the section of CHANGELOG.md;
SHA256SUMS.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
#: The differences between the two builds: folder, umask, environment.
BUILDS = (("one", 0o022, {"TZ": "UTC", "LC_ALL": "C"}),
          ("another/folder of releases", 0o077, {"TZ": "Pacific/Auckland", "LC_ALL": "C.UTF-8", "USER": "somebody"}))


def run(*command: str | Path, **options) -> None:
    """Runs a command; ends with its message if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, command))} failed\n{done.stdout}{done.stderr}")


def changes(version: str | None) -> str:
    """Returns the section of a version in CHANGELOG.md; without a version, that of unreleased changes."""
    text = (ROOT / "CHANGELOG.md").read_text()
    heading = rf"^## {re.escape(version or 'Unreleased')}(?: .*)?\n"
    found = re.search(heading + r"(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"release: CHANGELOG.md has no section '## {version}'")
    return found[1].strip() + "\n"


def stated() -> str:
    """The version of the sources."""
    return re.search(r'^VERSION = "(.+)"', (ROOT / "tvm_megcc" / "version.py").read_text(), re.MULTILINE)[1]


def build(folder: Path, umask: int, environment: dict[str, str], epoch: str) -> dict[str, bytes]:
    """Builds the commit in a new folder; returns the archives by name."""
    folder.mkdir(parents=True)
    previous = os.umask(umask)
    try:
        with tempfile.TemporaryFile() as packed:
            subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=packed, check=True)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as archive:
                archive.extractall(folder)
        for path in folder.rglob("*"):
            path.chmod(path.stat().st_mode & ~umask)
        run(sys.executable, "-m", "build", cwd=folder,
            env=os.environ | environment | {"SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": ""})
    finally:
        os.umask(previous)
    return {path.name: path.read_bytes() for path in sorted((folder / "dist").iterdir())}


def members(path: Path) -> dict[str, tuple]:
    """Returns the members of an archive: name -> permissions, time, owner where the format has one, contents."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {row.filename: (row.external_attr, row.date_time, row.CRC) for row in archive.infolist()}
    with tarfile.open(path) as archive:
        return {row.name: (row.mode, row.mtime, row.uid, row.uname, row.isfile() and archive.extractfile(row).read())
                for row in archive}


def compare(one: dict[str, bytes], other: dict[str, bytes], folder: Path) -> None:
    """Ends with the names of members that differ."""
    if one == other:
        return
    for name in one:
        paths = folder / "a" / name, folder / "b" / name
        for path, data in zip(paths, (one[name], other.get(name, b"")), strict=True):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        if one[name] != other.get(name):
            a, b = map(members, paths)
            differing = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
            print(f"release: {name} differs: {', '.join(differing[:20]) or 'in the order or the compression'}")
    sys.exit("release: two builds of one commit are not equal")


def materials(wheel: Path, folder: Path) -> None:
    """Writes the bill of materials of an environment that has this wheel alone."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python", "install",
        "-q", wheel)
    run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--validate", "--sv", "1.6",
        "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "-o", DIST / "sbom.cdx.json",
        folder / "bin" / "python")


def inside(wheel: Path, folder: Path) -> None:
    """Validates the bill of materials in the wheel."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        if len(names) != 1:
            sys.exit("release: the wheel has no bill of materials (PEP 770)")
        text = archive.read(names[0]).decode()
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None or json.loads(text)["metadata"]["component"]["version"] != stated():
        sys.exit(f"release: {names[0]} is not right: {wrong}")


def main(version: str | None) -> None:
    if version not in (None, stated()):
        sys.exit(f"release: tvm_megcc/version.py says {stated()}, not {version}")
    if f"\nversion: {stated()}\n" not in (ROOT / "CITATION.cff").read_text():
        sys.exit(f"release: CITATION.cff does not say {stated()}")
    notes = changes(version)
    if version and subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True,
                                  check=True).stdout:
        sys.exit("release: commit first: there are files that git does not have as they are")
    epoch = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        one, other = (build(Path(temporary, where), umask, environment, epoch)
                      for where, umask, environment in BUILDS)
        compare(one, other, Path(temporary))
        run(sys.executable, "-m", "reuse", "lint", "--lines", cwd=ROOT)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for name, data in one.items():
            (DIST / name).write_bytes(data)
        archives = [DIST / name for name in one]
        run(sys.executable, "-m", "twine", "check", "--strict", *archives)
        wheel = next(path for path in archives if path.suffix == ".whl")
        inside(wheel, Path(temporary))
        materials(wheel, Path(temporary, "environment"))
    (DIST / "changes.md").write_text(notes)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


if __name__ == "__main__":
    if len(sys.argv) > 2 or (sys.argv[1:2] and sys.argv[1].startswith("-")):
        sys.exit(__doc__)
    main(sys.argv[1] if sys.argv[1:] and sys.argv[1] else None)
