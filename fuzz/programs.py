# SPDX-License-Identifier: Apache-2.0
"""The programs that are fuzzed: what is around networks, in small sizes. Every value between steps is an output, so
that each has a block of the heap."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_megcc.tools.program.program import Program
    from tvm_megcc.tools.program.steps import Step


def program(name: str, inputs: dict[str, str], steps: Sequence[Step], states: dict[str, tuple[str, str]] | None = None
            ) -> Program:
    from tvm_megcc.tools.program.program import Program

    return Program(name, inputs, list(steps), [value for step in steps for value in step.produced],
                   {state: Program.State(*of) for state, of in (states or {}).items()})


def sounds(_: Path) -> Program:
    from tvm_megcc.tools.program.program import Program

    small: dict[str, Any] = {"sample_rate": 16000, "fft": 32, "hop": 16, "mels": 4}
    settings: dict[str, dict[str, Any]] = {
        "plain": small, "reflected": {**small, "pad": "reflect", "log": "decibel", "range": 80},
        "zeros": {**small, "pad": "zeros", "normalize": "mels", "power": 1, "offset": 1e-6},
        "kaldi": {**small, "scale": "kaldi", "dc": "remove", "preemphasis": 0.97, "preemphasis_of": "frames",
                  "taper": "povey", "log": "log10", "normalize": "mean"},
        "stream": {**small, "stream": True, "gain": 32768.0}}
    steps: list[Step] = [Program.Feature("log_mel", "x", name, keys, name=name) for name, keys in settings.items()]
    steps += [Program.Feature("mfcc", "x", "cepstra", {**small, "coefficients": 3, "lifter": 22, "energy": True}),
              Program.Feature("resample", "x", "half", {"sample_rate": 16000, "to": 8000}, name="half_of"),
              Program.Feature("resample", "x", "finer", {"sample_rate": 16000, "to": 24000, "stream": True},
                              name="finer_of")]
    return program("sounds", {"x": "float32[96]"}, steps)


def searches(_: Path) -> Program:
    from tvm_megcc.tools.program.program import Program

    every = ("tokens", "count", "scores", "frames")

    def search(function: str, name: str, inputs: dict[str, str], outputs: Sequence[str] = every, **settings: object
               ) -> Step:
        return Program.Search(function, inputs, {output: f"{name}_{output}" for output in outputs}, settings,
                              name=name)

    turn = {"scores": "token_scores", "frame": "frame", "symbols": "symbols", "length": "length"}
    ends = ("token", "frame", "symbols", "is_token", "ends")
    return program("searches", {
        "x": "float32[6,4]", "rows": "float32[2,5,3]", "lengths": "int64[2]", "length": "int64[1]", "known": "int64[4]",
        "number": "int64[1]", "token_scores": "float32[5]", "timed": "float32[9]", "frame": "int64[1]",
        "symbols": "int64[1]"}, [
        search("ctc_greedy", "greedy", {"scores": "x", "length": "length"}),
        search("ctc_greedy", "greedy_rows", {"scores": "rows", "length": "lengths"}, blank=-1, most=2),
        search("ctc_beam", "beam", {"scores": "x", "length": "length"}, beam=5, results=5, most=3),
        search("ctc_beam", "beam_rows", {"scores": "rows", "length": "lengths"}, beam=3, blank=2, probabilities=True),
        search("ctc_align", "align", {"scores": "x", "length": "length", "tokens": "known", "count": "number"},
               ("frames", "score")),
        search("transducer", "one", turn, ends, max_symbols=3),
        search("transducer", "tdt", {**turn, "scores": "timed"}, ends, durations=[0, 1, 2, 4], blank=-1)])


def _words(folder: Path) -> list[Path]:
    """Two tokenizers: words of BERT's kind, and pairs of bytes."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##a", "##b", "b", "the", "##\u00df", "\u4e00", "!",
              "\U0001f980"]
    words = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]",
                                       max_input_chars_per_word=7))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("ab", "a"), ("\u00c3", "\u0141"), ("t", "h"), ("th", "e"), ("\u0120", "the")]
    tokens = [*letters, *(one + other for one, other in merges), "<s>"]
    pairs = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    paths = [folder / "words.json", folder / "pairs.json"]
    for path, made in zip(paths, (words, pairs), strict=True):
        content = json.loads(made.to_str())
        if made is pairs:
            content["decoder"] = content["pre_tokenizer"]
        path.write_text(json.dumps(content), "utf-8")
    return paths


def tokens(folder: Path) -> Program:
    from tvm_megcc.tools.program.program import Program

    words, pairs = map(str, _words(folder))
    steps: list[Step] = []
    for name, path, most in (("words", words, 9), ("pairs", pairs, 12)):
        every = {output: f"{name}_{output}" for output in ("tokens", "mask", "types", "count")}
        steps.append(Program.Tokenizer(path, {"text": "text"}, every, {"most": most}, name=name))
    both = {output: f"both_{output}" for output in ("tokens", "types", "count")}
    each = Program.Tokenizer(words, {"text": "row", "pair": "text"}, {"tokens": "ids", "count": "ids_count"},
                             {"most": 6})
    labels = {"labels": ["a", "", "\u00df", "long" * 4, "\U0001f980"], "most": 20}
    steps += [
        Program.Tokenizer(words, {"text": "text", "pair": "other"}, both, {"most": 10}, name="both"),
        Program.Loop("each_row", [each], 3, count="count", for_each={"row": "rows"},
                     outputs={"all_ids": "ids", "ids_counts": "ids_count"}),
        Program.Text("labels", {"tokens": "numbers", "count": "count"}, {"text": "said", "bytes": "said_bytes"},
                     labels),
        Program.Text("labels", {"tokens": "pairs_tokens", "count": "pairs_count"}, {"text": "again"},
                     {"file": pairs, "most": 16}, name="again_text"),
        Program.Operator("Gather", ["table", "numbers"], ["found"], {"axis": 0})]
    return program("tokens", {"text": "uint8[40]", "other": "uint8[9]", "rows": "uint8[3,16]", "numbers": "int64[6]",
                              "count": "int64[1]", "table": "float32[5,3]"}, steps)


def pictures(_: Path) -> Program:
    from tvm_megcc.tools.program.program import Program

    steps: list[Step] = []
    for kind, value in (("bytes", "p"), ("floats", "f")):
        for function, name, keys in (
                ("resize", "linear", {"size": [9, 20], "method": "linear"}),
                ("resize", "nearest", {"size": [5, 7], "method": "nearest"}),
                ("resize", "area", {"size": [4, 5], "method": "area"}),
                ("letterbox", "boxed", {"size": [16, 10], "value": [114, 0, 255]}),
                ("crop", "cut", {"x": 2, "y": 1, "size": [3, 4]}), ("rotate", "turned", {"degrees": 90}),
                ("flip", "flipped", {"mirrored": "both"}), ("color", "swapped", {"code": "RGB_BGR"}),
                ("blur", "blurred", {"size": [3, 5], "sigma": [0.8, 1.1]}),
                ("warp_affine", "affine", {"size": [7, 9], "matrix": "m"}),
                ("warp_affine", "kept", {"size": [7, 9], "matrix": "m", "border": "replicate"}),
                ("warp_perspective", "seen", {"size": [7, 18], "matrix": "h"}),
                ("warp_perspective", "seen_kept", {"size": [7, 18], "matrix": "h", "border": "replicate"})):
            steps.append(Program.Image(function, value, f"{name}_{kind}", keys, name=f"{name}_of_{kind}"))
    steps.append(Program.Image("color", "camera", "rgb", {"code": "NV12_RGB"}))
    steps.append(Program.Operator("Neg", ["m"], ["other_m"]))  # a program has at least one operator
    return program("pictures", {"p": "uint8[12,17,3]", "f": "float32[12,17,3]", "camera": "uint8[9,8,1]",
                                "m": "float32[6]", "h": "float32[9]"}, steps)


def boxes(_: Path) -> Program:
    from tvm_megcc.tools.program.program import Program

    def detection(function: str, name: str, inputs: dict[str, str], outputs: Sequence[str], **settings: object) -> Step:
        return Program.Detection(function, inputs, {output: f"{name}_{output}" for output in outputs}, settings,
                                 name=name)

    grid = {"size": [16, 24], "strides": [8, 16]}  # 2 * 3 + 1 * 1 cells
    return program("boxes", {
        "cells": "float32[7,7]", "rows": "float32[5,8]", "offsets": "float32[13,4]", "classes": "float32[7,1]",
        "objects": "float32[7,1]", "places": "float32[7,4]", "marks": "float32[7,10]", "boxes": "float32[12,4]",
        "scores": "float32[12,2]", "mediapipe_rows": "float32[16,8]", "mediapipe_scores": "float32[16,1]",
        "points": "float32[3,2]", "face": "float32[1,10]", "map": "float32[20,24]", "lines": "float32[3,4,2]",
        "count": "int64[1]", "picture": "uint8[14,18,3]"}, [
        detection("yolox", "yolox", {"results": "cells"}, ("boxes", "scores"), **grid),
        detection("yolo", "yolo", {"results": "rows"}, ("boxes", "scores")),
        detection("yolo", "columns", {"results": "rows"}, ("boxes", "scores"), layout="columns"),
        detection("ssd", "ssd", {"offsets": "offsets"}, ("boxes",), maps=[[2, 3], [1, 1]],
                  anchors=[[[0.1, 0.2], [0.3, 0.3]], [[0.5, 0.6]]]),
        detection("yunet", "yunet", {"classes": "classes", "objects": "objects", "boxes": "places", "points": "marks"},
                  ("boxes", "scores", "points"), size=[16, 24], strides=[8, 16]),
        detection("nms", "nms", {"boxes": "boxes", "scores": "scores"},
                  ("boxes", "scores", "classes", "indices", "count"), most=5),
        Program.Operator("Gather", ["boxes", "nms_indices"], ["kept"], {"axis": 0}),
        detection("unletterbox", "before", {"places": "boxes"}, ("places",), size=[16, 24], picture=[30, 20]),
        detection("mediapipe", "palm", {"results": "mediapipe_rows", "scores": "mediapipe_scores"},
                  ("boxes", "points", "scores"), size=[16, 16], strides=[8, 8]),
        detection("merge", "merged", {"boxes": "palm_boxes", "scores": "palm_scores", "points": "palm_points"},
                  ("box", "points", "score", "count")),
        detection("region", "hand", {"points": "points", "box": "merged_box"}, ("matrix",), first=0, second=2,
                  size=[9, 9], scale=2.5),
        Program.Image("warp_affine", "picture", "hand_cut", {"size": [9, 9], "matrix": "hand_matrix"}),
        detection("transform", "moved", {"points": "points", "matrix": "hand_matrix"}, ("points",)),
        detection("five_points", "upright", {"points": "face"}, ("matrix",), size=[9, 9]),
        Program.Image("warp_affine", "picture", "face_cut", {"size": [9, 9], "matrix": "upright_matrix",
                                                           "border": "replicate"}, name="cut_face"),
        detection("db_boxes", "page", {"map": "map"}, ("points", "scores", "count"), picture=[40, 40], most=4),
        detection("text_lines", "line", {"points": "lines"}, ("matrices", "rotated", "widths", "masks"), size=[6, 20]),
        Program.Loop("each", [Program.Image("warp_perspective", "picture", "text",
                                            {"size": [6, 20], "matrix": "place"})],
                     3, count="count", for_each={"place": "line_matrices"}, outputs={"texts": "text"},
                     trip_count="trips")])


#: Name -> what makes the program; files of tokenizers are written to the folder.
PROGRAMS: dict[str, Callable[[Path], Program]] = {
    made.__name__: made for made in (sounds, searches, tokens, pictures, boxes)}
