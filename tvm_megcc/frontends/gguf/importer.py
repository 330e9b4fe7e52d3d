# SPDX-License-Identifier: Apache-2.0
"""Imports a GGUF file as a decoder whose KV cache is a state. A run takes tokens and returns logits of the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...dispatch import Shape
from ...errors import MegccError
from ...ir.dims import Dim, Symbol
from ...ir.graph import Graph
from ...ir.shapes import EVERYTHING, Bucket
from ...ops.cache_rows import ring_rows
from ...passes.streaming.kv_cache import BatchRows, Sinks, grow_states
from ...passes.streaming.states import keep_states
from ..decoder_names import LENGTH, NEW, PAST, TOKENS
from .architectures import Decoder, decoder
from .file import File, read
from .transformer import layer_states, layers_with_sinks, rotated_sinks, sink_state, state_names, transformer

#: The default capacity of the KV cache in tokens; the model's trained context, if that is smaller.
DEFAULT_CONTEXT = 2048
#: The largest number of sequences that a model has caches for.
MAX_SEQUENCES = 256


def input_dims(path: str | Path) -> dict[str, Shape]:
    """Returns the shapes of the inputs: `input_ids`, [1, sequence_length].

    Raises:
        ModelError: for a file that cannot be read.
    """
    decoder(read(path))  # for its errors
    return {TOKENS: (1, LENGTH)}


def import_gguf(path: str | Path, input_shapes: Mapping[str, Sequence] | None = None,
                bounds: Mapping[str, int] | None = None, shapes: Bucket = EVERYTHING, sinks: int = 0) -> Graph:
    """Returns the file as a graph whose KV cache is a state. Layers with a sliding window have ring buffers, if these
    are smaller than the whole context.

    Args:
        input_shapes: the shape of `input_ids`, [sequences, new tokens of a run]: a number of sequences, and a number or
            the name of a symbol; default [1, 1].
        bounds: the capacity of the KV cache in tokens, as `past_sequence_length`.
        shapes: a bucket with all values that the symbol has.
        sinks: the number of attention sinks (ops/cache_rows.py); 0 for none.

    Raises:
        ModelError: listing everything in the file that is damaged, contradictory or not supported.
        MegccError: for bounds of other names, or of more tokens than the model was trained for; for sinks of several
            sequences, or that leave the cache fewer rows than a run may append.
    """
    file = read(path)
    config = decoder(file)
    other = sorted(set(bounds or {}) - {PAST})
    if other:
        raise MegccError(f"bound '{other[0]}': the model has no such extent; {PAST} is the capacity of the KV cache "
                         f"in tokens: --bound {PAST}={min(DEFAULT_CONTEXT, config.context)}")
    context = (bounds or {}).get(PAST, min(DEFAULT_CONTEXT, config.context))
    if context > config.context:
        raise MegccError(f"--bound {PAST}={context}: the model was trained for {config.context} tokens")
    sequences, length = _sequences_and_length((input_shapes or {}).get(TOKENS))
    if sinks:
        longest = shapes.largest(length)
        if longest is None or longest > context - sinks:
            raise MegccError(f"--sinks {sinks}: of a cache of {context} tokens a run can replace {context - sinks}, "
                             f"and it has {longest or 'any number of'} new ones")
        return _with_sinks(file, config, length, context, sequences, sinks)
    graph = transformer(file, length, context, sequences)
    states = state_names(config.layers)
    batch = BatchRows(PAST, NEW) if sequences > 1 else None
    return keep_states(grow_states(graph, states, {PAST: context}, _rings(config, shapes.largest(length), context),
                                   batch), states)


def _with_sinks(file: File, config: Decoder, length: Dim, context: int, sequences: int, sinks: int) -> Graph:
    """Returns the graph of a file with attention sinks. Arguments are those of `transformer`."""
    if sequences > 1:
        raise MegccError(f"--sinks {sinks}: attention sinks are for one sequence, not {sequences}")
    graph = transformer(file, length, context, sinks=sinks)
    layers, states = layers_with_sinks(config, context), state_names(config.layers)
    rotated = {layer_states(layer)[f"present.{layer}.key"]: rotated_sinks(layer) for layer in layers}
    graph = grow_states(graph, states, {PAST: context}, sinks=Sinks(PAST, sinks, rotated))
    outputs = tuple(name for name in graph.outputs if name not in rotated.values())
    return keep_states(graph.with_(outputs=outputs), states | dict(map(sink_state, layers)))


def _rings(config: Decoder, longest: int | None, context: int) -> dict[str, int]:
    """Returns the states of layers with a sliding window that are ring buffers, with their rows. longest: the largest
    number of new tokens in a run; None for no limit."""
    if longest is None or not config.window:
        return {}
    rows = ring_rows(config.window, longest)
    return {} if rows >= context else {
        state: rows for layer in range(config.layers) if not config.attends_to_all(layer)
        for state in layer_states(layer).values()}


def _sequences_and_length(shape: Sequence | None) -> tuple[int, Dim]:
    """Returns the number of sequences, and of new tokens of each in a run, from the shape that a user gives for
    `input_ids`."""
    if shape is None:
        return 1, 1
    sequences = 1 if len(shape) == 2 and shape[0] is None else shape[0] if shape else 0
    if len(shape) != 2 or not isinstance(sequences, int) or not 1 <= sequences <= MAX_SEQUENCES:
        raise MegccError(f"--input-shapes gives {TOKENS} as {list(shape)}; its shape is [1, {LENGTH}], or for several "
                         f"sequences [N, {LENGTH}], {MAX_SEQUENCES} at most")
    length = shape[1] if shape[1] is not None else 1
    return sequences, Symbol(length) if isinstance(length, str) else length
