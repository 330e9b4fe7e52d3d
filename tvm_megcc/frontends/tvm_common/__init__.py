# SPDX-License-Identifier: Apache-2.0
"""Code that the front ends for Relax and for Relay share."""
