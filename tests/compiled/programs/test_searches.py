# SPDX-License-Identifier: Apache-2.0
"""CTC in programs, compiled, beside sums over all alignments and other libraries."""

from __future__ import annotations

from itertools import groupby, pairwise, product

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Search

pytestmark = pytest.mark.slow
FRAMES, CLASSES = 6, 4


def logits(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0, 2, shape).astype(np.float32)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    shifted = scores.astype(np.float64) - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


INPUTS = {"small": logits(FRAMES, CLASSES), "batch": logits(2, 9, 5), "given": np.array([9, 3]),
          "sound": logits(1, 50, 30), "tokens": np.array([3, 3, 1, 7]), "number": np.array([3]),
          "empty": np.array([0]), "hostile": np.full((8, 3), np.nan, np.float32)}
INPUTS["likely"] = np.exp(log_softmax(INPUTS["small"])).astype(np.float32)
INPUTS["hostile"][2:5] = [[np.inf, -np.inf, 0], [-np.inf] * 3, [1e38, -1e38, np.nan]]
ALL = ("tokens", "count", "scores", "frames")


def search(function: str, prefix: str, inputs: dict[str, str], outputs: tuple[str, ...] = ALL, **settings) -> Search:
    return Search(function, inputs, {name: f"{prefix}_{name}" for name in outputs}, settings)


STEPS = [
    search("ctc_greedy", "a", {"scores": "small"}),
    search("ctc_greedy", "b", {"scores": "batch", "length": "given"}, blank=-1, most=4),
    search("ctc_beam", "c", {"scores": "small"}, beam=2000, results=40),
    search("ctc_beam", "d", {"scores": "batch", "length": "given"}, beam=4, results=2, blank=4),
    search("ctc_beam", "e", {"scores": "sound"}),
    search("ctc_beam", "f", {"scores": "small", "length": "empty"}, beam=4096, results=3),
    search("ctc_beam", "g", {"scores": "hostile"}, beam=9, results=9, most=3),
    search("ctc_beam", "h", {"scores": "likely"}, beam=2000, results=40, probabilities=True),
    search("ctc_align", "i", {"scores": "small", "tokens": "tokens", "count": "number"}, ("frames", "score")),
    search("ctc_greedy", "j", {"scores": "hostile"})]
OUTPUTS = [name for step in STEPS for name in step.produced]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    types = {name: f"{value.dtype}[{','.join(map(str, value.shape))}]" for name, value in INPUTS.items()}
    program = Program("searches", types, STEPS, OUTPUTS)
    with tvm_megcc.load(program.compile(tmp_path_factory.mktemp("searches") / "searches")) as session:
        session.run(INPUTS)
        return session.run(INPUTS)


def greedy(scores: np.ndarray, blank: int) -> list[tuple[int, int]]:
    """Tokens and their first frames."""
    runs, at = [], 0
    for token, run in groupby(scores.argmax(-1).tolist()):
        runs += [(token, at)] if token != blank else []
        at += len(list(run))
    return runs


def collapsed(path: tuple[int, ...], blank: int = 0) -> tuple[int, ...]:
    return tuple(token for token, _ in groupby(path) if token != blank)


def every_path(scores: np.ndarray) -> tuple[dict[tuple[int, ...], float], dict[tuple[int, ...], tuple[float, tuple]]]:
    """The probability of each sequence, and its likeliest path, by all paths there are."""
    sums: dict[tuple[int, ...], float] = {}
    best: dict[tuple[int, ...], tuple[float, tuple]] = {}
    for path in product(range(scores.shape[1]), repeat=len(scores)):
        score = sum(row[token] for row, token in zip(scores, path, strict=True))
        tokens = collapsed(path)
        sums[tokens] = sums.get(tokens, 0.0) + np.exp(score)
        best[tokens] = max(best.get(tokens, (-np.inf, ())), (score, path))
    return sums, best


def begins(path: tuple[int, ...]) -> list[int]:
    return [at for at, (before, token) in enumerate(pairwise((-1, *path))) if token not in (0, before)]


def test_greedy(found):
    tokens, frames = zip(*greedy(INPUTS["small"], 0), strict=True)
    count = found["a_count"].item()
    assert found["a_tokens"].tolist() == [*tokens, *[-1] * (FRAMES - count)]
    assert found["a_frames"].tolist() == [*frames, *[-1] * (FRAMES - count)]
    np.testing.assert_array_equal(found["a_scores"][:count], INPUTS["small"][list(frames), list(tokens)])
    for row, length in enumerate(INPUTS["given"]):
        expected = greedy(INPUTS["batch"][row, :length], 4)[:4]
        assert found["b_count"][row] == len(expected)
        assert list(zip(found["b_tokens"][row], found["b_frames"][row], strict=True))[:len(expected)] == expected


@pytest.mark.parametrize("which", ["c", "h"])
def test_a_beam_of_everything_gives_the_sums_of_all_alignments(found, which):
    """Of logits and of probabilities; the tokens begin where they do in the likeliest path."""
    sums, best = every_path(log_softmax(INPUTS["small"]))
    ordered = sorted(sums, key=lambda tokens: -sums[tokens])[:40]
    for rank, tokens in enumerate(ordered):
        count = found[f"{which}_count"][rank]
        assert tuple(found[f"{which}_tokens"][rank, :count]) == tokens
        assert set(found[f"{which}_tokens"][rank, count:]) <= {-1}
        np.testing.assert_allclose(found[f"{which}_scores"][rank], np.log(sums[tokens]), atol=1e-5)
        assert found[f"{which}_frames"][rank, :count].tolist() == begins(best[tokens][1])


def test_alignment(found):
    _, best = every_path(log_softmax(INPUTS["small"]))
    score, path = best[(3, 3, 1)]
    assert found["i_frames"].tolist() == [*begins(path), -1]
    np.testing.assert_allclose(found["i_score"].item(), score, atol=1e-5)


def test_no_frames_have_one_empty_sequence(found):
    assert found["f_count"].tolist() == [0, -1, -1]
    assert found["f_scores"].tolist() == [0, -np.inf, -np.inf]
    assert (found["f_tokens"] == -1).all()


def test_frames_of_no_number(found):
    """Frames without a score that is a number end every sequence; greedy takes class 0, the blank."""
    assert (found["g_count"] == -1).all()
    assert (found["g_scores"] == -np.inf).all()
    assert found["j_count"].item() == 0


def test_a_narrow_beam_finds_less_than_all_alignments_of_its_result(found):
    """The sum over all alignments of a sequence, by the forward algorithm, is above what a beam of ten has found."""
    scores, tokens = log_softmax(INPUTS["sound"][0]), found["e_tokens"][:found["e_count"].item()]
    states = [0, *(label for token in tokens for label in (token, 0))]
    sums = np.full(len(states), -np.inf)
    sums[:2] = scores[0, states[:2]]
    for row in scores[1:]:
        before = sums.copy()
        for at, label in enumerate(states):
            sources = [before[at], *before[max(at - 1, 0):at],
                       *(before[at - 2:at - 1] if at > 1 and label not in (0, states[at - 2]) else ())]
            sums[at] = np.logaddexp.reduce(sources) + row[label]
    exact = np.logaddexp(sums[-1], sums[-2])
    assert exact - 1 < found["e_scores"].item() < exact + 1e-5


def test_pyctcdecode(found):
    pyctcdecode = pytest.importorskip("pyctcdecode")

    def best(scores: np.ndarray, width: int) -> tuple:
        decoder = pyctcdecode.build_ctcdecoder(["", *(chr(0x391 + token) for token in range(scores.shape[1] - 1))])
        return decoder.decode_beams(log_softmax(scores), beam_width=width, beam_prune_logp=-1e9,
                                    token_min_logp=-1e9)[0]

    def text(which: str, tokens: np.ndarray) -> str:
        return "".join(chr(0x390 + token) for token in tokens[:found[f"{which}_count"].flat[0]])

    every = best(INPUTS["small"], 2000)
    assert text("c", found["c_tokens"][0]) == every[0]
    np.testing.assert_allclose(found["c_scores"][0], every[-1], atol=1e-4)
    # its beams differ in their last class, too, so it takes more of them for the same result
    assert text("e", found["e_tokens"]) == best(INPUTS["sound"][0], 40)[0]


def test_flashlight(found):
    """Without a lexicon, with sums over alignments."""
    decoder = pytest.importorskip("flashlight.lib.text.decoder")
    options = decoder.LexiconFreeDecoderOptions(beam_size=2000, beam_size_token=CLASSES, beam_threshold=1e9,
                                                lm_weight=0, sil_score=0, log_add=True,
                                                criterion_type=decoder.CriterionType.CTC)
    given = np.ascontiguousarray(log_softmax(INPUTS["small"]), np.float32)
    # silence is a token of its own, which no frame has, but both ends do
    padded = np.ascontiguousarray(np.concatenate([given, np.full((FRAMES, 1), -1e5, np.float32)], 1))
    results = decoder.LexiconFreeDecoder(options, decoder.ZeroLM(), CLASSES, 0, []).decode(
        padded.ctypes.data, FRAMES, CLASSES + 1)
    expected = {}
    for result in results:
        expected.setdefault(collapsed(tuple(result.tokens)[1:-1]), result.score)
    best = max(expected, key=expected.get)
    assert tuple(found["c_tokens"][0, :found["c_count"][0]]) == best
