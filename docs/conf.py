# SPDX-License-Identifier: Apache-2.0
"""The documentation site, made by Sphinx: `make docs`.

The pages lie where a code host shows them, and link to each other as files; the root of the site's sources is the
checkout, so that these links hold on both. NAVIGATION alone defines the sidebar.
"""

import shutil
from pathlib import Path

NAVIGATION = (
    ("Use", ("docs/command", "docs/generated-folder", "docs/kernel-names", "docs/c-api", "docs/tvm", "docs/relay",
             "docs/other-models")),
    ("Models", ("docs/models", "docs/operators", "docs/dynamic-shapes", "docs/random", "docs/strings",
                "docs/streaming", "docs/language-models", "docs/audio", "docs/quantised", "docs/quantize", "docs/cv",
                "docs/microcontrollers", "docs/mlperf-tiny",
                "docs/from-tflite-micro", "docs/from-stm32cube-ai", "docs/from-microtvm", "docs/packages",
                "docs/updates", "docs/web", "docs/rust", "docs/go", "docs/mobile", "docs/windows", "docs/limitations",
                "docs/onnx-tests")),
    ("Trust", ("docs/errors", "docs/reproducible", "docs/half", "docs/seven-machines", "docs/threat-model",
               "SECURITY")),
    ("Speed", ("docs/performance", "docs/kernels", "docs/tuning")),
    ("Notebooks", tuple(f"tutorials/{name}" for name in (
        "01_compile_and_run", "02_from_c", "03_inside_tvm", "04_add_an_operator", "05_a_faster_kernel",
        "06_changing_shapes", "07_relay", "08_quantise", "09_bring_your_own_codegen",
        "10_microcontroller_from_tvm"))),
    ("Work on it", ("ARCHITECTURE", "docs/design", "docs/adding-an-operator", "docs/extern", "docs/porting",
                    "docs/debugging", "docs/coverage", "docs/glossary", "CONTRIBUTING", "CODE_OF_CONDUCT",
                    "docs/versioning", "CHANGELOG")),
)

project = "tvm_megcc"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "tutorials/*.ipynb"]
extensions = ["myst_nb"]
nb_execution_mode = "off"  # tests/compiled/tools/test_tutorials.py runs them
myst_heading_anchors = 4   # headings have the anchors that code hosts give them
html_theme = "furo"
html_title = "tvm_megcc"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
# C and shell that is no whole program need not parse.
suppress_warnings = ["misc.highlighting_failure"]


def contents() -> str:
    """The margin, as directives after the first page's text."""
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
                   for caption, pages in NAVIGATION)


def add_contents(_app, name, source):
    if name == root_doc:
        source[0] += contents()


def add_index(app, exception):
    """Web servers look for this name."""
    if exception is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True}
