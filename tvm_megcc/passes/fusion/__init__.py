# SPDX-License-Identifier: Apache-2.0
"""Several operators become one."""
