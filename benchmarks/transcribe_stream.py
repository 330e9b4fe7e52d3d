#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program `transcribe-stream` over hours of sound in blocks of 0.16 seconds, and checks it: noise, and
sentences of espeak-ng at known places.

    pip install onnxruntime
    benchmarks/transcribe_stream.py MODELS --hours 24     # MODELS: a folder with the models of the description

The texts have to be those of the whole sound: voice activity of all blocks in ONNX Runtime, texts cut out by numpy, and
the program `transcribe` for each. The wake word has to be what a new session says that hears only the ten seconds
before. The memory must not grow after the first sentence. Ends with exit status 1 if something differs.
"""

from __future__ import annotations

import argparse
import functools
import io
import multiprocessing
import subprocess
import sys
import tempfile
import time
import wave
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

RATE, BLOCK, PART = 16000, 2560, 512
#: Blocks of a minute, in which the sound is made: each minute by itself, so that both sides can hear any of them.
BLOCKS = 60 * RATE // BLOCK
#: Blocks without speech that end a text, and the most blocks of a text.
PAUSE, MOST = 4, 187
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.", "It is a fine day for a long walk in the park with my old friends.",
    "Ask what you can do for your country.", "The train to London leaves at seven in the morning.", "Okay Nabu.",
    "We would like two cups of tea and some bread, please.", "She told me that the library is closed on Sunday.",
    "Six spoons of fresh snow peas, five thick slabs of blue cheese, and maybe a snack for her brother Bob.",
    "The weather tomorrow will be cold and windy.", "Nobody knows how many stars there are in the sky.")
#: A sentence is said in every such minute.
EVERY = 10


@functools.cache
def spoken(sentence: str) -> np.ndarray:
    """Returns a sentence as float32 [samples] at 16 kHz."""
    made = subprocess.run(["espeak-ng", "-s", "150", "--stdout", sentence], capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(made)) as file:
        rate = file.getframerate()
    sound = np.frombuffer(made[44:], np.int16) / 32768
    count = len(sound) * RATE // rate
    return (np.fft.irfft(np.fft.rfft(sound)[:count // 2 + 1], count) * count / len(sound)).astype(np.float32)


def minute(index: int) -> np.ndarray:
    """Returns a minute of the sound, float32 [BLOCKS, BLOCK]: noise of a loudness that changes, knocks, and in some
    minutes a sentence."""
    draw = np.random.default_rng(index)
    sound = draw.standard_normal(BLOCKS * BLOCK, np.float32) * draw.choice([1e-4, 1e-3, 4e-3])
    for begin in draw.integers(0, len(sound) - 400, draw.integers(0, 3)):
        sound[begin:begin + 400] += 0.2 * np.exp(-np.arange(400, dtype=np.float32) / 60) * draw.choice([-1, 1])
    if index % EVERY == EVERY // 2:
        voice = spoken(SENTENCES[index // EVERY % len(SENTENCES)])
        begin = draw.integers(0, len(sound) - len(voice) - 2 * RATE)
        sound[begin:begin + len(voice)] += voice * draw.uniform(0.3, 1)
    return np.clip(sound, -1, 1).astype(np.float32).reshape(BLOCKS, BLOCK)


def resident() -> int:
    """Returns the bytes that this process has resident, without pages of files: weights are read as they are needed."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split(maxsplit=1)[0])


def streamed(folder: Path, minutes: int) -> tuple[list[tuple[int, str]], np.ndarray]:
    """Returns (last block, text) of each text, and the wake word's probabilities, of the sound in blocks."""
    import tvm_megcc

    texts, wake, sizes = [], np.full((minutes * BLOCKS, 2), -1, np.float32), []
    for sentence in SENTENCES:
        spoken(sentence)
    start = time.perf_counter()
    with tvm_megcc.load(folder) as session:
        for index in range(minutes):
            for at, block in enumerate(minute(index), index * BLOCKS):
                results = session.run({"audio": block})
                wake[at] = results["wake"]
                if results["is_said"].item():
                    texts.append((at, str(session.with_strings(results)["text"].item())))
            if index == EVERY or (index + 1) % 60 == 0 or index + 1 == minutes:
                sizes.append(resident())
                print(f"{(index + 1) / 60:.1f} hours: {len(texts)} texts, {sizes[-1] / 1e6:.2f} MB, "
                      f"{time.perf_counter() - start:.0f} s", flush=True)
    if sizes[-1] > sizes[0] + (1 << 18):  # the lists of results
        raise SystemExit(f"the memory grew from {sizes[0]} to {sizes[-1]} bytes")
    return texts, wake


def activity(network: Path, minutes: int) -> np.ndarray:
    """Returns whether there is speech in each block of the whole sound, by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
    before, state = np.zeros(64, np.float32), np.zeros((2, 1, 128), np.float32)
    found = np.empty((minutes * BLOCKS, BLOCK // PART), np.float32)
    for index in range(minutes):
        rows = found[index * BLOCKS:(index + 1) * BLOCKS].reshape(-1)
        for at, part in enumerate(minute(index).reshape(-1, PART)):
            window = np.concatenate([before, part])
            speech, state = session.run(None, {"input": window[None], "state": state})
            before, rows[at] = part[-64:], speech.item()
    return found.max(1) >= 0.5


def texts_in(speech: np.ndarray) -> list[tuple[int, int]]:
    """Returns the first block of each text and the one after its last, from the block before speech on."""
    found, end, block = [], 0, 0
    while block < len(speech):
        if not speech[block]:
            block += 1
            continue
        first = max(block - 1, end)
        silent = 0
        while block < len(speech):
            silent = 0 if speech[block] else silent + 1
            block += 1
            if silent == PAUSE or block - first == MOST:
                found.append((first, block))
                break
        end = block
    return found


def blocks(first: int, end: int) -> np.ndarray:
    """Returns a part of the sound, float32 [end - first, BLOCK]."""
    part = np.concatenate([minute(index) for index in range(first // BLOCKS, -(-end // BLOCKS))])
    return part[first % BLOCKS:][:end - first]


def transcribed(folder: Path, texts: list[tuple[int, int]]) -> list[tuple[int, str]]:
    """Returns (last block, text) of each text, by a program that reads the whole of it."""
    import tvm_megcc

    found = []
    with tvm_megcc.load(folder) as session:
        for first, end in texts:
            sound = np.zeros(30 * RATE, np.float32)
            given = blocks(first, end).reshape(-1)
            sound[:len(given)] = given
            found.append((end - 1, str(session.with_strings(session.run({"sound": sound}))["text"].item())))
    return found


def heard_anew(folder: Path, texts: list[tuple[int, int]], wake: np.ndarray) -> int:
    """Returns how many blocks of texts have another probability of the wake word than in a session that begins ten
    seconds before."""
    import tvm_megcc

    different = 0
    with tvm_megcc.load(folder) as session:
        for first, end in texts:
            session.reset()
            begin = max(first - 10 * RATE // BLOCK, 0)
            for at, block in enumerate(blocks(begin, end), begin):
                halves = [session.run({"audio": half})["probability"].item() for half in block.reshape(2, -1)]
                different += at >= first and not np.array_equal(wake[at], np.array(halves, np.float32))
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, help="a folder with the models of the description")
    parser.add_argument("--hours", type=float, default=24)
    args = parser.parse_args()
    from tvm_megcc.tools.program.program import Program

    minutes = round(60 * args.hours)
    with tempfile.TemporaryDirectory() as parent:
        folders = {name: Program.read(name, args.models).compile(Path(parent, name))
                   for name in ("transcribe-stream", "transcribe", "wake-word")}
        # A process of its own, without the memory that the compiler has freed.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            texts, wake = other.submit(streamed, folders["transcribe-stream"], minutes).result()
        places = texts_in(activity(args.models / "silero_vad_16k.onnx", minutes))
        whole = transcribed(folders["transcribe"], places)
        different = heard_anew(folders["wake-word"], places, wake)
    for at, text in texts[:len(SENTENCES)]:
        print(f"{at * BLOCK / RATE:9.1f} s  {text}")
    said = sum(index % EVERY == EVERY // 2 for index in range(minutes))
    print(f"{said} sentences were said. Texts: {len(texts)} of the stream, {len(whole)} of the whole, "
          f"{len(set(texts) ^ set(whole))} are different. Wake word: heard in {(wake > 0.5).any(1).sum()} blocks, "
          f"different in {different} blocks of texts.")
    if texts != whole or different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
