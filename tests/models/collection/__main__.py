# SPDX-License-Identifier: Apache-2.0
"""The table of the collection; exit code 1 where a row is not as the list says."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from . import LIST, read
from .outcomes import SECONDS, outcome
from .sources import Absent, Sources


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.collection", description=__doc__)
    parser.add_argument("--list", type=Path, default=LIST, metavar="JSON", help="another list")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose source or path has this text")
    parser.add_argument("--folder", type=Path, metavar="DIR",
                        help="where packages and files are kept (default: $MEGCC_COLLECTION, else build/collection)")
    parser.add_argument("--github", type=Path, metavar="DIR",
                        help="a folder with OWNER/NAME, each a work tree or a bare repository "
                             "(default: $MEGCC_COLLECTION_GITHUB)")
    parser.add_argument("--clone", action="store_true", help="fetch repositories that are not there")
    parser.add_argument("--plan", action="store_true", help="write the C, but do not compile and compare it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each model (default: %(default)s)")
    args = parser.parse_args()
    sources = Sources(args.folder, args.github, args.clone)
    counts, unexpected = Counter(), []
    for row in read(args.list):
        if args.only not in f"{row.source} {row.path}":
            continue
        try:
            file = sources.file(row)
        except Absent as reason:
            counts["skipped"] += 1
            print(f"  skipped       {row.label}: {reason}", flush=True)
            continue
        found = outcome(row, file, sources.objects, args.plan, args.seconds)
        counts[found.verdict] += 1
        as_expected = found.as_expected(row)
        if not as_expected:
            unexpected.append(row.label)
        text = found.text if found.verdict == "right" or not as_expected else row.why
        print(f"{' ' if as_expected else '✗'} {found.verdict:13} {row.label}{': ' if text else ''}{text}", flush=True)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    for label in unexpected:
        print(f"not as the list says: {label}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
