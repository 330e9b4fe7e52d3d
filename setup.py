# SPDX-License-Identifier: Apache-2.0
"""Packaging; the metadata is in pyproject.toml. The C runtime and the schema are copied into the package."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
DATA = ("c_runtime/include", "c_runtime/src", "c_runtime/signed", "c_runtime/lm", "c_runtime/tools",
        "c_runtime/ports", "schema")


class BuildWithData(build_py):
    """Copies what lies beside the package in a checkout to tvm_megcc/_data."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for name in DATA:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(self.build_lib) / "tvm_megcc" / "_data" / name, dirs_exist_ok=True)


def version() -> str:
    return re.search(r'^VERSION = "(.+)"', (ROOT / "tvm_megcc" / "version.py").read_text(), re.M)[1]


setup(
    version=version(),
    packages=find_packages(include=["tvm_megcc", "tvm_megcc.*"]),
    package_data={"tvm_megcc": ["codegen/templates/**/*", "kernels/**/*.j2", "examples/*", "runtime/**/*.[ch]",
                                "runtime/**/*.mjs", "tools/**/*.j2", "py.typed"]},
    cmdclass={"build_py": BuildWithData},
)
