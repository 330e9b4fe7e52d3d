# SPDX-License-Identifier: Apache-2.0
"""Packaging; the metadata is in pyproject.toml. The C runtime and the schema are copied into the package.

The same sources give the same archives, whoever builds them, where and when: neither the time, the user nor the umask
is in them. `make release` compares two.
"""

import gzip
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
DATA = ("c_runtime/include", "c_runtime/src", "c_runtime/signed", "c_runtime/lm", "c_runtime/tools",
        "c_runtime/ports", "schema")
#: Components of other projects in the wheel, described in CycloneDX: version, licence, origin, digests of files.
VENDORED = ("c_runtime/signed/monocypher/component.cdx.json",)
#: The time of all files in an archive: 1980-01-01, the first that a zip file can have, in seconds since 1970.
TIME = 315_532_800


class BuildWithData(build_py):
    """Copies the folders of `DATA`, which are beside the package in a checkout, to tvm_megcc/_data."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for name in DATA:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(self.build_lib) / "tvm_megcc" / "_data" / name, dirs_exist_ok=True)


class Wheel(bdist_wheel):
    """A wheel whose files have the permissions of a repository, and a list of what is in it (PEP 770)."""

    def write_wheelfile(self, wheelfile_base, *arguments, **keywords):
        super().write_wheelfile(wheelfile_base, *arguments, **keywords)
        boms = Path(wheelfile_base) / "sboms"
        boms.mkdir()
        (boms / "tvm_megcc.cdx.json").write_text(json.dumps(bill_of_materials(), indent=1) + "\n")
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(permissions(path))


class Source(sdist):
    """Sources in an archive whose members are sorted and have no user and no time."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        if format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(member):
            member.mode = permissions(base / member.name[len(base.name) + 1:])
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", TIME))
            return member

        base = Path(root_dir or ".") / base_dir
        with open(f"{base_name}.tar.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, TIME) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in (base, *sorted(base.rglob("*"))):
                archive.add(path, path.relative_to(base.parent), recursive=False, filter=plain)
        return f"{base_name}.tar.gz"


def permissions(path: Path) -> int:
    return 0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644


def bill_of_materials() -> dict:
    """Returns the bill of materials of the wheel in CycloneDX: itself and the components of other projects. The
    packages that it requires are in its metadata."""
    others = [json.loads((ROOT / name).read_text()) for name in VENDORED]
    name = f"pkg:pypi/tvm-megcc@{version()}"
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"component": {"type": "library", "bom-ref": name, "name": "tvm_megcc", "version": version(),
                                       "purl": name, "licenses": [{"expression": "Apache-2.0 AND 0BSD"}]}},
            "components": others, "compositions": [{"aggregate": "complete", "assemblies": [name]}]}


def version() -> str:
    return re.search(r'^VERSION = "(.+)"', (ROOT / "tvm_megcc" / "version.py").read_text(), re.M)[1]


setup(
    version=version(),
    packages=find_packages(include=["tvm_megcc", "tvm_megcc.*"]),
    package_data={"tvm_megcc": ["codegen/templates/**/*", "kernels/**/*.j2", "examples/*", "runtime/**/*.[ch]",
                                "runtime/**/*.mjs", "tools/**/*.j2", "tools/**/*.toml", "py.typed"]},
    cmdclass={"build_py": BuildWithData, "bdist_wheel": Wheel, "sdist": Source},
)
