# SPDX-License-Identifier: Apache-2.0
"""Steps from what a network says of each frame to tokens: greedy CTC, prefix beam search, forced alignment, one step of
greedy search over a transducer, and one step of beam search over a decoder. Each is a network of ONNX operators; for
CTC they include those of the domain `megcc` (ops/search/ctc.py).

Scores are float32[frames, classes], or of a batch [batch, frames, classes]; then results have the batch in front, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from ...errors import MegccError
from ...ops.search.ctc import MAX_BEAMS
from .functions import Function
from .nodes import FLOAT, INT64, Nodes
from .settings import Settings
from .steps import ValueType

#: The largest number of frames of a transducer, and of tokens of a frame.
_MOST_FRAMES = 1 << 20
#: The default number of sequences that prefix beam search keeps.
_BEAM = 10
#: The default of the most tokens of a frame of a transducer.
_SYMBOLS = 10


def _scores(graph: Nodes, given: Mapping[str, ValueType]) -> tuple[str, list[str], tuple[int, ...]]:
    """Returns the scores as [batch, frames, classes], the operand of lengths if there is one, and their shape."""
    shape = given["scores"].shape
    # [frames, 1, classes] is most likely a batch of one that is not in front.
    if len(shape) < 2 or (prod(shape[:-2]) > 1 and shape[-2] == 1):
        raise MegccError(f"its input 'scores' is float32[frames,classes], or [batch,frames,classes], not "
                         f"{given['scores']}: an operator Transpose or Reshape makes frames the last but one")
    sizes = prod(shape[:-2]), shape[-2], shape[-1]
    lengths = []
    if "length" in given:
        if prod(given["length"].shape) != sizes[0]:
            raise MegccError(f"its input 'length' is int64[{sizes[0]}], the number of frames of each row, not "
                             f"{given['length']}")
        lengths = [graph.add("Reshape", ["length", [sizes[0]]])]
    return graph.add("Reshape", ["scores", list(sizes)]), lengths, sizes


def _logarithms(graph: Nodes, settings: Settings, scores: str) -> str:
    """Returns logarithms of probabilities. Scores that are logarithms of probabilities already stay as they are, since
    LogSoftmax does not change them."""
    if settings.flag("probabilities"):
        return graph.add("Log", [scores])
    return graph.add("LogSoftmax", [scores], axis=-1)


def _blank(settings: Settings, classes: int) -> int:
    """Returns the class of the blank; a negative setting counts from the last class."""
    blank = settings.integer("blank", -classes, classes - 1, 0)
    return blank + classes if blank < 0 else blank


def _results(graph: Nodes, names: Mapping[str, str], batch: int, shapes: Mapping[str, tuple[str, tuple[int, ...]]]
             ) -> dict[str, ValueType]:
    """Makes outputs of results, without the batch if it is 1, and returns their types.

    names: output -> value. shapes: output -> dtype, and shape for one element of the batch.
    """
    types = {}
    for name, (dtype, shape) in shapes.items():
        types[name] = ValueType(dtype, ((batch, *shape) if batch > 1 else shape) or (1,))
        graph.add("Reshape", [names[name], list(types[name].shape)], f"out_{name}")
    return types


def _ctc_greedy(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The best class of each frame, each run once, without blanks."""
    scores, lengths, (batch, frames, classes) = _scores(graph, given)
    most = settings.integer("most", 1, frames, frames)
    found = graph.several("CtcGreedy", [scores, *lengths], ["tokens", "begins", "values", "counts"], domain="megcc",
                          blank=_blank(settings, classes), most=most)
    return _results(graph, dict(zip(("tokens", "frames", "scores", "count"), found, strict=True)), batch, {
        "tokens": ("int64", (most,)), "count": ("int64", ()), "frames": ("int64", (most,)),
        "scores": ("float32", (most,))})


def _ctc_beam(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The best sequences by prefix beam search, and when their tokens begin in the likeliest alignment."""
    scores, lengths, (batch, frames, classes) = _scores(graph, given)
    beam = settings.integer("beam", 1, MAX_BEAMS, _BEAM)
    results, most = settings.integer("results", 1, beam, 1), settings.integer("most", 1, frames, frames)
    blank, logarithms = _blank(settings, classes), _logarithms(graph, settings, scores)
    tokens, counts, values = graph.several(
        "CtcBeam", [logarithms, *lengths], ["tokens", "counts", "values"], domain="megcc", blank=blank, beam=beam,
        sequences=results, most=most)
    begins, _ = graph.several("CtcAlign", [logarithms, tokens, counts, *lengths], ["begins", "aligned"], domain="megcc",
                              blank=blank)
    by_result = () if results == 1 else (results,)
    return _results(graph, {"tokens": tokens, "count": counts, "scores": values, "frames": begins}, batch, {
        "tokens": ("int64", (*by_result, most)), "count": ("int64", by_result), "scores": ("float32", by_result),
        "frames": ("int64", (*by_result, most))})


def _ctc_align(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """When the tokens of known sequences begin: the likeliest alignment."""
    scores, lengths, (batch, _, classes) = _scores(graph, given)
    shape = given["tokens"].shape
    if not shape or prod(shape[:-1]) != batch:
        raise MegccError(f"its input 'tokens' is int64[{batch},tokens], not {given['tokens']}")
    most, counts = shape[-1], np.full((batch, 1), shape[-1])
    if "count" in given and prod(given["count"].shape) != batch:
        raise MegccError(f"its input 'count' is int64[{batch}], not {given['count']}")
    tokens = graph.add("Reshape", ["tokens", [batch, 1, most]])
    count = graph.add("Reshape", ["count", [batch, 1]]) if "count" in given else counts
    found = graph.several("CtcAlign", [_logarithms(graph, settings, scores), tokens, count, *lengths],
                          ["begins", "values"], domain="megcc", blank=_blank(settings, classes))
    return _results(graph, dict(zip(("frames", "score"), found, strict=True)), batch, {
        "frames": ("int64", (most,)), "score": ("float32", ())})


def _transducer(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """One step of greedy search: the token of a frame and of the tokens so far, and which frame is next.

    Sources: Graves, "Sequence Transduction with Recurrent Neural Networks" (2012); with `durations` Xu et al.,
    "Efficient Sequence Transduction by Jointly Predicting Tokens and Durations" (2023), algorithm 2.
    """
    durations = settings.integers("durations", _MOST_FRAMES, minimum=0) if "durations" in settings else ()
    classes = given["scores"].elements - len(durations)
    if classes < 1 or not given["scores"].shape or given["scores"].shape[-1] != given["scores"].elements:
        raise MegccError(f"its input 'scores' is float32[classes] with the scores of {len(durations)} durations, not "
                         f"{given['scores']}")
    for name in ("frame", "symbols", "length"):
        if name in given and given[name].elements != 1:
            raise MegccError(f"its input '{name}' is int64[1], not {given[name]}")
    if "length" not in given and "frames" not in settings:
        raise MegccError("it gets an input 'length' or a key 'frames', the number of frames")
    length = graph.add("Reshape", ["length", [1]]) if "length" in given else \
        np.array([settings.integer("frames", 1, _MOST_FRAMES)])
    most = settings.integer("max_symbols", 1, _MOST_FRAMES, _SYMBOLS)
    scores = graph.add("Reshape", ["scores", [1, classes + len(durations)]])
    best = graph.add("ArgMax", [graph.add("Slice", [scores, [0], [classes], [1]])], axis=1, keepdims=0)
    is_blank = graph.add("Equal", [best, [_blank(settings, classes)]])
    is_token = graph.add("Cast", [graph.add("Not", [is_blank])], to=INT64)
    emitted = graph.add("Add", [graph.add("Reshape", ["symbols", [1]]), is_token])
    # The search goes on to the next frame after a blank, or after `max_symbols` tokens of one frame.
    leaves = graph.add("Or", [is_blank, graph.add("GreaterOrEqual", [emitted, [most]])])
    step = graph.add("Cast", [leaves], to=INT64)
    if durations:
        of_durations = graph.add("Slice", [scores, [classes], [classes + len(durations)], [1]])
        duration = graph.add("ArgMax", [of_durations], axis=1, keepdims=0)
        # A duration of 0 stays at the frame, except where the search has to leave it.
        step = graph.add("Max", [graph.add("Gather", [list(durations), duration]), step])
    following = graph.add("Add", [graph.add("Reshape", ["frame", [1]]), step], "out_frame")
    graph.add("Where", [graph.add("Greater", [step, [0]]), [0], emitted], "out_symbols")
    graph.add("Where", [is_blank, [-1], best], "out_token")
    graph.add("Identity", [is_token], "out_is_token")
    graph.add("GreaterOrEqual", [following, length], "out_ends")
    return {**{name: ValueType("int64", (1,)) for name in ("token", "frame", "symbols", "is_token")},
            "ends": ValueType("bool", (1,))}


#: The score of a beam that there is not, as transformers has it.
_NO_BEAM = -1e9
#: The largest number of beams of a decoder, and of tokens of a beam.
_MOST_BEAMS, _MOST_TOKENS = 64, 1 << 16
#: The values that a beam search carries from step to step: running beams, and the best sequences that ended.
_CARRIED = ("sums", "tokens", "found", "found_scores", "found_counts")


def _beam(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """One step of beam search: from the scores of the next token of each beam to the beams with one token more.

    Where `position` is negative, tokens are given and the search has not begun: all that it carries stays.

    Source: generate(num_beams=...) of transformers 5 (generation/utils.py, `_beam_search`).
    """
    if len(given["tokens"].shape) != 2 or given["found"] != given["tokens"]:
        raise MegccError(f"its inputs 'tokens' and 'found' are int64[beams,tokens], not {given['tokens']} and "
                         f"{given['found']}")
    beams, most = given["tokens"].shape
    classes = given["scores"].elements // beams
    if beams > _MOST_BEAMS or most > _MOST_TOKENS or classes < 2 or given["scores"].shape[-1] != classes \
            or given["scores"].elements != beams * classes:
        raise MegccError(f"its input 'scores' is float32[{beams},classes], for at most {_MOST_BEAMS} beams of at most "
                         f"{_MOST_TOKENS} tokens, not {given['scores']}")
    for name, dtype, elements in (("sums", "float32", beams), ("found_scores", "float32", beams),
                                  ("found_counts", "int64", beams), ("position", "int64", 1)):
        if given[name].elements != elements:
            raise MegccError(f"its input '{name}' is {dtype}[{elements}], not {given[name]}")
    end, early = settings.integer("end", 0, classes - 1), settings.flag("early_stopping")
    penalty = settings.number("length_penalty", 1.0)
    position = graph.add("Reshape", ["position", [1]])
    carried = {name: graph.add("Reshape", [name, [beams, most] if name in ("tokens", "found") else [beams]])
               for name in _CARRIED}
    following = _following(graph, position, carried, (beams, classes, most), end)
    count = graph.add("Add", [position, [1]])
    divisor = graph.add("Pow", [graph.add("Cast", [count], to=FLOAT), np.array([penalty], np.float32)])
    following |= _found(graph, carried, following, divisor, count, beams)
    # The search ends if the best running beam cannot become better than the worst sequence that ended.
    best = graph.add("Div", [graph.add("Slice", [following["sums"], [0], [1], [0]]), divisor])
    worst = graph.add("Slice", [following["found_scores"], [beams - 1], [beams], [0]])
    has_all = graph.add("Greater", [graph.add("ReduceMin", [following["found_counts"], [0]], keepdims=1), [0]])
    hopeless = graph.add("And", [has_all, graph.add("Not", [graph.add("Greater", [best, worst])])])
    if early:
        hopeless = graph.add("Or", [hopeless, has_all])
    ends = graph.add("Or", [hopeless, graph.add("GreaterOrEqual", [position, [most - 1]])])
    begun = graph.add("GreaterOrEqual", [position, [0]])
    graph.add("And", [ends, begun], "out_ends")
    for name in (*_CARRIED, "token", "beam"):
        before = carried.get(name) or np.arange(beams) * (name == "beam")
        graph.add("Where", [begun, following[name], before], f"out_{name}")
    return {**{name: given[name] for name in ("tokens", "found")}, "ends": ValueType("bool", (1,)),
            **{name: ValueType("float32", (beams,)) for name in ("sums", "found_scores")},
            **{name: ValueType("int64", (beams,)) for name in ("found_counts", "token", "beam")}}


def _following(graph: Nodes, position: str, carried: dict[str, str], sizes: tuple[int, int, int], end: int
               ) -> dict[str, str]:
    """Returns the running beams after the step, and under keys with a blank in front the 2 * beams best continuations
    of which they are those without the end.

    carried: what the search carries; in the first step its values become those of a search that begins.
    sizes: the numbers of beams, of classes, and of tokens of a sequence.
    """
    beams, classes, most = sizes
    is_first = graph.add("LessOrEqual", [position, [0]])
    none = np.full(beams, _NO_BEAM, np.float32)
    first = np.where(np.arange(beams) == 0, np.float32(0), none)  # all beams are equal: one is continued
    carried |= {name: graph.add("Where", [is_first, value, carried[name]]) for name, value in (
        ("sums", first), ("found_scores", none), ("found_counts", np.zeros(beams, np.int64)))}
    scores = graph.add("LogSoftmax", [graph.add("Reshape", ["scores", [beams, classes]])], axis=-1)
    sums = graph.add("Add", [scores, graph.add("Reshape", [carried["sums"], [beams, 1]])])
    values, indices = graph.several("TopK", [graph.add("Reshape", [sums, [beams * classes]]), [2 * beams]],
                                    ["best_sums", "best_indices"], axis=0)
    parents, tokens = graph.add("Div", [indices, [classes]]), graph.add("Mod", [indices, [classes]])
    is_place = graph.add("Equal", [np.arange(most)[None], graph.add("Reshape", [position, [1, 1]])])
    rows = graph.add("Where", [is_place, graph.add("Reshape", [tokens, [2 * beams, 1]]),
                               graph.add("Gather", [carried["tokens"], parents])])
    ended = graph.add("Or", [graph.add("Equal", [tokens, [end]]),
                             graph.add("GreaterOrEqual", [position, [most - 1]])])
    running = graph.add("Add", [values, graph.add("Where", [
        ended, np.array([_NO_BEAM], np.float32), np.array([0], np.float32)])])
    kept, chosen = graph.several("TopK", [running, [beams]], ["running_sums", "chosen"], axis=0)
    return {"sums": kept, "tokens": graph.add("Gather", [rows, chosen]), "token": graph.add("Gather", [tokens, chosen]),
            "beam": graph.add("Gather", [parents, chosen]), " values": values, " rows": rows, " ended": ended}


def _found(graph: Nodes, carried: Mapping[str, str], following: Mapping[str, str], divisor: str, count: str,
           beams: int) -> dict[str, str]:
    """Returns the best sequences that ended, of those before the step and of those that are among the best `beams`
    continuations of it. divisor: of sums of sequences of `count` tokens."""
    is_new = graph.add("And", [following[" ended"], np.arange(2 * beams) < beams])
    normalized = graph.add("Div", [following[" values"], divisor])
    scores = graph.add("Where", [is_new, normalized, graph.add("Add", [
        normalized, np.array([_NO_BEAM], np.float32)])])
    counts = graph.add("Where", [is_new, count, [0]])
    kept, chosen = graph.several("TopK", [graph.add("Concat", [carried["found_scores"], scores], axis=0), [beams]],
                                 ["best_found", "chosen_found"], axis=0)
    rows = graph.add("Concat", [carried["found"], following[" rows"]], axis=0)
    return {"found_scores": kept, "found": graph.add("Gather", [rows, chosen]), "found_counts": graph.add("Gather", [
        graph.add("Concat", [carried["found_counts"], counts], axis=0), chosen])}


FUNCTIONS = {
    "ctc_greedy": Function(
        keys=("blank", "most"), inputs=("scores", "length"), outputs=("tokens", "count", "frames", "scores"),
        make=_ctc_greedy, integers=("length",), optional=("length",)),
    "ctc_beam": Function(
        keys=("blank", "beam", "results", "most", "probabilities"), inputs=("scores", "length"),
        outputs=("tokens", "count", "scores", "frames"), make=_ctc_beam, integers=("length",), optional=("length",)),
    "ctc_align": Function(
        keys=("blank", "probabilities"), inputs=("scores", "tokens", "count", "length"), outputs=("frames", "score"),
        make=_ctc_align, integers=("tokens", "count", "length"), optional=("count", "length")),
    "transducer": Function(
        keys=("blank", "durations", "max_symbols", "frames"), inputs=("scores", "frame", "symbols", "length"),
        outputs=("token", "frame", "symbols", "is_token", "ends"), make=_transducer,
        integers=("frame", "symbols", "length"), optional=("length",)),
    "beam": Function(
        keys=("end", "length_penalty", "early_stopping"), inputs=("scores", "position", *_CARRIED),
        outputs=("token", "beam", *_CARRIED, "ends"), make=_beam,
        integers=("position", "tokens", "found", "found_counts"))}
