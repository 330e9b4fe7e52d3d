# SPDX-License-Identifier: Apache-2.0
"""What `compare` and `bench --against` take for the same result."""

import json

import numpy as np
import pytest

from tvm_megcc.tools import judge

NAN, INF = np.nan, np.inf


def reals(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def eight(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


def labels(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("value, expected, equal, said", [
    (reals(1, 2), reals(1, 2), True, "max error 0 (0 of 2), cosine 1.00000000"),
    (reals(0, 0), reals(0, -0.0), True, "max error 0 (0 of 0), cosine 1.00000000"),
    (reals(1, 2 + 2**-13), reals(1, 2), True, "max error 0.000122 (6.1e-05 of 2), cosine 1.00000000"),
    (reals(1, 2.125), reals(1, 2), False, "max error 0.125 (0.062 of 2), cosine 0.99971667"),
    (reals(0, 1e-9), reals(0, 0), False, "max error 1e-09 (0), cosine 1.00000000"),
    (reals(NAN, INF, -INF, 1), reals(NAN, INF, -INF, 1), True, "max error 0 (0 of 1), cosine 1.00000000"),
    (reals(NAN, 1), reals(1, 1), False, "max error 0 (0 of 1), cosine 1.00000000, 1 NaN or infinite on one side only"),
    (reals(INF, 1), reals(-INF, 1), False,
     "max error 0 (0 of 1), cosine 1.00000000, 1 NaN or infinite on one side only"),
    (reals(NAN), reals(NAN), True, "max error 0 (0 of 0), cosine 1.00000000"),
    (reals(), reals(), True, "max error 0 (0 of 0), cosine 1.00000000"),
    (eight(0, 0), eight(0, 0), True, "every value is the same"),
    (eight(3, 1, 1), eight(3, 1, 0), True, "max error 1 quantum of 3, 33.33% of values differ"),
    (eight(3, 1, 2), eight(3, 1, 0), False, "max error 2 quanta of 3, 33.33% of values differ"),
    (eight(0, 1, 1, 0), eight(1, 0, 0, 1), False, "max error 1 quantum of 1, 100.00% of values differ"),
    (np.int16([-7]), np.int16([-8]), True, "max error 1 quantum of 8, 100.00% of values differ"),
    (labels(7, 2), labels(7, 2), True, "every value is the same"),
    (labels(7, 3), labels(7, 2), False, "50.00% of values differ"),
    (labels(*[0] * 99_999, 9), labels(*[0] * 100_000), True, "0.00% of values differ"),
    (np.array([True, False]), np.array([True, True]), False, "50.00% of values differ"),
    (reals(1, 2, 3), reals(1, 2), False, "shape [3] instead of [2]"),
    (reals(7, 2), labels(7, 2), True, "every value is the same"),
])
def test_difference(value, expected, equal, said):
    found = judge.difference(value, expected, 1e-4, 0.99999)
    assert found["equal"] is equal and judge.text(found) == said
    assert "NaN" not in json.dumps(found) and "Infinity" not in json.dumps(found)


def test_tolerance_and_cosine():
    assert judge.difference(reals(1, 2.1), reals(1, 2), 0.1)["equal"]
    assert not judge.difference(reals(1, 2.1), reals(1, 2), 0.1, 0.99999)["equal"]
    assert judge.difference(eight(100, 10), eight(110, 10), 0.1)["equal"]
    assert judge.difference(labels(1, 1), labels(1, 2), 0.5)["equal"]
