# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, TVM stays in the front ends, and every file says under which licence it stands."""

import ast
import functools
import re
from graphlib import TopologicalSorter
from pathlib import Path

from tests.unit.project.sources import PACKAGE, definitions, modules, tree

ROOT = PACKAGE.parent

#: Lowest first. A module imports from its own row and from rows above it in this table, never from below.
LAYERS = (
    ("", "deprecated", "errors", "foreign", "target", "paths", "folders", "notebook", "version"),
    ("ir",),
    ("tuning_log", "dispatch", "named_dims"),
    ("context",),
    ("ops",),
    ("kernels",),
    ("passes",),
    ("options", "option_values"),
    ("codegen",),
    ("compiler",),
    ("frontends", "runtime", "patterns", "extern", "api"),
    ("cli", "tools", "onnx_backend", "reports", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

MODULES = modules()


def part_of(path: Path) -> str:
    """The subpackage or top-level module; "" for the package's own __init__."""
    relative = path.relative_to(PACKAGE).with_suffix("")
    return "" if relative.parts == ("__init__",) else relative.parts[0]


@functools.cache
def imports(path: Path, in_functions: bool = False) -> set[str]:
    """Absolute names of what is imported at load time, or also inside functions, where it may go the other way."""
    own = ("tvm_megcc", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = set()
    for node in _nodes(tree(path), in_functions):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = own[:-node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def _nodes(tree: ast.AST, in_functions: bool):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not in_functions:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _nodes(node, in_functions)


def in_order(needs: dict[str, set[str]]) -> list[str]:
    """The files in an order in which each needs only those before it.

    Raises:
        graphlib.CycleError: naming a circle.
    """
    return list(TopologicalSorter(needs).static_order())


def test_imports_point_one_way():
    for path in MODULES:
        part = part_of(path)
        if part == "":
            continue
        assert part in LEVEL, f"{part} has no place among the layers"
        for name in imports(path):
            head, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if head == "tvm_megcc" and ((PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").exists()):
                assert LEVEL[target] <= LEVEL[part], f"{path} imports {name}, which stands above it"


def test_no_modules_import_each_other():
    """Wherever the imports stand: one inside a function may save time, but must not hide a circle."""
    names = {".".join(("tvm_megcc", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
             for path in MODULES}
    needs: dict[str, set[str]] = {}
    for name, path in names.items():
        found = {imported if imported in names else imported.rpartition(".")[0]
                 for imported in imports(path, in_functions=True)}
        needs[name] = {imported for imported in found if imported in names} - {name}
    assert len(in_order(needs)) == len(MODULES)


def test_no_folders_import_each_other():
    """Of the folders within a part: quantization and fusion of the passes, say."""
    for part in sorted(path for path in PACKAGE.iterdir() if path.is_dir()):
        needs: dict[str, set[str]] = {}
        for path in (path for path in MODULES if path.is_relative_to(part) and path.parent != part):
            own = path.relative_to(part).parts[0]
            inside = [name.split(".") for name in imports(path) if name.startswith(f"tvm_megcc.{part.name}.")]
            needs.setdefault(own, set()).update(
                names[2] for names in inside if (part / names[2]).is_dir() and names[2] != own)
        assert set(in_order(needs)) >= set(needs)


#: More files than a reader takes in at a glance, and why they stay together.
LARGE_FOLDERS = {"docs": "a page each", "tests/golden": "a text of each pass and model",
                 "tests/relay": "the tests of one front end"}


def test_folders_are_small():
    for folder in (path for name in ("tvm_megcc", "tests", "docs", "c_runtime", "scripts", "benchmarks")
                   for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_dir()):
        name = folder.relative_to(ROOT).as_posix()
        if not re.search(r"build|_data|__pycache__|/_|\.egg", name) and name not in LARGE_FOLDERS:
            files = [path.name for path in folder.iterdir() if path.suffix in (".py", ".c", ".h", ".j2", ".md")]
            assert len(files) <= 25 + ("__init__.py" in files), (
                f"{name} has {len(files)} files: put those that belong together into a folder of their own")


#: The files of the runtime, lowest first: each calls functions of those before it only.
RUNTIME = ("status.c", "cpu.c", "signature.c", "verify.c", "model.c", "memory.c", "place.c", "shape.c",
           "session.c", "control.c", "vm.c", "pool.c", "host.c")


def test_the_runtime_calls_one_way():
    strings = {path.name: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
             for path in (ROOT / "c_runtime" / "src").glob("*.c")}
    assert set(strings) == set(RUNTIME)
    home = {function: file for file, text in strings.items()
            for function in re.findall(r"^(?!static|typedef).*?(megcc_\w+)\([^;{}]*\)\n\{", text, re.MULTILINE)}
    assert {home["megcc_session_run"], home["megcc_grow"], home["megcc_fail"]} == {"vm.c", "memory.c", "status.c"}
    for file, text in strings.items():
        called = {home.get(function, file) for function in re.findall(r"\b(megcc_\w+)\(", text)}
        above = sorted(other for other in called if RUNTIME.index(other) > RUNTIME.index(file))
        assert not above, f"{file} calls functions of {', '.join(above)}"


def test_headers_include_one_way():
    """Files of the runtime read headers, never each other; and no header reads one that reads it."""
    folder = ROOT / "c_runtime"
    files = [path for path in folder.rglob("*.[ch]") if "build" not in path.relative_to(folder).parts]
    includes = {path.name: {name.rpartition("/")[2] for name in re.findall(r'#include "(.*)"', path.read_text())}
                for path in files}
    assert len(includes) == len(files)
    assert not [name for names in includes.values() for name in names if name.endswith(".c")]
    assert set(in_order(includes)) == set(includes)
    for path in (folder / "include").rglob("*.h"):
        assert not includes[path.name] & {"internal.h", "fb.h"}, f"{path.name} is for kernels and users"


def test_tvm_stays_in_the_front_ends():
    for path in MODULES:
        if part_of(path) in ("frontends", "runtime", "dispatch"):
            continue
        heads = set()
        for node in definitions(path):
            if isinstance(node, ast.Import):
                heads.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                heads.add(node.module.split(".")[0])
        assert "tvm" not in heads, path


def test_every_source_names_its_licence():
    missing = []
    for folder in ("tvm_megcc", "c_runtime", "tests", "scripts", "fuzz"):
        for path in sorted((ROOT / folder).rglob("*")):
            text = path.read_text() if path.suffix in (".py", ".c", ".h") else ""
            if text and "SPDX-License-Identifier" not in text[:400]:
                missing.append(path.relative_to(ROOT).as_posix())
    assert not missing


def test_releases_of_tvm_are_known_in_one_place():
    """What differs from release to release is looked up in one module, and another knows which there are."""
    places = {PACKAGE / "frontends" / name for name in ("_tvm.py", "tvm_versions.py")}
    said = re.compile(r"TVM\W+0\.\d|__version__|[sS]truct_?[iI]nfo|sinfo|hasattr\((tvm|relax|tirx|ir), ")
    for path in sorted((PACKAGE / "frontends").rglob("*.py")):
        if path not in places:
            found = [line for line in path.read_text().splitlines() if said.search(line)]
            assert not found, (path.name, found)
