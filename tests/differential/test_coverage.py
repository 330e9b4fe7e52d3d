# SPDX-License-Identifier: Apache-2.0
"""The page of coverage, and the list of refusals, which may only get shorter."""

from __future__ import annotations

import json

from .coverage import collected, main, page, read, refusals, totals
from .result import Feature, Result

FEATURE = (Feature("Conv", ("float",), ("auto_pad=VALID", "group=2")),)
FOUND = [Result(1, "l", "right", "", "", FEATURE), Result(1, "l", "right", "", "c", FEATURE),
         Result(2, "l", "wrong", "far", "c", FEATURE), Result(3, "l", "refused", "no|t", "", FEATURE),
         Result(4, "l", "no reference", "", "", FEATURE)]


def log(path, found):
    path.write_text("".join(json.dumps(["onnx", *each]) + "\n" for each in found))
    return path


def test_page(tmp_path):
    found = list(read([log(tmp_path / "log", FOUND)]))
    text = page(collected(found))
    assert "| `Conv` | numpy: 1 of 1<br>c: 1 of 2 | float | auto_pad: VALID<br>group: 2 | no\\|t: 1 |" in text
    assert refusals(found) == ["onnx Conv: no|t"]
    assert "| ONNX | numpy | 3 | 1 | 1 | 0 | 0 | 1 |\n| ONNX | c | 2 | 1 | 0 | 1 | 0 | 0 |\n" in totals(found)


def test_the_list_only_gets_shorter(tmp_path, monkeypatch):
    refused, first = tmp_path / "refused.txt", log(tmp_path / "first", FOUND)
    second = log(tmp_path / "second", [FOUND[3]._replace(reason="new"), FOUND[0]])

    def run(path) -> int:
        monkeypatch.setattr("sys.argv", ["coverage", str(path), "--output", str(tmp_path / "page"),
                                         "--refused", str(refused)])
        return main()

    assert run(first) == 0 and refused.read_text() == "onnx Conv: no|t\n"
    assert run(second) == 1 and refused.read_text() == ""
