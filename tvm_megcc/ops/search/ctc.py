# SPDX-License-Identifier: Apache-2.0
"""Decoding of connectionist temporal classification (CTC): greedy, by prefix beam search, and alignment.

Source: Graves et al., "Connectionist Temporal Classification", 2006; Hannun et al., "First-Pass Large Vocabulary
Continuous Speech Recognition using Bi-Directional Recurrent DNNs", 2014, algorithm 1.
"""

from __future__ import annotations

from math import exp, inf, log1p

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register

#: The most hypotheses of a beam search.
MOST_BEAMS = 1 << 12
#: The most bytes that a search may keep.
MOST_BYTES = 1 << 30


def _require(scores: TensorType, lengths: TensorType | None, blank: int) -> None:
    if scores.rank != 3 or scores.dtype != "float32":
        raise ShapeError(f"scores {scores} are not float32 [batch, frames, classes]")
    classes = scores.shape[2]
    if not isinstance(classes, int) or not 0 <= blank < classes:
        raise ShapeError(f"the blank {blank} is no class of scores {scores}")
    if lengths is not None:
        require_shape(lengths.shape, scores.shape[:1], f"lengths {lengths} of scores {scores}")


def _frames(scores: np.ndarray, lengths: np.ndarray | None, row: int) -> np.ndarray:
    """Returns the frames of a row: NaN counts as -inf, and inf as the largest float32."""
    count = scores.shape[1] if lengths is None else min(max(int(lengths[row]), 0), scores.shape[1])
    return np.minimum(np.where(np.isnan(scores[row, :count]), np.float32(-inf), scores[row, :count]),
                      np.finfo(np.float32).max)


def _single(score: float) -> float:
    """Returns what a float32 can hold: the largest one for what is beyond it, but -inf is a score."""
    most = float(np.finfo(np.float32).max)
    return score if score == -inf else min(max(score, -most), most)


def _log_sum(a: float, b: float) -> float:
    """Returns log(exp(a) + exp(b))."""
    if min(a, b) == -inf:
        return max(a, b)
    return max(a, b) + log1p(exp(min(a, b) - max(a, b)))


@register
class CtcGreedy(Operator):
    """The likeliest class of each frame, each run of a class once, without blanks. N: batch, T: frames, C: classes, L:
    the most tokens.

    Operands: scores float32 [N,T,C], of any scale; lengths int64 [N], the frames that there are, cut to [0, T].
    Results: tokens int64 [N,L], the first frame of each int64 [N,L], both -1 after the last one; the score there
    float32 [N,L], 0 after it; their number int64 [N]. Attributes: `blank`, a class; `most`, L. Tokens after L are left
    out. The first of equal scores is better; NaN counts as -inf, inf as the largest float32.
    """

    kind = "ctc_greedy"
    operands = ("scores", "lengths?")

    @staticmethod
    def infer(attrs: Attrs, scores: TensorType, lengths: TensorType | None = None) -> tuple[TensorType, ...]:
        _require(scores, lengths, attrs.blank)
        shape = scores.shape[0], attrs.most
        return (TensorType("int64", shape), TensorType("int64", shape), TensorType("float32", shape),
                TensorType("int64", shape[:1]))

    @staticmethod
    def compute(attrs: Attrs, scores: np.ndarray, lengths: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        shape = len(scores), attrs.most
        tokens, frames = np.full(shape, -1), np.full(shape, -1)
        values, numbers = np.zeros(shape, np.float32), np.zeros(len(scores), np.int64)
        for row in range(len(scores)):
            rows = _frames(scores, lengths, row)
            best = rows.argmax(1)
            begins = np.flatnonzero((best != attrs.blank) & (best != np.append(-1, best)[:-1]))[:attrs.most]
            numbers[row] = len(begins)
            tokens[row, :len(begins)], frames[row, :len(begins)] = best[begins], begins
            values[row, :len(begins)] = rows[begins, best[begins]]
        return tokens.astype(np.int64), frames.astype(np.int64), values, numbers

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


@register
class CtcBeam(Operator):
    """The likeliest sequences of tokens, each by the sum over its alignments, by prefix beam search. N: batch, T:
    frames, C: classes, R: results, L: the most tokens of one.

    Operands: scores float32 [N,T,C], logarithms of probabilities; lengths int64 [N], the frames that there are, cut to
    [0, T]. Results: tokens int64 [N,R,L], -1 after the last one; their number int64 [N,R], -1 where there is no such
    sequence; the logarithm of the probability float32 [N,R], -inf there. Attributes: `blank`, a class; `beam`, the
    sequences kept after each frame; `sequences`, R; `most`, L. Sums are of float64. If sequences are equal, those that
    were in the beam are better, then those of a better beginning, then those of a smaller class. NaN counts as -inf,
    inf as the largest float32.
    """

    kind = "ctc_beam"
    operands = ("scores", "lengths?")

    @staticmethod
    def infer(attrs: Attrs, scores: TensorType, lengths: TensorType | None = None) -> tuple[TensorType, ...]:
        _require(scores, lengths, attrs.blank)
        frames, classes = scores.shape[1:]
        if not 1 <= attrs.beam <= MOST_BEAMS or not 1 <= attrs.sequences <= attrs.beam or attrs.most < 1:
            raise ShapeError(f"a beam of {attrs.beam} with {attrs.sequences} results of {attrs.most} tokens; up to "
                             f"{MOST_BEAMS} are supported")
        needed = beam_bytes(frames, classes, attrs.beam)
        if (isinstance(needed, int) and needed > MOST_BYTES) \
                or (isinstance(classes, int) and attrs.beam * (classes + 1) >= 1 << 31):
            raise ShapeError(f"a beam of {attrs.beam} over {scores} needs too much memory")
        shape = scores.shape[0], attrs.sequences, attrs.most
        return TensorType("int64", shape), TensorType("int64", shape[:2]), TensorType("float32", shape[:2])

    @staticmethod
    def compute(attrs: Attrs, scores: np.ndarray, lengths: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        shape = len(scores), attrs.sequences, attrs.most
        tokens, numbers = np.full(shape, -1, np.int64), np.full(shape[:2], -1, np.int64)
        values = np.full(shape[:2], -inf, np.float32)
        for row in range(len(scores)):
            for rank, (prefix, score) in enumerate(_best(attrs, _frames(scores, lengths, row))):
                tokens[row, rank, :len(prefix)], numbers[row, rank] = prefix, len(prefix)
                values[row, rank] = _single(score)
        return tokens, numbers, values

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def beam_bytes(frames: Dim, classes: Dim, beam: Dim) -> Dim:
    """Returns the bytes that a beam search keeps: as in ctc_beam.c.j2."""
    return 8 * classes + 112 * beam + 24 * (beam * frames + 1)


def _best(attrs: Attrs, scores: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """Returns the results of a row of frames, best first."""
    beams: list[tuple[tuple[int, ...], float, float]] = [((), 0.0, -inf)]  # prefix, ending in a blank, in its token
    for frame in scores.astype(np.float64):
        place = {prefix: rank for rank, (prefix, _, _) in enumerate(beams)}
        # score, in the beam or not, rank and class, the next beam
        offers: list[tuple[float, bool, int, int, tuple[tuple[int, ...], float, float]]] = []
        for rank, (prefix, blank, token) in enumerate(beams):
            stays = (token + frame[prefix[-1]]) if prefix else -inf
            if prefix and (parent := place.get(prefix[:-1])) is not None:
                stays = _log_sum(stays, _extended(beams[parent], prefix[-1]) + frame[prefix[-1]])
            ends = _log_sum(blank, token) + frame[attrs.blank]
            offers.append((_log_sum(ends, stays), False, rank, 0, (prefix, ends, stays)))
        for rank, beam in enumerate(beams):
            total = _log_sum(beam[1], beam[2]) + frame
            if beam[0]:
                total[beam[0][-1]] = beam[1] + frame[beam[0][-1]]
            total[attrs.blank] = -inf
            for column in np.argsort(-total, kind="stable")[:attrs.beam + len(beams) + 1] \
                    if len(beam[0]) < attrs.most else ():
                longer = (*beam[0], int(column))
                if longer not in place:
                    offers.append((float(total[column]), True, rank, int(column), (longer, -inf, float(total[column]))))
        offers = sorted((offer for offer in offers if offer[0] > -inf),
                        key=lambda offer: (-offer[0], *offer[1:4]))[:attrs.beam]
        beams = [offer[4] for offer in offers]
    return [(prefix, _log_sum(blank, token)) for prefix, blank, token in beams[:attrs.sequences]]


def _extended(beam: tuple[tuple[int, ...], float, float], token: int) -> float:
    """Returns the score of what can become the sequence and this token: only after a blank, if it ends in the same."""
    prefix, blank, ends = beam
    return blank if prefix and prefix[-1] == token else _log_sum(blank, ends)


@register
class CtcAlign(Operator):
    """The likeliest alignment of sequences of tokens to frames (forced alignment). N: batch, T: frames, C: classes, R:
    sequences of a row, L: the most tokens of one.

    Operands: scores float32 [N,T,C], logarithms of probabilities; tokens int64 [N,R,L]; their numbers int64 [N,R], cut
    to [0, L]; lengths int64 [N], the frames that there are, cut to [0, T]. Results: the first frame of each token int64
    [N,R,L], -1 after the last one and where there is no alignment, or a token is a blank or no class; the logarithm of
    the alignment's probability float32 [N,R], -inf there. Attributes: `blank`, a class. If alignments are
    equal, the one is taken whose last tokens begin earliest. NaN counts as -inf, inf as the largest float32.
    """

    kind = "ctc_align"
    operands = ("scores", "tokens", "numbers", "lengths?")

    @staticmethod
    def infer(attrs: Attrs, scores: TensorType, tokens: TensorType, numbers: TensorType,
              lengths: TensorType | None = None) -> tuple[TensorType, ...]:
        _require(scores, lengths, attrs.blank)
        if tokens.rank != 3:
            raise ShapeError(f"tokens {tokens} are not [batch, sequences, tokens]")
        require_shape(tokens.shape[:1], scores.shape[:1], f"tokens {tokens} of scores {scores}")
        require_shape(numbers.shape, tokens.shape[:2], f"numbers {numbers} of tokens {tokens}")
        return TensorType("int64", tokens.shape), TensorType("float32", numbers.shape)

    @staticmethod
    def compute(attrs: Attrs, scores: np.ndarray, tokens: np.ndarray, numbers: np.ndarray,
                lengths: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        frames, values = np.full(tokens.shape, -1, np.int64), np.full(numbers.shape, -inf, np.float32)
        for row in range(len(scores)):
            given = _frames(scores, lengths, row)
            for rank in range(tokens.shape[1]):
                begins, score = _aligned(given, tokens[row, rank, :max(int(numbers[row, rank]), 0)], attrs.blank)
                frames[row, rank, :len(begins)], values[row, rank] = begins, _single(score)
        return frames, values

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def _aligned(scores: np.ndarray, tokens: np.ndarray, blank: int) -> tuple[list[int], float]:
    """Returns the first frame of each token, and the logarithm of the probability."""
    if any(not 0 <= token < scores.shape[1] or token == blank for token in tokens):
        return [], -inf
    labels = [blank if state % 2 == 0 else int(tokens[state // 2]) for state in range(2 * len(tokens) + 1)]
    best = [0.0] + [-inf] * (len(labels) - 1)
    moves: list[list[int]] = []
    for index, frame in enumerate(scores.astype(np.float64)):
        row, steps = [], []
        for state, label in enumerate(labels):
            # how many states further: none, one, or two over a blank between different tokens
            far = 2 if state > 1 and state % 2 and labels[state - 2] != label else 1
            reached = [best[state - step] if step <= state and (index or not step) else -inf
                       for step in range(far + 1)]
            if not index:
                reached[0] = 0.0 if state < 2 else -inf
            steps.append(int(np.argmax(reached)))
            row.append(max(reached) + frame[label])
        best, moves = row, [*moves, steps]
    state = len(labels) - 1
    if state and best[state - 1] > best[state]:
        state -= 1
    score = best[state]
    if score == -inf:
        return [], -inf
    begins = [0] * len(tokens)
    for index in reversed(range(len(moves))):
        if state % 2:
            begins[state // 2] = index
        state -= moves[index][state]
    return begins, score


@decomposes("megcc::CtcGreedy")
def greedy_of_onnx(node: OnnxNode) -> tuple[str, ...]:
    """Scores float32 [N,T,C], and optionally lengths int64 [N], become tokens [N,L], their first frames [N,L], scores
    [N,L] and number [N]. Attributes: `blank`, 0; `most`, L, by default T."""
    return node.emit("ctc_greedy", node.inputs, blank=node.attr("blank", 0), most=_most(node))


@decomposes("megcc::CtcBeam")
def beam_of_onnx(node: OnnxNode) -> tuple[str, ...]:
    """Logarithms of probabilities float32 [N,T,C], and optionally lengths int64 [N], become tokens [N,R,L], their
    number [N,R] and scores [N,R]. Attributes: `blank`, 0; `beam`, 10; `sequences`, R, 1; `most`, L, by default T."""
    return node.emit("ctc_beam", node.inputs, blank=node.attr("blank", 0), beam=node.attr("beam", 10),
                     sequences=node.attr("sequences", 1), most=_most(node))


@decomposes("megcc::CtcAlign")
def align_of_onnx(node: OnnxNode) -> tuple[str, ...]:
    """Logarithms of probabilities float32 [N,T,C], tokens int64 [N,R,L], their number [N,R], and optionally lengths
    int64 [N], become the first frame of each token [N,R,L], and scores [N,R]. Attribute: `blank`, 0."""
    return node.emit("ctc_align", node.inputs, blank=node.attr("blank", 0))


def _most(node: OnnxNode) -> int:
    type_ = node.type(0)
    if type_ is None or type_.rank != 3:
        raise ShapeError(f"takes scores [batch, frames, classes], not {type_}")
    found: object = node.attr("most", type_.shape[1] if isinstance(type_.shape[1], int) else None)
    if type(found) is not int or found < 1:
        raise ShapeError("needs the attribute 'most', how many tokens there are at most")
    return found


def _random_scores(seed: int, *shape: int, hostile: bool = False) -> np.ndarray:
    """Logarithms of probabilities; hostile ones have frames of equal numbers, infinities and NaN."""
    random = np.random.default_rng(seed)
    scores = random.normal(0, 2, shape)
    scores[..., 0] += 1
    scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
    if hostile:
        scores[random.random(shape) < 0.15] = np.nan
        scores[random.random(shape) < 0.1] = -np.inf
        scores[random.random(shape) < 0.02] = np.inf
        scores[:, ::5] = np.round(scores[:, ::5])
        scores[:, 3::7] = np.nan
    return scores.astype(np.float32)


def _case(batch: int, frames: int, classes: int, lengths: tuple[int, ...] = (), hostile: bool = False,
          **attrs: int) -> Case:
    shape = batch, frames, classes
    given = ((lengths and ((batch,), "int64")),) if lengths else ()
    return Case((f32(*shape), *given), {"blank": 0, "most": frames, **attrs}, (),
                {0: _random_scores(sum(shape), *shape, hostile=hostile), **({1: np.array(lengths)} if lengths else {})})


def _align_case(sequences: list[list[list[int]]], frames: int, classes: int, lengths: tuple[int, ...] = (),
                hostile: bool = False, numbers: list[list[int]] | None = None) -> Case:
    batch, ranks = len(sequences), len(sequences[0])
    most = max(len(tokens) for row in sequences for tokens in row) + 1
    tokens = np.full((batch, ranks, most), -1)
    for row, of_row in enumerate(sequences):
        for rank, sequence in enumerate(of_row):
            tokens[row, rank, :len(sequence)] = sequence
    sizes = np.array(numbers or [[len(sequence) for sequence in row] for row in sequences])
    scores = _random_scores(frames + classes, batch, frames, classes, hostile=hostile)
    given = (((batch,), "int64"),) if lengths else ()
    return Case((f32(*scores.shape), (tokens.shape, "int64"), (sizes.shape, "int64"), *given), {"blank": 0}, (),
                {0: scores, 1: tokens, 2: sizes, **({3: np.array(lengths)} if lengths else {})})


CtcGreedy.cases = (
    _case(1, 17, 5), _case(3, 9, 4, (9, 0, -2), blank=3), _case(2, 30, 3, (99, 4), hostile=True, most=5),
    _case(1, 1, 1), _case(1, 40, 33, blank=32),
)
CtcBeam.cases = (
    _case(1, 12, 5, beam=8, sequences=8), _case(2, 25, 4, (25, 7), beam=3, sequences=2, blank=3),
    _case(3, 30, 3, (99, 0, -5), hostile=True, beam=6, sequences=5, most=4), _case(1, 3, 2, beam=500, sequences=20),
    _case(1, 1, 1, beam=1, sequences=1), _case(1, 60, 37, beam=10, sequences=3, most=20),
)
CtcAlign.cases = (
    _align_case([[[1, 2, 3], [1, 1, 2], []]], 11, 4),
    _align_case([[[1, 2], [2, 2]], [[1], [1, 2, 1, 2, 1, 2, 1, 2]]], 6, 3, (2, 99)),
    _align_case([[[1, 2], [0, 1], [1, 9], [2]]], 21, 3, hostile=True, numbers=[[2, 2, 2, 99]]),
    _align_case([[[], [1]], [[], [1]]], 4, 2, (0, -1), numbers=[[0, 1], [-3, 1]]),
)
