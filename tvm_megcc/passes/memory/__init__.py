# SPDX-License-Identifier: Apache-2.0
"""Views, order of execution, computation by strips of rows."""
