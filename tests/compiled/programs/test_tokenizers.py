# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in programs, beside the package tokenizers: single texts, pairs, texts that are too long, rows in a loop,
and random bytes under AddressSanitizer."""

from __future__ import annotations

import json
import random
import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.tokenizers import test_c_unigram, test_c_wordpiece
from tests.compiled.tokenizers.tokenizer_texts import text, training
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError, ShapeError
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Loop, Operator, Text, Tokenizer

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow
KINDS = ("wordpiece", "unigram", "pairs")
BYTES, PAIR_BYTES, MOST = 160, 60, 24


def byte_pairs() -> dict:
    """A tokenizer.json as RoBERTa's: two tokens stand between the texts of a pair."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in ("<s>", "</s>")])
    first, last = made.token_to_id("<s>"), made.token_to_id("</s>")
    made.post_processor = processors.RobertaProcessing(("</s>", last), ("<s>", first), add_prefix_space=False)
    made.enable_padding(pad_id=7, pad_token="<s>")
    return json.loads(made.to_str())


def vocabulary(kind: str) -> dict:
    if kind == "wordpiece":
        return test_c_wordpiece.vocabulary("uncased", 400)
    return byte_pairs() if kind == "pairs" else test_c_unigram.vocabulary(next(iter(test_c_unigram.KINDS)))


def steps(kind: str, path: str) -> list:
    every = {name: f"{kind}_{name}" for name in ("tokens", "mask", "types", "count")}
    second = {name: f"{kind}_pair_{name}" for name in every}
    outputs = {name: f"{kind}_{name}_of_rows" for name in every}
    return [Tokenizer(path, {"text": "text"}, every, {"most": MOST}, name=f"{kind}_single"),
            Tokenizer(path, {"text": "text", "pair": "other"}, second, {"most": MOST}, name=f"{kind}_both"),
            Loop(f"{kind}_rows", [Tokenizer(path, {"text": "other", "pair": f"{kind}_row"},
                                            {name: f"{kind}_row_{name}" for name in every}, {"most": MOST},
                                            name=f"{kind}_each")],
                 3, for_each={f"{kind}_row": "rows"},
                 outputs={value: f"{kind}_row_{name}" for name, value in outputs.items()})]


def program(folder) -> Program:
    found: list = []
    for kind in KINDS:
        (folder / f"{kind}.json").write_text(json.dumps(vocabulary(kind)))
        found += steps(kind, str(folder / f"{kind}.json"))
    found.append(Text("labels", {"tokens": "pairs_tokens", "count": "pairs_count"}, {"text": "again"},
                      {"file": str(folder / "pairs.json"), "most": BYTES}))
    found.append(Operator("Add", ["wordpiece_count", "unigram_count"], ["both"]))
    return Program("tokens", {"text": f"uint8[{BYTES}]", "other": f"uint8[{PAIR_BYTES}]",
                              "rows": f"uint8[3,{PAIR_BYTES}]"}, found,
                   [name for step in found for name in step.produced])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The program's folder, and the tokenizers in Python."""
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("tokens")
    written = program(folder).compile(folder / "tokens")
    return written, {kind: Tokenizer.from_file(str(folder / f"{kind}.json")) for kind in KINDS}


def fitting(string: str, capacity: int) -> str:
    return string.replace("\0", "").encode("utf-8", "replace")[:capacity].decode("utf-8", "ignore")


def strings(seed: int) -> tuple[str, str, list[str]]:
    draw = random.Random(seed)
    words = "".join(text(seed * 8 + at) for at in range(draw.randrange(4)))
    return fitting(words, BYTES), fitting(text(seed * 8 + 5), PAIR_BYTES), [
        fitting(text(seed * 8 + 6) * at, PAIR_BYTES) for at in range(3)]


def require(found: dict, tokenizer, results: dict[str, str], given: tuple[str, ...], row=...) -> None:
    """Compares the results of a step with the package's."""
    padding = (tokenizer.padding or {}).get("pad_id", 0)
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST)
    expected = tokenizer.encode(*given)
    if padding:
        tokenizer.enable_padding(pad_id=padding)
    count = len(expected.ids)
    assert np.reshape(found[results["count"]], -1)[0 if row is ... else row] == count
    rest = MOST - count
    for name, values, after in (("tokens", expected.ids, padding), ("types", expected.type_ids, 0),
                                ("mask", [1] * count, 0)):
        assert found[results[name]][row].tolist() == values + [after] * rest, (name, given)


def test_tokens_are_those_of_the_package(made):
    folder, tokenizers = made
    with tvm_megcc.load(folder) as session:
        for seed in range(300):
            string, other, rows = strings(seed)
            found = session.run({"text": string, "other": other, "rows": rows})
            for kind, tokenizer in tokenizers.items():
                single, pair, _ = steps(kind, "")
                require(found, tokenizer, single.outputs, (string,))
                require(found, tokenizer, pair.outputs, (string, other))
                results = {name: f"{kind}_{name}_of_rows" for name in single.outputs}
                for row, each in enumerate(rows):
                    require(found, tokenizer, results, (other, each), row)
            ids = tokenizers["pairs"].encode(string).ids
            again = found["again"].tobytes().rstrip(b"\0")
            assert again.decode("utf-8", "replace") == tokenizers["pairs"].decode(ids).rstrip("\0")
            assert session.with_strings(found)["again"] == tokenizers["pairs"].decode(ids)


def test_strings_that_do_not_fit_are_refused(made):
    with tvm_megcc.load(made[0]) as session:
        good = {"text": "a", "other": "b", "rows": ["c"]}
        assert session.strings == list(good)
        for given, message in (({"text": "x" * (BYTES + 1)}, f"at most {BYTES} bytes"), ({"text": "a\0b"}, "U[+]0000"),
                               ({"rows": ["c"] * 4}, "at most 3 strings")):
            with pytest.raises(ShapeError, match=message):
                session.run({**good, **given})


def test_the_command_takes_strings(made, tmp_path, capsys):
    folder, tokenizers = made
    given = ["--text", "text=hello world", "--text", "other=a=b", "--text", "rows=one", "--text", "rows=two"]
    assert main(["program", "run", str(folder), *given, "--repeat", "1", "--outputs", str(tmp_path / "out.npz")]) == 0
    found = np.load(tmp_path / "out.npz")
    require(found, tokenizers["wordpiece"], steps("wordpiece", "")[1].outputs, ("hello world", "a=b"))
    assert main(["program", "run", str(folder), "--text", "hello"]) == 1
    assert "3 inputs for a text: text, other, rows; write INPUT=hello" in capsys.readouterr().err


def test_random_bytes_under_asan(made, tmp_path):
    folder = made[0]
    compiler = find_compiler(native())
    sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*compiler.command, "-std=c99", "-O1", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", *native().cflags, "-I", str(folder), "-I",
                    str(folder / "runtime/include"), *map(str, sources), "-o", str(tmp_path / "run"), "-lm",
                    "-lpthread"], check=True)
    draw = np.random.default_rng(1)
    size = BYTES + 4 * PAIR_BYTES
    parts = np.frombuffer("<s>\u00e9\u2581 \ufdfa\u0390[SEP]".encode(), np.uint8)
    records = np.concatenate([draw.integers(1, 256, (400, size), np.uint8), draw.choice(parts, (400, size)),
                              draw.integers(1, 128, (200, size), np.uint8)])
    records[::7, ::5] = 0
    ran = subprocess.run([str(tmp_path / "run"), str(folder / "tokens.megcc")], input=records.tobytes(),
                         capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")
    assert not ran.stderr
    assert len(ran.stdout) % len(records) == 0


def test_refusals(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(vocabulary("wordpiece")))
    path = str(tmp_path / "t.json")

    def refused(message: str, type_: str = "uint8[9]", outputs=("tokens",), pair: bool = False, **settings) -> None:
        step = Tokenizer(path, {"text": "x", **({"pair": "x"} if pair else {})}, {name: name for name in outputs},
                         {"most": 8, **settings})
        with pytest.raises(MegccError, match=message):
            Program("p", {"x": type_}, [step, Operator("Neg", [outputs[0]], ["y"])], ["y"]).compile(tmp_path / "p")

    refused("is a text, uint8.bytes., not float32", "float32[9]")
    refused("'text' is a text, uint8.bytes., not uint8.2,9.", "uint8[2,9]")
    refused("'most' is 2, and there are 2 tokens around", most=2)
    refused("'most' is 3, and there are 3 tokens around", most=3, pair=True)
    refused("no output 'words'; it has tokens, mask, types, count", outputs=("words",))
    refused("'most' is a number from 1", most=0)
    (tmp_path / "t.json").write_text("{}")
    refused("no tokenizer.json")
