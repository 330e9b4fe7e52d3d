# SPDX-License-Identifier: Apache-2.0
"""Random quantised TFLite files of one to five operators: the bits of LiteRT's reference kernels."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.tflite_files import litert
from tests.tflite_networks import Network
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

#: Files that the long test reads; more with $MEGCC_RANDOM_TFLITE_NETWORKS.
COUNT = int(os.environ.get("MEGCC_RANDOM_TFLITE_NETWORKS", "300"))


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, COUNT), marks=pytest.mark.long)])
def test_networks(seeds: range, tmp_path):
    path, varied = tmp_path / "small.tflite", 0
    for seed in seeds:
        network = Network(seed)
        path.write_bytes(network.file)
        expected = litert(network.file, network.feeds)
        found = reference.run(import_tflite(path), network.feeds)
        for name, wanted in expected.items():
            assert found[name].dtype == wanted.dtype
            kinds = [operator for operator, *_ in network.operators]
            np.testing.assert_array_equal(found[name], wanted, err_msg=f"file {seed}: {', '.join(kinds)}")
            varied += len(np.unique(wanted)) > 2
    assert varied > len(seeds) // 2
