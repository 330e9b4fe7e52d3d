# SPDX-License-Identifier: Apache-2.0
"""What the front ends for Relax and for Relay share."""
