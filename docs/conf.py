# SPDX-License-Identifier: Apache-2.0
"""The documentation site, made by Sphinx: `make docs`.

The pages lie where a code host shows them, and link to each other as files; the root of the site's sources is the
checkout, so that these links hold on both. NAVIGATION alone defines the sidebar.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

NAVIGATION = (
    ("Use", ("docs/start", "docs/command", "docs/options", "docs/python-api", "docs/generated-folder",
             "docs/kernel-names", "docs/c-api", "docs/tvm", "docs/relay", "docs/other-models")),
    ("Models", ("docs/models", "docs/operators", "docs/dynamic-shapes", "docs/random", "docs/strings",
                "docs/streaming", "docs/language-models", "docs/language-model-speed",
                "docs/grammars", "docs/tokenizers",
                "docs/embeddings", "docs/language-models-on-microcontrollers",
                "docs/audio", "docs/quantised", "docs/quantize", "docs/cv",
                "docs/programs",
                "docs/microcontrollers", "docs/mlperf-tiny",
                "docs/from-tflite-micro", "docs/from-stm32cube-ai", "docs/from-microtvm", "docs/packages",
                "docs/updates", "docs/web", "docs/rust", "docs/go", "docs/mobile", "docs/windows", "docs/limitations",
                "docs/onnx-tests", "docs/onnxruntime-tests")),
    ("Trust", ("docs/errors", "docs/reproducible", "docs/half", "docs/seven-machines", "docs/threat-model",
               "docs/safety", "docs/qualification", "docs/misra", "docs/mutants", "SECURITY")),
    ("Speed", ("docs/performance", "docs/operator-speed", "docs/kernels", "docs/tuning")),
    ("Notebooks", tuple(f"tutorials/{name}" for name in (
        "01_compile_and_run", "02_from_c", "03_inside_tvm", "04_add_an_operator", "05_a_faster_kernel",
        "06_changing_shapes", "07_relay", "08_quantise", "09_bring_your_own_codegen",
        "10_microcontroller_from_tvm", "11_language_model"))),
    ("Work on it", ("ARCHITECTURE", "docs/design", "docs/adding-an-operator", "docs/extern", "docs/porting",
                    "docs/debugging", "docs/coverage", "docs/glossary", "CONTRIBUTING", "CODE_OF_CONDUCT",
                    "docs/versioning", "CHANGELOG")),
)

project = "tvm_megcc"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "tutorials/*.ipynb"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
nb_execution_mode = "off"  # tests/compiled/tools/test_tutorials.py runs them
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4   # headings have the anchors that code hosts give them
html_theme = "furo"
html_title = "tvm_megcc"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
smartquotes = False  # `--dim` is no dash
# C and shell that is no whole program need not parse.
suppress_warnings = ["misc.highlighting_failure"]


def contents() -> str:
    """The margin, as directives after the first page's text."""
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
                   for caption, pages in NAVIGATION)


def options() -> str:
    """Every verb of the command with its arguments, as the parser has them."""
    from tvm_megcc.cli.options import command_line

    return "\n".join(text for verb in verbs(command_line()) for text in described(verb))


def verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers that take no further verb, in the order in which help lists them."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for verb in action.choices.values():
            yield from verbs(verb)


def described(verb: argparse.ArgumentParser) -> Iterator[str]:
    yield f"\n## {verb.prog}\n\n{plain(verb.description or '')}\n"
    for action in verb._actions:
        if action.help == argparse.SUPPRESS or "-h" in action.option_strings:
            continue
        word = action.metavar or (action.dest.upper() if action.choices is None else f"{{{','.join(action.choices)}}}")
        names = [f"{name} {word}" if action.nargs != 0 else name for name in action.option_strings] or [word]
        yield f"`{', '.join(names)}`\n: {plain(action.help or '–')}\n"


def plain(text: str) -> str:
    """Help of argparse as Markdown: % is doubled in it, and nothing is markup."""
    return re.sub(r"([\\`*_<\[{])", r"\\\1", " ".join(text.split()).replace("%%", "%"))


def add_contents(_app, name, source):
    if name == root_doc:
        source[0] += contents()
    if "<!-- verbs -->" in source[0]:
        source[0] = source[0].replace("<!-- verbs -->", options())


def quote_code(_app, _what, _name, _object, _options, lines):
    """Code in our docstrings has one backtick at each side; Sphinx wants two. `data:[1,3]` is no address."""
    lines[:] = [re.sub(r"\b(\w+):\[", r"\1\\:[", re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)) for line in lines]


def add_index(app, exception):
    """Web servers look for this name."""
    if exception is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", quote_code, 100)  # before napoleon
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True}
