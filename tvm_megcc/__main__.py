# SPDX-License-Identifier: Apache-2.0
"""`python -m tvm_megcc` is the command `megcc`."""

import sys

#: The exit status after Ctrl-C, as of a process that SIGINT ended: 128 + 2, the number of the signal.
INTERRUPTED = 130


def command() -> int:
    """Runs the command line, and ends without a trace where it is interrupted while it is imported."""
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(command())
