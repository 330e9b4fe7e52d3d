# SPDX-License-Identifier: Apache-2.0
"""`python -m tvm_megcc` is the command `megcc`."""

import sys


def command() -> int:
    """Runs the command line, and ends without a trace where it is interrupted while it is imported."""
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(command())
