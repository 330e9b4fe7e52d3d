# SPDX-License-Identifier: Apache-2.0
"""Counts of n-grams (sequences of n words), and the importer of ONNX's TfIdfVectorizer, which uses them. A word is an
integer, or a string's index in the model's string table."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, register
from ..elementwise import cast_to
from ..emit_onnx import number


@register
class CountGrams(Operator):
    """Counts how often each n-gram of a table occurs in each row of x.

    Operands: x int64 [B, C], rows of words; table int64, the words of all n-grams one after the other, by n and then
    sorted; column int32, the column of each n-gram in the result. Result: float32 [B, columns].

    Attributes: `columns`; `sizes`: (n, number of n-grams) for each n; `skips`: the largest number of words that are
    skipped between two words of an n-gram, the same number between all of them.
    """

    kind = "count_grams"
    operands = ("x", "table", "column")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType, column: TensorType) -> tuple[TensorType, ...]:
        grams = sum(count for _, count in attrs.sizes)
        words = sum(size * count for size, count in attrs.sizes)
        if x.rank != 2 or table.shape != (words,) or column.shape != (grams,):
            raise ShapeError(f"{grams} grams of {words} words in {x}: table {table}, columns {column}")
        return (TensorType("float32", (x.shape[0], attrs.columns)),)

    @staticmethod
    def compute(attrs: Attrs, x, table, column) -> tuple[np.ndarray, ...]:
        y = np.zeros((x.shape[0], attrs.columns), np.float32)
        first, word = 0, 0
        for size, count in attrs.sizes:
            grams = table[word:word + size * count].reshape(count, size)
            column_of = {tuple(gram): column[first + row] for row, gram in enumerate(grams.tolist())}
            # The distance of neighbouring words of an n-gram: 1, and one more for each skipped word.
            for distance in range(1, 2 if size == 1 else attrs.skips + 2):
                for row, text in enumerate(x.tolist()):
                    length = (size - 1) * distance + 1
                    for start in range(len(text) - length + 1):
                        index = column_of.get(tuple(text[start:start + length:distance]))
                        if index is not None:
                            y[row, index] += 1
            first, word = first + count, word + size * count
        return (y,)


def ngram_tables(grams: dict[tuple[int, ...], int]) -> tuple[tuple[tuple[int, int], ...], np.ndarray, np.ndarray]:
    """Returns attribute `sizes` and the operands `table` and `column`. grams: the column of each n-gram."""
    ordered = sorted(grams, key=lambda gram: (len(gram), gram))
    sizes = sorted({len(gram) for gram in ordered})
    return (tuple((size, sum(len(gram) == size for gram in ordered)) for size in sizes),
            np.array([word for gram in ordered for word in gram], np.int64),
            np.array([grams[gram] for gram in ordered], np.int32))


@decomposes("TfIdfVectorizer")
def tf_idf(node: OnnxNode) -> tuple[str, ...]:
    """Imports TfIdfVectorizer. Its result are counts of n-grams (mode TF), 1 or 0 times a weight (IDF), or counts times
    a weight (TFIDF)."""
    min_size, max_size, mode = node.attr("min_gram_length"), node.attr("max_gram_length"), node.attr("mode")
    strings, starts, columns = node.strings("pool_strings"), node.attr("ngram_counts"), node.attr("ngram_indexes")
    pool = (node.attr("pool_int64s") or []) if strings is None else strings.tolist()
    if (strings is not None) != node.is_string(0):
        raise MegccError("has a pool of strings for an operand of numbers, or a pool of numbers for strings")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise MegccError(f"has mode {mode}; TF, IDF and TFIDF are supported")
    grams: dict[tuple[int, ...], int] = {}
    weights, gram = np.ones(max(columns) + 1, np.float32), 0
    given_weights = node.attr("weights")
    for size, (first, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if (end - first) % size:
            raise ShapeError(f"{end - first} words do not make grams of {size}")
        for word in range(first, end, size):
            if min_size <= size <= max_size:
                grams[tuple(pool[word:word + size])] = columns[gram]
            if given_weights:
                weights[columns[gram]] = given_weights[gram]
            gram += 1
    x = node.type(0)
    if x.rank not in (1, 2) or x.dtype not in ("int32", "int64"):
        raise ShapeError(f"{x} is no row of numbers, nor several")
    (rows,) = node.emit("reshape", node.inputs[:1], shape=(1, *x.shape) if x.rank == 1 else x.shape)
    sizes, table, column = ngram_tables(grams)
    (y,) = node.emit("count_grams", (*cast_to(node, rows, "int64"), node.constant(table), node.constant(column)),
                     sizes=sizes, columns=len(weights), skips=node.attr("max_skip_count"))
    if mode == "IDF":
        (y,) = cast_to(node, *node.emit("greater", (y, number(node, 0, "float32"))), "float32")
    if mode != "TF" and given_weights:
        (y,) = node.emit("mul", (y, node.constant(weights.reshape(1, -1))))
    return node.emit("reshape", (y,), shape=(len(weights),)) if x.rank == 1 else (y,)


def _case(shape: tuple[int, int], most: int, skips: int, words: int) -> Case:
    """Returns a case of random n-grams. most: the largest n. words: the number of different words."""
    drawn = np.random.default_rng(most)
    ngrams = {tuple(drawn.integers(0, words, size).tolist()) for size in range(1, most + 1) for _ in range(4 * size)}
    sizes, table, column = ngram_tables({gram: 2 * index for index, gram in enumerate(sorted(ngrams))})
    return Case(((shape, "int64"), (table.shape, "int64"), (column.shape, "int32")),
                {"sizes": sizes, "columns": 2 * len(ngrams), "skips": skips}, (1, 2),
                {0: drawn.integers(0, words, shape), 1: table, 2: column})


CountGrams.cases = (_case((3, 40), 3, 2, 4), _case((1, 7), 1, 5, 9), _case((2, 2), 4, 0, 2))
