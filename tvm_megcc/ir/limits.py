# SPDX-License-Identifier: Apache-2.0
"""The limits of the runtime, which the compiler checks, so that every compiled model can be opened. A test compares the
numbers with the runtime's."""

# Limits of the runtime's headers, under the same names with MEGCC_ in front.

#: Inputs and outputs of one kernel together.
MAX_OPERANDS = 61
#: Axes of a tensor.
MAX_RANK = 8
MAX_WORKERS = 256
#: The most blocks of memory that a session has.
MAX_REGIONS = 4
#: The size of the largest tensor in bytes: indices of kernels are int32_t, and may be a few vectors beyond its end.
MAX_BYTES = 2**31 - 2**16

# Limits of the narrow fields of schema/megcc.fbs.

#: Extents that a call passes.
MAX_EXTENTS = 2**8 - 1
#: Inputs and outputs of a model together: tensors with a name.
MAX_NAMES = 2**16 - 1
