# SPDX-License-Identifier: Apache-2.0
"""`python -m tvm_megcc` is the command `megcc`."""

import sys

from .cli import main

sys.exit(main())
