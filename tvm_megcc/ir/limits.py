# SPDX-License-Identifier: Apache-2.0
"""The limits of the runtime and of the container. The compiler checks them, so that the runtime can open every compiled
model. A test compares the numbers with the runtime's headers."""

# The names in the runtime's headers have the prefix MEGCC_.

#: The largest number of inputs and outputs of a kernel together.
MAX_OPERANDS = 61
#: The largest number of axes of a tensor.
MAX_RANK = 8
#: The largest number of threads of a session.
MAX_WORKERS = 256
#: The largest number of memory blocks of a session.
MAX_REGIONS = 4
#: The largest size of a tensor in bytes: kernels have int32_t indices, which may go a few vectors beyond its end.
MAX_BYTES = 2**31 - 2**16

# The ranges of 8- and 16-bit fields in schema/megcc.fbs.

#: The largest number of extents that a call passes.
MAX_EXTENTS = 2**8 - 1
#: The largest number of inputs and outputs of a model together (tensors with a name).
MAX_NAMES = 2**16 - 1
