# SPDX-License-Identifier: Apache-2.0
"""Decoding of connectionist temporal classification (CTC): greedy, by prefix beam search, and forced alignment. They
are operators of our own ONNX domain "megcc", which programs use (tools/program/searches.py).

Shapes: N batch, T frames, C classes, R sequences of tokens, L the largest number of tokens of a sequence.

Source: Graves et al., "Connectionist Temporal Classification", 2006; Hannun et al., "First-Pass Large Vocabulary
Continuous Speech Recognition using Bi-Directional Recurrent DNNs", 2014, algorithm 1.
"""

from __future__ import annotations

from math import exp, inf, log1p
from typing import NamedTuple

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register

#: The largest number of hypotheses of a beam search.
MAX_BEAMS = 1 << 12
#: The largest workspace of a beam search, in bytes.
MAX_WORKSPACE_BYTES = 1 << 30


def _require(scores: TensorType, lengths: TensorType | None, blank: int) -> None:
    """Raises ShapeError unless scores are float32 [N,T,C], lengths [N], and the blank is a class."""
    if scores.rank != 3 or scores.dtype != "float32":
        raise ShapeError(f"scores {scores} are not float32 [batch, frames, classes]")
    classes = scores.shape[2]
    if not isinstance(classes, int) or not 0 <= blank < classes:
        raise ShapeError(f"the blank {blank} is no class of scores {scores}")
    if lengths is not None:
        require_shape(lengths.shape, scores.shape[:1], f"lengths {lengths} of scores {scores}")


def _frames(scores: np.ndarray, lengths: np.ndarray | None, row: int) -> np.ndarray:
    """Returns the scores of the frames of a batch element, float32 [frames, C], with -inf for NaN and the largest
    float32 for inf."""
    count = scores.shape[1] if lengths is None else min(max(int(lengths[row]), 0), scores.shape[1])
    return np.minimum(np.where(np.isnan(scores[row, :count]), np.float32(-inf), scores[row, :count]),
                      np.finfo(np.float32).max)


def _clamp_to_float32(score: float) -> float:
    """Returns a score clamped to the finite numbers of float32; -inf stays."""
    largest = float(np.finfo(np.float32).max)
    return score if score == -inf else min(max(score, -largest), largest)


def _log_sum(a: float, b: float) -> float:
    """Returns log(exp(a) + exp(b))."""
    if min(a, b) == -inf:
        return max(a, b)
    return max(a, b) + log1p(exp(min(a, b) - max(a, b)))


@register
class CtcGreedy(Operator):
    """Greedy decoding: the likeliest class of each frame, each run of a class once, without blanks.

    Operands: scores float32 [N,T,C], on any scale; lengths int64 [N], the number of frames, clamped to [0, T].
    Results: tokens int64 [N,L] and the first frame of each int64 [N,L], both -1 after the last token; the score of this
    frame float32 [N,L], 0 after the last token; the number of tokens int64 [N].
    Attributes: `blank`: a class; `most`: L; further tokens are left out. If scores are equal, the first class is taken;
    NaN counts as -inf, inf as the largest float32.
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
            previous = np.append(-1, best)[:-1]  # the best class of the frame before
            begins = np.flatnonzero((best != attrs.blank) & (best != previous))[:attrs.most]
            numbers[row] = len(begins)
            tokens[row, :len(begins)], frames[row, :len(begins)] = best[begins], begins
            values[row, :len(begins)] = rows[begins, best[begins]]
        return tokens.astype(np.int64), frames.astype(np.int64), values, numbers

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


@register
class CtcBeam(Operator):
    """Prefix beam search: the likeliest sequences of tokens, with probabilities summed over all alignments.

    Operands: scores float32 [N,T,C], logarithms of probabilities; lengths int64 [N], the number of frames, clamped to
    [0, T]. Results: tokens int64 [N,R,L], -1 after the last token; the number of tokens int64 [N,R], -1 if there are
    fewer sequences; the logarithm of the sequence's probability float32 [N,R], -inf if there are fewer.
    Attributes: `blank`: a class; `beam`: the number of sequences that are kept after each frame; `sequences`: R;
    `most`: L.

    Probabilities are summed in float64. If scores are equal, a sequence that was in the beam is better, then one
    with a better prefix, then one with a smaller last class. NaN counts as -inf, inf as the largest float32.
    """

    kind = "ctc_beam"
    operands = ("scores", "lengths?")

    @staticmethod
    def infer(attrs: Attrs, scores: TensorType, lengths: TensorType | None = None) -> tuple[TensorType, ...]:
        _require(scores, lengths, attrs.blank)
        frames, classes = scores.shape[1:]
        if not 1 <= attrs.beam <= MAX_BEAMS or not 1 <= attrs.sequences <= attrs.beam or attrs.most < 1:
            raise ShapeError(f"a beam of {attrs.beam} with {attrs.sequences} results of {attrs.most} tokens; up to "
                             f"{MAX_BEAMS} are supported")
        needed = beam_bytes(frames, classes, attrs.beam)
        # Candidates, a hypothesis itself or with one of the classes, have int32 indices in the kernel.
        if (isinstance(needed, int) and needed > MAX_WORKSPACE_BYTES) \
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
            for rank, (prefix, score) in enumerate(_beam_search(attrs, _frames(scores, lengths, row))):
                tokens[row, rank, :len(prefix)], numbers[row, rank] = prefix, len(prefix)
                values[row, rank] = _clamp_to_float32(score)
        return tokens, numbers, values

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def beam_bytes(frames: Dim, classes: Dim, beam: Dim) -> Dim:
    """Returns the bytes of a beam search's workspace, as kernels/search/ctc_beam.c.j2 lays it out: the scores of a
    frame, the hypotheses of this beam and the next, the candidates, and the tree of prefixes."""
    double, hypothesis, candidate, prefix = 8, 48, 16, 24  # bytes of the C types
    return double * classes + (2 * hypothesis + candidate) * beam + prefix * (beam * frames + 1)


class _Hypothesis(NamedTuple):
    """A sequence of tokens, and the logarithms of the probabilities of its alignments to the frames so far that end in
    a blank, and of those that end in its last token."""

    prefix: tuple[int, ...]
    blank: float
    token: float

    @property
    def score(self) -> float:
        """Returns the logarithm of the probability of all alignments."""
        return _log_sum(self.blank, self.token)


class _Candidate(NamedTuple):
    """A hypothesis for the next beam, with the key that orders candidates: the score, whether it is longer than a
    hypothesis of this beam, the rank of that hypothesis, and the class that was appended."""

    score: float
    is_longer: bool
    rank: int
    column: int
    hypothesis: _Hypothesis


def _beam_search(attrs: Attrs, scores: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """Returns sequences and the logarithms of their probabilities, the best first, for scores [frames, C]."""
    beam = [_Hypothesis((), 0.0, -inf)]
    for frame in scores.astype(np.float64):
        rank_of = {hypothesis.prefix: rank for rank, hypothesis in enumerate(beam)}
        candidates: list[_Candidate] = []
        # The same sequences: by a blank, by the last token again, or by the last token after a shorter sequence.
        for rank, (prefix, blank, token) in enumerate(beam):
            token_after = (token + frame[prefix[-1]]) if prefix else -inf
            if prefix and (parent := rank_of.get(prefix[:-1])) is not None:
                token_after = _log_sum(token_after, _extension_score(beam[parent], prefix[-1]) + frame[prefix[-1]])
            blank_after = _log_sum(blank, token) + frame[attrs.blank]
            candidates.append(_Candidate(_log_sum(blank_after, token_after), is_longer=False, rank=rank, column=0,
                                         hypothesis=_Hypothesis(prefix, blank_after, token_after)))
        # Sequences that are longer by a token.
        for rank, hypothesis in enumerate(beam):
            prefix = hypothesis.prefix
            if len(prefix) >= attrs.most:
                continue
            total = hypothesis.score + frame
            if prefix:
                total[prefix[-1]] = hypothesis.blank + frame[prefix[-1]]
            total[attrs.blank] = -inf
            # Up to len(beam) of the extensions are in the beam already; the best `beam` of the others are enough.
            for column in np.argsort(-total, kind="stable")[:attrs.beam + len(beam)]:
                longer = (*prefix, int(column))
                if longer not in rank_of:
                    score = float(total[column])
                    candidates.append(_Candidate(score, is_longer=True, rank=rank, column=int(column),
                                                 hypothesis=_Hypothesis(longer, -inf, score)))
        candidates = sorted((candidate for candidate in candidates if candidate.score > -inf),
                            key=lambda candidate: (-candidate.score, *candidate[1:4]))[:attrs.beam]
        beam = [candidate.hypothesis for candidate in candidates]
    return [(hypothesis.prefix, hypothesis.score) for hypothesis in beam[:attrs.sequences]]


def _extension_score(hypothesis: _Hypothesis, token: int) -> float:
    """Returns the logarithm of the probability of the alignments that a token may follow. If the sequence ends in the
    same token, these are the ones that end in a blank."""
    prefix = hypothesis.prefix
    return hypothesis.blank if prefix and prefix[-1] == token else hypothesis.score


@register
class CtcAlign(Operator):
    """Forced alignment: the likeliest alignment of given sequences of tokens to frames.

    Operands: scores float32 [N,T,C], logarithms of probabilities; tokens int64 [N,R,L]; numbers int64 [N,R], the number
    of tokens of each sequence, clamped to [0, L]; lengths int64 [N], the number of frames, clamped to [0, T].
    Results: the first frame of each token int64 [N,R,L], -1 after the last token; the logarithm of the alignment's
    probability float32 [N,R]. A sequence without an alignment, or with a token that is a blank or no class, gives -1
    and -inf. Attribute `blank`, a class. If scores are equal, the alignment whose last tokens begin earliest is
    taken. NaN counts as -inf, inf as the largest float32.
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
            frame_scores = _frames(scores, lengths, row)
            for rank in range(tokens.shape[1]):
                begins, score = _align(frame_scores, tokens[row, rank, :max(int(numbers[row, rank]), 0)], attrs.blank)
                frames[row, rank, :len(begins)], values[row, rank] = begins, _clamp_to_float32(score)
        return frames, values

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def _align(scores: np.ndarray, tokens: np.ndarray, blank: int) -> tuple[list[int], float]:
    """Returns the first frame of each token, and the logarithm of the alignment's probability; [] and -inf if there is
    none. scores: [frames, C].

    It is the Viterbi algorithm over 2 * tokens + 1 states: a blank, the first token, a blank, the second token, …
    """
    if any(not 0 <= token < scores.shape[1] or token == blank for token in tokens):
        return [], -inf
    labels = [blank if state % 2 == 0 else int(tokens[state // 2]) for state in range(2 * len(tokens) + 1)]
    best = [0.0] + [-inf] * (len(labels) - 1)  # so an alignment begins with the first blank or the first token
    moves: list[list[int]] = []
    for frame in scores.astype(np.float64):
        row, steps = [], []
        for state, label in enumerate(labels):
            # A frame moves on by no state, by one, or by two over the blank between different tokens.
            max_step = 2 if state > 1 and state % 2 and labels[state - 2] != label else 1
            previous = [best[state - step] for step in range(min(max_step, state) + 1)]
            steps.append(int(np.argmax(previous)))
            row.append(max(previous) + frame[label])
        best, moves = row, [*moves, steps]
    state = len(labels) - 1  # it ends in the last blank or the last token
    if state and best[state - 1] > best[state]:
        state -= 1
    score = best[state]
    if score == -inf:
        return [], -inf
    begins = [0] * len(tokens)
    for index in reversed(range(len(moves))):
        if state % 2:
            begins[state // 2] = index  # the token's first frame is written last
        state -= moves[index][state]
    return begins, score


@decomposes("megcc::CtcGreedy")
def import_ctc_greedy(node: OnnxNode) -> tuple[str, ...]:
    """Imports CtcGreedy of the domain megcc, with the operands and results of `CtcGreedy`. Attributes: `blank`: by
    default 0; `most`: by default T."""
    return node.emit("ctc_greedy", node.inputs, blank=node.attr("blank", 0), most=_max_tokens(node))


@decomposes("megcc::CtcBeam")
def import_ctc_beam(node: OnnxNode) -> tuple[str, ...]:
    """Imports CtcBeam of the domain megcc, with the operands and results of `CtcBeam`. Attributes: `blank`: by default
    0; `beam`: 10; `sequences`: 1; `most`: T."""
    return node.emit("ctc_beam", node.inputs, blank=node.attr("blank", 0), beam=node.attr("beam", 10),
                     sequences=node.attr("sequences", 1), most=_max_tokens(node))


@decomposes("megcc::CtcAlign")
def import_ctc_align(node: OnnxNode) -> tuple[str, ...]:
    """Imports CtcAlign of the domain megcc, with the operands and results of `CtcAlign`. Attribute `blank`, by default
    0."""
    return node.emit("ctc_align", node.inputs, blank=node.attr("blank", 0))


def _max_tokens(node: OnnxNode) -> int:
    """Returns attribute `most`, by default the number of frames; raises ShapeError if neither is known."""
    type_ = node.type(0)
    if type_ is None or type_.rank != 3:
        raise ShapeError(f"requires scores [batch, frames, classes], not {type_}")
    tokens: object = node.attr("most", type_.shape[1] if isinstance(type_.shape[1], int) else None)
    if type(tokens) is not int or tokens < 1:
        raise ShapeError("needs the attribute 'most', how many tokens there are at most")
    return tokens


def _random_scores(seed: int, *shape: int, hostile: bool = False) -> np.ndarray:
    """Returns random logarithms of probabilities for tests. hostile: with frames of equal numbers, infinities and
    NaN."""
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
    given = (((batch,), "int64"),) if lengths else ()
    return Case((f32(*shape), *given), {"blank": 0, "most": frames, **attrs}, (),
                {0: _random_scores(sum(shape), *shape, hostile=hostile), **({1: np.array(lengths)} if lengths else {})})


def _align_case(sequences: list[list[list[int]]], frames: int, classes: int, lengths: tuple[int, ...] = (),
                hostile: bool = False, numbers: list[list[int]] | None = None) -> Case:
    """Returns a case. sequences: the tokens of the sequences of each batch element. numbers: operand `numbers`, by
    default the lengths of the sequences."""
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
