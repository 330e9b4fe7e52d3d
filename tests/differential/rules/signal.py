# SPDX-License-Identifier: Apache-2.0
"""Windows of signals, Fourier transforms, losses, strings and random numbers."""

from __future__ import annotations

import numpy as np

from ..draw import Draw, element_type, types_of

#: The number of ONNX of each element type that `output_datatype` may name, numpy's names.
_REALS = ("float16", "float32", "float64")


def window(draw: Draw) -> None:
    draw.maybe("periodic", draw.whole(0, 1))
    if draw.chance(0.5):
        draw.attributes["output_datatype"] = element_type(np.zeros(1, draw.one((*_REALS, "int32", "uint8"))))
    draw.add_ints(draw.whole(2, 12), 0.8)  # of one, not periodic, there is a division by zero


def mel_weights(draw: Draw) -> None:
    if draw.chance(0.4):
        draw.attributes["output_datatype"] = element_type(np.zeros(1, draw.one(_REALS)))
    rate = draw.one((8000, 16000, 44100))
    for number in (draw.whole(1, 8), draw.one((16, 32, 64)), rate):
        draw.add_ints(number, 1.0)
    low = draw.one((0, 20, 125))
    for number in (low, low + draw.one((500, 2000, rate // 2 - 200))):
        draw.add_ints(number, 1.0)


def fourier(draw: Draw) -> None:
    inverse = draw.maybe("inverse", draw.whole(0, 1)) or 0
    one_sided = 0 if inverse else draw.maybe("onesided", draw.whole(0, 1)) or 0
    parts = 1 if one_sided else draw.one((1, 2))
    shape = (draw.whole(1, 3), *(draw.whole(1, 6) for _ in range(draw.whole(1, 2))), parts)
    axis = draw.whole(1, len(shape) - 2)
    if draw.opset >= 20 and draw.chance(0.3):
        axis -= len(shape)
    draw.add_values(shape, 0.1)
    draw.add(np.array(draw.whole(1, 8), draw.dtype("T2")) if draw.chance(0.4) else None, 1)
    if "axis" in draw.schema.attributes:
        draw.attributes["axis"] = axis
    else:
        draw.add(np.array(axis, "int64"), 0.9)


def short_fourier(draw: Draw) -> None:
    length, step = draw.whole(1, 6), draw.whole(1, 3)
    draw.maybe("onesided", draw.whole(0, 1))
    real = draw.attributes.get("onesided", 1) or draw.chance(0.7)
    shape = (draw.whole(1, 2), length + draw.whole(0, 8), 1 if real else 2)
    draw.add_values(shape, 0.1)
    draw.add(np.array(step, draw.dtype("T2")), 1)
    with_window = draw.chance(0.6)
    draw.add(draw.values((length,), draw.dtype("T1"), low=0.1, high=1) if with_window else None, 0.8)
    if not with_window or draw.chance(0.5):
        draw.add(np.array(length, draw.dtype("T2")), 1)


def loss(draw: Draw) -> None:
    classes, batch = draw.whole(1, 6), draw.whole(1, 4)
    behind = draw.shape(0, 2, 0)
    draw.maybe("reduction", draw.one(("none", "mean", "sum")))
    ignored = draw.maybe("ignore_index", draw.one((0, 1, -1, 10)), 0.4)
    draw.add_values((batch, classes, *behind), 0.1)
    labels = draw.rng.integers(0, classes, (batch, *behind))
    if ignored is not None and (ignored >= classes or ignored < 0):
        labels = np.where(draw.rng.random(labels.shape) < 0.2, ignored, labels)
    draw.add(labels.astype(draw.dtype("Tind")), 0.3)
    if draw.chance(0.5):
        draw.add(draw.values((classes,), draw.dtype("T"), low=0.1, high=2), 0.8)
    if len(draw.schema.outputs) > 1:
        draw.outputs = draw.whole(1, 2)


def normalizer(draw: Draw) -> None:
    draw.maybe("case_change_action", draw.one(("NONE", "LOWER", "UPPER")))
    draw.maybe("is_case_sensitive", draw.whole(0, 1))
    draw.maybe("stopwords", ["a", "ab"], 0.4)
    draw.add_values(draw.one(((draw.whole(1, 5),), (1, draw.whole(1, 5)))), 0.5)


def tf_idf(draw: Draw) -> None:
    most = draw.whole(1, 3)
    least, singles, doubles, triples = draw.whole(1, most), draw.whole(1, 3), draw.whole(1, 2), draw.whole(1, 2)
    words = ["a", "B", "ab", "a b"] if (text := draw.dtype("T") == "object") else [1, 2, 3, 4]
    pool = [words[at] for at in draw.rng.permutation(4)[:singles]]
    starts = [0]
    for size, count in ((2, doubles), (3, triples))[:most - 1]:
        starts.append(len(pool))
        grams = draw.rng.permutation(4**size)[:count]
        pool += [words[gram // 4**place % 4] for gram in grams for place in range(size)]
    grams = sum((end - start) // size for size, (start, end) in enumerate(
        zip(starts, [*starts[1:], len(pool)], strict=True), start=1))
    draw.attributes |= {"mode": draw.one(("TF", "IDF", "TFIDF")), "min_gram_length": least, "max_gram_length": most,
                        "max_skip_count": draw.whole(0, 2), "ngram_counts": starts,
                        "ngram_indexes": [int(at) for at in draw.rng.permutation(grams)],
                        "pool_strings" if text else "pool_int64s": pool}
    draw.maybe("weights", [float(at + 1) / 2 for at in range(grams)])
    shape = draw.one(((draw.whole(1, 8),), (draw.whole(1, 3), draw.whole(1, 8))))
    draw.add(draw.values(shape, draw.dtype("T"), low=1, high=4), 0.2)


def random(draw: Draw) -> None:
    """Only element types and shapes are compared (comparison.py)."""
    name = draw.schema.name
    draw.attributes["seed"] = float(draw.whole(0, 9))  # without one, the graph has an input for it
    for attribute, value in (("mean", 1.0), ("scale", 2.0), ("low", -1.0), ("high", 3.0)):
        draw.maybe(attribute, value, 0.4)
    if "dtype" in draw.schema.attributes and (draw.chance(0.5) or name == "RandomNormalLike"):
        draw.attributes["dtype"] = element_type(np.zeros(1, draw.one(sorted(set(types_of(draw.schema, (
            "T2" if len(draw.schema.inputs) else "T")))))))
    if "shape" in draw.schema.attributes:
        draw.attributes["shape"] = [int(extent) for extent in draw.shape(1, 4)]
    elif name == "Multinomial":
        draw.maybe("sample_size", draw.whole(1, 4))
        draw.add_values((draw.whole(1, 3), draw.whole(1, 5)), 0.2)
    else:
        limits = {"low": 0, "high": 1} if name == "Bernoulli" else {}
        draw.add(draw.values(draw.shape(), draw.dtype("T1"), **limits), 0.2)


RULES = {**dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), window), "MelWeightMatrix": mel_weights,
         "DFT": fourier, "STFT": short_fourier, "NegativeLogLikelihoodLoss": loss, "SoftmaxCrossEntropyLoss": loss,
         "StringNormalizer": normalizer, "TfIdfVectorizer": tf_idf,
         **dict.fromkeys(("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                          "RandomUniformLike"), random)}
