# SPDX-License-Identifier: Apache-2.0
"""`megcc` with object files that models share: `python -m tests.models.collection.one FOLDER COMMAND…`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import compiled_once
from tvm_megcc.cli import main
from tvm_megcc.runtime import build

if __name__ == "__main__":
    store = Path(sys.argv[1])
    store.mkdir(parents=True, exist_ok=True)
    build.Objects.compile = compiled_once.sharing(store)
    sys.exit(main(sys.argv[2:]))
