# SPDX-License-Identifier: Apache-2.0
"""Several sequences in C: texts, logits, copies and saved bytes are those of Python's `Sequences`."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from tests.c_flags import native_compiler
from tests.compiled.runtime.test_runtime import SANITIZE, call, has_flags, need
from tests.compiled.tools.test_language_model import CHAT, WORDS, _written, expected
from tests.unit.gguf.files import SHAPES, weights, write
from tvm_megcc.options import CompileOptions
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.grammars.automaton import network_of
from tvm_megcc.tools.lm.model import LanguageModel, Sequences
from tvm_megcc.tools.lm.sampling import Sampling

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow

PROMPTS = ["cdefghi", "bca", "kk"]
#: Reads commands: of one sequence for a model with macro ONE, else of several. `s` is always the number of a sequence.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ONE
#include "small_lm.h"
#define SMALL_LM_SEQUENCES 1
static small_lm all;
#else
#include "small_sequences.h"
static small_sequences all;
#endif
static unsigned char block[SMALL_MEMORY_BYTES + SMALL_ALIGN];
static uint32_t tokens[SMALL_LM_SEQUENCES][64], counts[SMALL_LM_SEQUENCES];
static unsigned char saved[1 << 20];
static size_t saved_bytes;

static void show(int32_t status, const megcc_error *error)
{
    char text[200];
    printf("%s\n", status > MEGCC_MORE ? megcc_error_text(error, text, sizeof text) : status ? "more" : "ok");
}

static int32_t step(float **logits, megcc_error *error)
{
#ifdef ONE
    return small_step(&all, tokens[0], counts[0], logits, error);
#else
    const uint32_t *rows[SMALL_LM_SEQUENCES];
    for (int s = 0; s < SMALL_LM_SEQUENCES; s++) {
        rows[s] = tokens[s];
    }
    return small_step(&all, rows, counts, logits, error);
#endif
}

#ifdef ONE
static size_t save(uint32_t s, size_t size) { (void)s; return small_save(&all, saved, size); }
static int32_t load(uint32_t s, size_t size, megcc_error *e) { (void)s; return small_load(&all, saved, size, e); }
static int32_t text(char command, int s, const char *line, megcc_error *e)
{
    (void)command, (void)s, (void)line, (void)e;
    return 0;
}
#else
static size_t save(uint32_t s, size_t size) { return small_save(&all, s, saved, size); }
static int32_t load(uint32_t s, size_t size, megcc_error *e) { return small_load(&all, s, saved, size, e); }
static int32_t text(char command, int s, const char *line, megcc_error *e)
{
    static megcc_lm_options options = { .max_tokens = 6 };
    int other = 0;
    switch (command) {
    case 'c': sscanf(line, "%d", &other); return small_copy(&all, (uint32_t)s, (uint32_t)other, e);
    case 'z': return small_reset(&all, (uint32_t)s, e);
    case 'e': small_stop(&all, (uint32_t)s); return 0;
    case 't': options.grammar = NULL; return small_start(&all, (uint32_t)s, line, &options, e);
    case 'a': options.grammar = NULL; return small_start_answer(&all, (uint32_t)s, line, &options, e);
    case 'g': options.grammar = &small_grammar_letters; return small_start(&all, (uint32_t)s, line, &options, e);
    case 'h': options.grammar = &small_grammar_none; return small_start(&all, (uint32_t)s, line, &options, e);
    default: break;
    }
    const int32_t status = small_next(&all, e);
    for (uint32_t i = 0; i < SMALL_LM_SEQUENCES; i++) {
        const char *piece;
        size_t size;
        const int32_t goes_on = small_piece(&all, i, &piece, &size);
        printf("%.*s%s|", (int)size, piece, goes_on ? "+" : "");
    }
    const char *none;
    size_t none_size; /* of a number of no sequence */
    return small_piece(&all, 1u << 30, &none, &none_size) || none_size ? MEGCC_E_ARGUMENT : status;
}
#endif

int main(int argc, char **argv)
{
    void *memory = block + SMALL_ALIGN - (uintptr_t)block % SMALL_ALIGN;
    static char line[1 << 12];
    megcc_model model;
    megcc_session *session;
    megcc_error error = { 0 };
    megcc_file file;
    if (argc < 2 || megcc_model_load_file(&model, &file, &small_module, argv[1], NULL, &error)
        || megcc_session_open(&session, &model, memory, SMALL_MEMORY_BYTES, NULL, &error)) {
        return 1;
    }
    small_open(&all, &model, session);
    while (fgets(line, sizeof line, stdin)) {
        int s = 0, used = 0;
        float *logits;
        line[strcspn(line, "\n")] = '\0';
        sscanf(line + 1, "%d %n", &s, &used);
        char *rest = line + 1 + used;
        switch (line[0]) {
        case 'r': /* tokens of the next step */
            counts[s] = 0;
            for (char *token = strtok(rest, " "); token; token = strtok(NULL, " ")) {
                tokens[s][counts[s]++] = (uint32_t)atoi(token);
            }
            break;
        case 'x': {
            const int32_t status = step(&logits, &error);
            for (int i = 0; i < SMALL_LM_SEQUENCES && !status; i++) {
                for (int k = 0; counts[i] && k < SMALL_LM_VOCABULARY; k++) {
                    printf("%.9g ", (double)logits[i * SMALL_LM_VOCABULARY + k]);
                }
            }
            show(status, &error);
            memset(counts, 0, sizeof counts);
            break;
        }
        case 'w': saved_bytes = save((uint32_t)s, sizeof saved); printf("%d\n", (int)saved_bytes); break;
        case 'm': saved[s] = (unsigned char)(saved[s] ^ 0x55); break;
        case 'l': show(load((uint32_t)s, saved_bytes - (size_t)atoi(rest), &error), &error); break;
        default: show(text(line[0], s, rest, &error), &error);
        }
    }
    megcc_session_close(session);
    megcc_file_close(&file);
    return 0;
}
"""
#: Compiler and target; portable code runs with sanitizers.
MACHINES = {"portable": ("cc", "c"), "arm64": ("aarch64-linux-gnu-gcc", "arm64")}


def driver(folder, compiler: str, sanitize: bool, *flags: str):
    """A function that runs the commands of DRIVER in a folder, and returns the lines that it prints."""
    own = SANITIZE if sanitize and has_flags(*SANITIZE) else ()
    emulator = [need("qemu-aarch64")] if compiler.startswith("aarch64") else []
    call(["make", f"CC={compiler}", f"CFLAGS=-O0 {' '.join(own)}",
          f"LDFLAGS={'-static' if emulator else ' '.join(own)}"], cwd=folder)
    place = folder.parent   # sources in the folder would be built by Python too
    (place / "driver.c").write_text(DRIVER)
    parts = [folder / "build" / "make" / f"small_{part}.o" for part in ("lm", "tokenizer", "grammars")]
    static = ["-static"] if emulator else []
    call([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", *own, *flags, *static, f"-I{folder}",
          f"-I{folder / 'runtime' / 'include'}", place / "driver.c", *(part for part in parts if part.exists()),
          folder / "build" / "make" / "libsmall.a", "-lm", "-o", place / "driver"])

    def run(*commands: str) -> list[str]:
        found = subprocess.run([*emulator, place / "driver", folder / "small.megcc"], capture_output=True, text=True,
                               input="".join(f"{command}\n" for command in commands), check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout.splitlines()

    return run


def numbers(line: str, rows: int) -> np.ndarray:
    """Logits that DRIVER has printed."""
    assert line.endswith(" ok")
    return np.array(line.split()[:-1], np.float32).reshape(rows, -1)


@pytest.fixture(scope="module", params=MACHINES)
def made(request, tmp_path_factory):
    """The folder of three sequences, what runs commands in it, and whether Python runs it too."""
    compiler, target = MACHINES[request.param]
    need(compiler)
    need("make")
    path = _written(tmp_path_factory.mktemp("several") / "small.gguf", WORDS, CHAT)
    grammars = {"letters": network_of('root ::= ("h" | "ge") [b-d]{3}'), "none": network_of('root ::= "@"')}
    folder = compile_model(path, path.parent / "small", target, context=24, prompt=4, sequences=3, grammars=grammars)
    return folder, driver(folder, compiler, request.param == "portable"), request.param != "arm64"


def test_the_program(made):
    """Texts are those of one sequence and those of Python, greedy and sampled; more lines than sequences."""
    folder, _, runs_here = made
    program = [*(["qemu-aarch64"] if not runs_here else []), folder / "build" / "make" / "small_texts", "-m",
               folder / "small.megcc"]
    wanted = "".join(f"{expected(prompt, 5)}\n" for prompt in [*PROMPTS, "ef"])
    assert call([*program, "-n", "5", *PROMPTS, "ef"]) == wanted
    assert call([*program, "-n", "5"], input="".join(f"{prompt}\n" for prompt in [*PROMPTS, "ef"])) == wanted
    if runs_here:
        sampled = Sequences(folder).generate(PROMPTS, 8, Sampling(1.2, 30, 0.97, 0.0, 1.3, 7))
        options = ["-n", "8", "-t", "1.2", "-k", "30", "-p", "0.97", "-r", "1.3", "-s", "7"]
        assert call([*program, *options, *PROMPTS]) == "".join(f"{text}\n" for text in sampled)


def test_steps_have_the_logits_of_python(made):
    """Prompts of one to three runs together; copies, saved bytes and a reset."""
    folder, run, runs_here = made
    found = run("r 0 3 4 5 6 7 8 9 10 11", "r 2 9", "x", "c 0 1", "w 0", "z 0 ", "l 2 0",
                "r 0 5", "r 1 5", "r 2 5", "x", "z 0 ", "r 0 5", "x")
    first, after, anew = numbers(found[0], 2), numbers(found[5], 3), numbers(found[7], 1)
    assert found[1] == found[3] == found[4] == found[6] == "ok" and 0 < int(found[2]) < 24 * 4 * 64 * 2
    np.testing.assert_array_equal(after[1], after[2])
    np.testing.assert_array_equal(after[0], anew[0])
    if runs_here:
        sequences = Sequences(folder)
        rows = sequences.read({0: list(range(3, 12)), 2: [9]})
        np.testing.assert_array_equal(first, [rows[0], rows[2]])
        sequences.copy(0, 1)
        sequences.load(2, sequences.save(0))
        sequences.reset(0)
        rows = sequences.read({0: [5], 1: [5], 2: [5]})
        np.testing.assert_array_equal(after, [rows[0], rows[1], rows[2]])


def pieces(lines: list[str], sequence: int) -> str:
    return "".join(line.split("|")[sequence].rstrip("+") for line in lines if "|" in line)


def test_texts_that_begin_while_others_go_on(made):
    """One is stopped, one follows its grammar, and one answers in the model's chat template."""
    _, run, _ = made
    found = run(f"t 0 {PROMPTS[0]}", "n", "n", f"t 1 {PROMPTS[1]}", "a 2 k", *["n"] * 4, "e 0 ", *["n"] * 5)
    whole = expected(PROMPTS[0], 6)
    assert found[:2] == ["ok", "+|||more"] and found[-1].endswith("ok")
    assert whole.startswith(pieces(found, 0)) and len(whole) > len(pieces(found, 0)) == 5
    assert pieces(found, 1) == expected(PROMPTS[1], 6) and pieces(found, 2) == expected("AkB", 6)
    found = run("g 1 cdefgh", f"t 2 {PROMPTS[2]}", *["n"] * 9)
    assert pieces(found, 1)[-3:].strip("bcd") == "" and pieces(found, 1)[:-3] in ("h", "ge")
    assert pieces(found, 2) == expected(PROMPTS[2], 6)
    found = run("h 0 c", f"t 2 {PROMPTS[2]}", *["n"] * 9)
    assert "grammar (0)" in found[2] and pieces(found, 2) == expected(PROMPTS[2], 6)


def test_what_is_refused(made):
    _, run, _ = made
    assert "sequence (3)" in run("z 3 ")[0] and "sequence (7)" in run("c 7 0")[0] and "sequence (9)" in run("t 9 a")[0]
    assert "context (0), needed 26" in run("r 1 " + "3 " * 26, "x")[0]
    assert "tokens" in run("r 1 40", "x")[0] and "tokens" in run("x")[0] and "tokens" in run("t 0 ")[0]
    assert run("r 0 3", "r 1 40", "x", "w 0", "w 2")[1:] == [run("w 0")[0]] * 2     # nothing was read


def test_damaged_bytes(made):
    """A changed length, container or size is refused, and nothing changes; other bytes are keys, values and tokens."""
    _, run, _ = made
    kept = ["r 0 3 4 5", "x", "w 0"]
    for damage in ("m 0", "m 8", "m 12", "m 16", "m 23"):
        found = run(*kept, damage, "l 1 0", "r 0 7", "r 1 3 4 5 7", "x")
        assert "wrong argument: saved" in found[2], damage
        rows = numbers(found[3], 2)
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-5)
    assert all("saved" in run(*kept, f"l 1 {missing}")[2] for missing in (1, 8, 30))
    assert run(*kept, "m 24", "m 100", "l 1 0", "r 1 7", "x")[2] == "ok"


@pytest.mark.parametrize("shape, options", [("llama", {"sinks": 4}), ("phi3", {"cache": "int8"})])
def test_saved_bytes_of_one_sequence(shape, options, tmp_path):
    """Also after the end of the context, with attention sinks, and in ring buffers."""
    native_compiler()
    need("make")
    context = 300 if shape == "phi3" else 24
    path = _written(tmp_path / "small.gguf", WORDS) if shape == "llama" else _with_window(tmp_path)
    folder = compile_model(path, tmp_path / "small", context=context, prompt=4, options=CompileOptions(**options))
    run, begin = driver(folder, "cc", False, "-DONE"), [f"r 0 {' '.join(str(3 + k % 30) for k in range(20))}", "x"]
    begin *= 2 if "sinks" in options else 1
    again = ["r 0 7 8", "x"]
    found = run(*begin, "w 0", *again, "r 0 9", "x", "l 0 0", *again)
    assert found[-2] == "ok" and found[-1] == found[-4] and len(found[-1]) > 100
    model = LanguageModel(folder)
    for _ in range(len(begin) // 2):
        model.read([3 + k % 30 for k in range(20)])
    np.testing.assert_array_equal(numbers(found[-1], 1)[0], model.read([7, 8]))


def _with_window(folder):
    """A drawn model with a window of 5 tokens."""
    import gguf

    kinds, shape = gguf.GGUFValueType, SHAPES["phi3"].with_(layers=1, vocabulary=len(WORDS), window=5, context=300)
    return write(folder / "small.gguf", shape, weights(shape, seed=5), **{
        "tokenizer.ggml.model": ("gpt2", kinds.STRING), "tokenizer.ggml.pre": ("gpt-2", kinds.STRING),
        "tokenizer.ggml.tokens": (WORDS, kinds.ARRAY), "tokenizer.ggml.merges": (["a b"], kinds.ARRAY),
        "tokenizer.ggml.token_type": ([3] + [1] * (len(WORDS) - 1), kinds.ARRAY)})


def test_a_second_text_follows_the_whole_first_one(tmp_path):
    """The last token of a text is read too, as `LanguageModel.generate` does."""
    native_compiler()
    path = _written(tmp_path / "small.gguf", WORDS)
    folder = compile_model(path, tmp_path / "several", context=24, prompt=4, sequences=2)
    sequences = Sequences(folder)
    (text,) = sequences.generate(["cde"], max_tokens=3)
    assert sequences.generate(["f"], max_tokens=2) == [expected(f"cde{text}f", 2)]
