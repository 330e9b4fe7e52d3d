# SPDX-License-Identifier: Apache-2.0
"""`megcc` with a cache that models share: `python -m tests.models.collection.one FOLDER COMMAND…`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tvm_megcc.cli import main

if __name__ == "__main__":
    store = Path(sys.argv[1])
    store.mkdir(parents=True, exist_ok=True)
    os.environ["MEGCC_CACHE"] = str(store)
    sys.exit(main(sys.argv[2:]))
