# SPDX-License-Identifier: Apache-2.0
"""Reports which weights the programs of a container share, and which are packed differently for some CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .plan import KernelPlan


def shared_weights(plans: Sequence[KernelPlan]) -> list[dict[str, Any]]:
    """Describes the weights of a container by the programs that read them, with most bytes first.

    Returns:
        [{targets: names, bytes: stored once, weights: names of the constants}]. The sum of bytes is the container's,
        except for alignment. Equal bytes count as one weight, whatever their names.
    """
    readers: dict[bytes, list[str]] = {}
    weights: dict[bytes, tuple[int, list[str]]] = {}
    for plan in plans:
        for weight in plan.weights.values():
            key = weight.digest
            targets = readers.setdefault(key, [])
            if plan.target.name not in targets:
                targets.append(plan.target.name)
            names = weights.setdefault(key, (weight.data.nbytes, []))[1]
            if weight.source not in names:
                names.append(weight.source)
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for key, targets in readers.items():
        row = groups.setdefault(tuple(targets), {"targets": targets, "bytes": 0, "weights": []})
        size, names = weights[key]
        row["bytes"] += size
        row["weights"] += [name for name in names if name not in row["weights"]]
    return sorted(groups.values(), key=lambda row: (-row["bytes"], row["targets"]))


def stored_bytes(plan: KernelPlan) -> tuple[int, int]:
    """Returns the bytes of the weights that a program reads, and of the model's constants that they were packed from.
    Equal ones are counted once."""
    weights = {weight.digest: weight for weight in plan.weights.values()}
    sources = {weight.source for weight in weights.values()}
    return (sum(weight.data.nbytes for weight in weights.values()),
            sum(plan.graph.constants[name].nbytes for name in sources))
