# SPDX-License-Identifier: Apache-2.0
"""docs/models.md names every network that the tests run, with the facts of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.models_page import facts

from .networks import ALL_NETWORKS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def rows() -> dict[str, str]:
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    return {line.split("`")[1]: line for line in lines}


def test_every_network_is_on_the_page():
    assert list(rows()) == list(ALL_NETWORKS)


@pytest.mark.parametrize("name", ["mnist8", "kws_dscnn_f32", "resnet8_cifar10_f32", "vespa_tiny_transformer"])
def test_the_page_is_current(name: str):
    wanted = f"| {' | '.join(facts(ALL_NETWORKS[name]))} | "
    assert rows()[name].startswith(wanted), "write it again: python scripts/models_page.py > docs/models.md"
