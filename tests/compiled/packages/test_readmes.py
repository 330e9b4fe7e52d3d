# SPDX-License-Identifier: Apache-2.0
"""README.md of each package: the files and folders that it names are there, seen from the package's folder."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages.systems import SYSTEMS

DIGITS = paths.examples() / "digits.onnx"
#: How words of a README begin that are of the user's project, of the system or of what the commands make.
OTHERS = ("build/", "libraries/", "components/", "subprojects/", "lib/", "Middlewares/", "jniLibs/", "build.gradle",
          "api/", "benchmark/api", "proguard-android-optimize.txt", "libtvm_ffi.so", "$", "digits.xcframework",
          "idf.py", "./run")
#: Files of the user's project.
OF_PROJECT = {"stm32cube": ["main.c", "CMakeLists.txt"], "meson": ["main.c"]}
#: Ends of names that are files'.
_FILE = re.compile(r"\.(c|h|cpp|hpp|rs|py|js|mjs|ts|toml|cmake|sh|whl|pack|wasm|so|megcc|html|ini|txt|json|gradle|"
                   r"swift|svg)$")


def named(readme: str) -> list[str]:
    """Words in `code`, in blocks of code and in lines of it that are paths, or names of files."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```\w*\n.*?^```", "", readme, flags=re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^ {4}(.*)$", rest, re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", rest)
    folders = [found for text in (*fenced, *lines, *inline)
               for found in re.findall(r"add_subdirectory\((\w+)\)|path = \"(\w+)\"", text)]
    code = [re.sub(r"\s(//|#)\s.*", "", line) for text in (*fenced, *lines, *inline) for line in text.split("\n")]
    words = [word.strip(".,;:") if not word.startswith(".") else word.rstrip(",;:")
             for text in code for word in re.split(r"[\s\"'()<>=]+", text)]
    return [f"../{''.join(folder)}" for folder in folders] + [
        word for word in words if "://" not in word and "…" not in word and "-" != word[:1]
        and ("/" in word.strip("/") or _FILE.search(word) or re.fullmatch(r"/?\w+/", word))]


def missing(readme: str, folder: Path) -> list[str]:
    absent = []
    for word in named(readme):
        if word.startswith(OTHERS) or word.removeprefix("src/").endswith((".onnx",)):
            continue
        path = word.lstrip("/")
        there = any(folder.glob(path)) if "*" in path else (folder / path).exists()
        if not there and not ("/" not in path and any(folder.rglob(path))):
            absent.append(word)
    return absent


def test_missing_files_are_found(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text("")
    readme = ('See `src/a.c`, `src/`, `a.c`.\n\n    cc src/*.c lost/*.c && build/a\n\n'
              '```toml\np = { path = "../gone" }\n```\n')
    assert missing(readme, tmp_path) == ["../gone", "lost/*.c"]
    assert missing("`add_subdirectory(digits)`", tmp_path) == ["../digits"]
    assert missing('```toml\ndigits = { path = "digits" }\n```\n', tmp_path) == ["../digits"]


def test_what_the_readme_of_a_compiled_folder_names_is_there(tmp_path):
    made = tmp_path / "made"
    assert main(["compile", str(DIGITS), "--target", "c,cortex-m4", "-q", "-o", str(made)]) == 0
    readme = (made / "README.md").read_text()
    assert len(named(readme)) > 10 and missing(readme, made) == []


@pytest.mark.parametrize("system", [pytest.param(name, marks=pytest.mark.slow) if row.built else name
                                    for name, row in SYSTEMS.items()])
def test_what_a_readme_names_is_there(system, tmp_path):
    path = DIGITS
    if system == "mlperf-tiny":
        path = saved(model([node("DequantizeLinear", "x s z", "a"), node("Relu", "a", "b"),
                            node("QuantizeLinear", "b s z", "y")], {"x": ("int8", [1, 490])}, {"y": ("int8", [1, 490])},
                           {"s": np.float32(1), "z": np.int8(0)}), tmp_path / "kws.onnx")
    made = tmp_path / "packages" / f"made_for_{system}"
    assert main(["export", str(path), "--for", system, "-q", "-o", str(made)]) == 0
    readme = (made / "README.md").read_text()
    assert named(readme)
    assert missing(readme, made) == OF_PROJECT.get(system, [])
    for preset in re.findall(r"--preset (\S+)", readme):
        assert f'"name": "{preset}"' in (made / "CMakePresets.json").read_text()
    for example in re.findall(r"--example (\w+)", readme):
        assert (made / f"examples/{example}.rs").exists()
