# SPDX-License-Identifier: Apache-2.0
"""`megcc lm`: a drawn model with a tokenizer from a file to text."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import subprocess

import numpy as np
import pytest

from tests.c_flags import native_compiler
from tests.compiled.runtime.test_runtime import SANITIZE, call, has_flags, need
from tests.unit.gguf.files import SHAPES, logits, weights, write
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.decoder_names import SETTINGS
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.grammar import Grammar
from tvm_megcc.tools.lm.grammars.automaton import network_of
from tvm_megcc.tools.lm.model import TOKENIZER, LanguageModel
from tvm_megcc.tools.lm.sampling import Sampling

gguf = pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
WORDS = ["<end>", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL", "ab"]
SHAPE = SHAPES["llama"].with_(layers=1, vocabulary=len(WORDS))
TENSORS = weights(SHAPE, seed=5)


def _written(path, words: list[str], template: str = "{{ messages[-1].content }}"):
    """The drawn model with a tokenizer that merges a and b."""
    kinds = gguf.GGUFValueType
    return write(path, SHAPE, TENSORS, **{
        "tokenizer.ggml.model": ("gpt2", kinds.STRING), "tokenizer.ggml.pre": ("gpt-2", kinds.STRING),
        "tokenizer.ggml.tokens": (words, kinds.ARRAY), "tokenizer.ggml.merges": (["a b"], kinds.ARRAY),
        "tokenizer.ggml.token_type": ([3] + [1] * (len(words) - 1), kinds.ARRAY),
        "tokenizer.ggml.eos_token_id": (0, kinds.UINT32),
        "tokenizer.chat_template": (template, kinds.STRING)})


def expected(prompt: str, count: int) -> str:
    """The likeliest letters behind a prompt."""
    tokens = [WORDS.index(letter) for letter in prompt]
    for _ in range(count):
        tokens.append(int(logits(SHAPE, TENSORS, tokens)[-1].argmax()))
        if tokens[-1] == 0:
            tokens.pop()
            break
    return "".join(WORDS[token] for token in tokens[len(prompt):])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    native_compiler()
    path = _written(tmp_path_factory.mktemp("lm") / "small.gguf", WORDS)
    return compile_model(path, path.parent / "small", context=24, prompt=4)


def test_text(folder, capsys):
    """A prompt longer than a run takes; streamed pieces are the text; a second text is as the first."""
    model = LanguageModel(folder)
    assert model.settings.context == 24 and model.settings.ends == (0,)
    wanted = expected("cdefgh", 10)
    for _ in range(2):
        pieces = list(model.generate("cdefgh", max_tokens=10))
        assert "".join(pieces) == wanted and len(pieces) > 1
        model.reset()
    assert "".join(model.generate("cdefgh", max_tokens=10, stop=[wanted[2:4]])) == wanted[:wanted.index(wanted[2:4])]
    assert main(["lm", "generate", str(folder), "cdefgh", "--max-tokens", "10", "--chat"]) == 0
    printed = capsys.readouterr()
    assert printed.out == wanted + "\n" and "tokens of the prompt at" in printed.err


def test_a_text_that_ends_at_once(folder, capsys):
    """Models of chats do so with a question that is not in their template."""
    prompt = next(first + second for first in WORDS[1:27] for second in WORDS[1:27] if not expected(first + second, 1))
    for options, hint in (([], True), (["--chat"], False), (["-q"], False)):
        assert main(["lm", "generate", str(folder), prompt, *options]) == 0
        printed = capsys.readouterr()
        assert printed.out == "\n" and ("--chat asks" in printed.err) == hint


def test_the_end_of_the_context(folder):
    model = LanguageModel(folder)
    assert len("".join(model.generate("c" * 20, max_tokens=100))) <= 5
    with pytest.raises(MegccError, match="tokens, but only"):
        list(model.generate("c" * 10))
    model.reset()
    with pytest.raises(MegccError, match="the prompt has 25 tokens, but only 24 of the context's 24 are left"):
        list(model.generate("c" * 25))
    with pytest.raises(MegccError, match="the prompt is empty"):
        list(model.generate(""))


def test_a_conversation(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("cde\n\nfgh\n"))
    assert main(["lm", "chat", str(folder), "--max-tokens", "3", "-q"]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == [expected("cde", 3), expected("fgh", 3)]


def test_bytes_that_are_no_utf8(folder, capsys, monkeypatch):
    """Python has them as lone surrogates, of the command line and of stdin."""
    model = LanguageModel(folder)
    text = b"c\xffd".decode("utf-8", "surrogateescape")
    assert model.encode(text) == model.encode("c\ufffdd")
    assert main(["lm", "generate", str(folder), text, "--max-tokens", "2"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))
    assert main(["lm", "chat", str(folder), "--max-tokens", "2", "-q"]) == 0
    assert capsys.readouterr().out


def test_figures(folder, capsys):
    assert main(["lm", "bench", str(folder), "--prompt", "9", "--max-tokens", "5", "--repeats", "2", "--threads", "1",
                 "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["speeds"]
    assert (row["threads"], row["prompt"], row["tokens"]) == (1, 9, 5)
    assert min(row["prefill"], row["decode"], row["load"], row["weights"], row["arena"]) > 0
    assert main(["lm", "bench", str(folder), "--prompt", "9", "--max-tokens", "5"]) == 0
    assert "1 thread: " in capsys.readouterr().out
    assert main(["lm", "bench", str(folder), "--prompt", "20", "--max-tokens", "5"]) == 1
    assert "are more than the context of 24" in capsys.readouterr().err
    assert main(["lm", "bench", str(folder), "--prompt", "9", "--max-tokens", "5", "--threads", "2"]) == 1
    assert "was compiled for 1; compile it again with --threads 2" in capsys.readouterr().err


#: An engine whose logits are all zero.
OWN = """
import numpy
import peers

class Engine(peers.Engine):
    def load(self):
        assert self.job.threads == 1 and self.job.prompt == 4

    def reset(self):
        pass

    def read(self, tokens):
        assert 0 < len(tokens) <= 4
        return numpy.zeros({count})
"""


def test_figures_of_other_programs(folder, tmp_path, capsys):
    """Engines are measured in turns; one that fails or is not there is a gap with a reason."""
    for name, count in (("own", len(WORDS)), ("other", 3), ("failing", "tokens")):
        (tmp_path / f"{name}.py").write_text(OWN.replace("{count}", str(count)))
    engines = ",".join(["llama.cpp", f"onnxruntime-genai={tmp_path}",
                        *(f"{name}={tmp_path / name}.py" for name in ("own", "other", "failing"))])
    options = ["--prompt", "9", "--max-tokens", "5", "--repeats", "2"]
    assert main(["lm", "bench", str(folder), *options, "--against", engines, "--json"]) == 0
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)["comparisons"]
    assert "megcc: threads: 1: round 2 of 2 …" in printed.err.splitlines()
    assert {"megcc", "own", "other"} <= set(row["engines"]) and "failing" in row["absent"]
    assert "llama.cpp" in row["engines"] or row["absent"]["llama.cpp"] == "not installed: pip install llama-cpp-python"
    assert "onnxruntime-genai" in row["absent"]     # no model is there
    assert (row["differences"]["own"], row["differences"]["other"]) == (1, None)
    for found in row["engines"].values():
        assert len(found["prompt"]) == len(found["generation"]) == 2
        assert 0 < found["load"] < found["first"] and min(found["prompt"] + found["generation"]) > 0
    assert main(["lm", "bench", str(folder), *options, "--against", f"own={tmp_path}/own.py", "-q"]) == 0
    assert main(["lm", "bench", str(folder), *options, "--against", f"own={tmp_path}/own.py"]) == 0
    shown = capsys.readouterr().out
    assert "prompt of 9, tokens/s" in shown and "ours / own" in shown and "differ from ours by 100.0%" in shown


@pytest.mark.parametrize("options, message", [
    (["--against", "gguf"], "there is no such engine; there are llama.cpp, onnxruntime-genai, and NAME=FILE.py"),
    (["--against", "llama.cpp=missing.gguf"], "there is no file missing.gguf; llama.cpp=FILE names the model"),
    (["--against", "onnxruntime-genai"], ".genai; onnxruntime-genai=FOLDER names the model"),
    (["--against", ","], "--against names no engine; there are llama.cpp"),
    (["--python", "python3"], "it needs --against"),
    (["--against", "llama.cpp", "--prompt", "20"], "are more than the context of 24"),
    (["--against", "llama.cpp", "--python", "own=python3"], "'own' is not one of the engines")])
def test_other_programs_that_are_refused(folder, options, message, capsys):
    assert main(["lm", "bench", str(folder), "--prompt", "9", "--max-tokens", "5", *options]) == 1
    assert message in capsys.readouterr().err


def test_grammars(folder, tmp_path, capsys):
    """A text is complete at the end of the grammar; sampled texts match too; a second one is as the first."""
    pytest.importorskip("llguidance")
    model, grammar = LanguageModel(folder), Grammar.gbnf('root ::= ("h" | "ge") [b-d]{3}')
    texts = set()
    for seed in (0, 1, 2, 2):
        model.reset()
        sampling = Sampling(temperature=5.0, seed=seed)
        texts.add("".join(model.generate("cdefgh", max_tokens=10, sampling=sampling, grammar=grammar)))
    assert 1 < len(texts) < 4 and all(re.fullmatch("(h|ge)[b-d]{3}", text) for text in texts)
    (tmp_path / "text.gbnf").write_text('root ::= "hc"')
    (tmp_path / "schema.json").write_text('{"not": {}}')
    command = ["lm", "generate", str(folder), "cdefgh"]
    assert main([*command, "--grammar", str(tmp_path / "text.gbnf")]) == 0
    assert capsys.readouterr().out == "hc\n"
    assert main([*command, "--json-schema", str(tmp_path / "schema.json")]) == 1
    assert 'Unimplemented keys: ["not"]' in capsys.readouterr().err
    assert main([*command, "--json-schema", "a", "--grammar", "b"]) == 1


def test_what_is_no_language_model(folder, tmp_path, capsys):
    assert main(["lm", "generate", str(tmp_path), "a"]) == 1
    assert "is no language model: 'megcc lm compile MODEL.gguf" in capsys.readouterr().err
    model = folder.parent / "small.gguf"
    assert main(["lm", "generate", str(model), "a"]) == 1
    assert f"{model} is not compiled yet: 'megcc lm compile {model} -o small_megcc' makes" in capsys.readouterr().err
    for name, message in (("model.onnx", "has no tokenizer: tokenizer.json"), ("model.txt", "is no GGUF file (.gguf)")):
        (tmp_path / name).write_bytes(b"ONNX")
        assert main(["lm", "compile", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    copy = shutil.copytree(folder, tmp_path / "copy")
    for name, text in ((SETTINGS, "{}"), (SETTINGS, "["), (TOKENIZER, "{}"),
                       *((SETTINGS, json.dumps({"context": context, "prompt": 1, "bos": 0, "ends": [],
                                                "chat_template": "", "sinks": sinks}))
                         for context, sinks in ((0, 0), (24, -1), (24, 24)))):
        (copy / name).write_text(text)
        assert main(["lm", "chat", str(copy)]) == 1
        assert f"{name} is damaged" in capsys.readouterr().err
        (copy / name).write_bytes((folder / name).read_bytes())
    (copy / TOKENIZER).unlink()
    assert main(["lm", "chat", str(copy)]) == 1
    assert f"{TOKENIZER} is missing" in capsys.readouterr().err


CHAT = ("{% for m in messages %}{{ {'system': 'D', 'user': 'A', 'assistant': 'B'}[m.role] + m.content }}"
        "{% if m.role == 'assistant' %}C{% endif %}{% endfor %}{% if add_generation_prompt %}B{% endif %}")
#: Grammars of the program in C, by their names.
IN_C = {"letters": 'root ::= ("h" | "ge") [b-d]{3}', "nested": 'root ::= "a" root "b" | "ab" | "c"',
        "none": 'root ::= "@"'}
#: Compiler, target and what runs the program.
MACHINES = {"native": ("cc", "native", []), "portable": ("cc", "c", []),
            "arm64": ("aarch64-linux-gnu-gcc", "arm64", ["qemu-aarch64"])}


@pytest.fixture(scope="module", params=MACHINES)
def program(request, tmp_path_factory):
    """A function that runs the program which `make` builds in the folder; the folder; whether Python runs it too."""
    compiler, target, emulator = MACHINES[request.param]
    for tool in (compiler, "make", *emulator):
        need(tool)
    path = _written(tmp_path_factory.mktemp("chat") / "small.gguf", WORDS, CHAT)
    made = compile_model(path, path.parent / "small", target, context=24, prompt=4,
                         grammars={name: network_of(text) for name, text in IN_C.items()})
    sanitize = " ".join(SANITIZE) if request.param == "portable" and has_flags(*SANITIZE) else ""
    call(["make", f"CC={compiler}", f"CFLAGS=-O1 {sanitize}", f"LDFLAGS={'-static' if emulator else sanitize}"],
         cwd=made)

    def run(*arguments: str, lines: str = "", status: int = 0) -> str:
        """What it prints on stdout, or on stderr if it fails."""
        found = subprocess.run([*emulator, "build/make/small_chat", *arguments], input=lines, capture_output=True,
                               text=True, cwd=made, check=False)
        assert found.returncode == status, found.stderr
        return found.stderr if status else found.stdout

    return run, made, not emulator


def test_a_program_in_c(program):
    run, _, _ = program
    for prompt in ("cdefgh", "aK", "c", "c" * 21):
        assert run("-n", "10", "-g", prompt) == expected(prompt, min(10, 25 - len(prompt))) + "\n"
    assert "wrong argument: context (0), needed 25" in run("-g", "c" * 25, status=1)
    assert "wrong argument: tokens" in run("-g", "", status=1)
    for option in ("-tinf", "-tnan", "-t-1", "-p1.5", "-rinf", "-r-1"):
        assert "wrong argument: options" in run(option[:2], option[2:], "-g", "c", status=1)
    assert "[-m FILE]" in run("-x", status=2) and "file" in run("-m", "no.megcc", "a", status=1)


def test_a_conversation_in_c(program):
    """Questions, answers and the strings around them are one text; the context ends it."""
    run, _, _ = program
    answer = expected("AkB", 3)
    assert run("-n", "3", "k") == run("-n", "3", lines="k\n") == answer + "\n"
    again = expected(f"AkB{answer}CAefB", 3)
    assert answer and again and run("-n", "3", lines="k\n\nef\n") == f"{answer}\n{again}\n"
    assert run("-n", "3", "-y", "g", "k") == expected("DgAkB", 3) + "\n"


def test_drawn_text_in_c(program):
    run, made, runs_here = program
    found = [run("-n", "12", "-t", "1.2", "-k", "30", "-p", "0.97", "-r", "1.3", "-s", str(seed), "-g", "cdef")
             for seed in range(8)]
    assert len(set(found)) > 4
    if runs_here:
        model = LanguageModel(made)
        for seed, text in enumerate(found):
            model.reset()
            assert "".join(model.generate("cdef", 12, Sampling(1.2, 30, 0.97, 0.0, 1.3, seed))) + "\n" == text


def test_grammars_in_c(program):
    """Greedy and sampled texts are those of Python, and complete."""
    run, made, runs_here = program
    found = {(name, seed): run("-n", "12", "-t", str(seed), "-s", str(seed), "-G", name, "-g", "cdefgh")
             for name in ("letters", "nested") for seed in range(4)}
    assert all(re.fullmatch("(h|ge)[b-d]{3}\n", text) for (name, _), text in found.items() if name == "letters")
    assert len(set(found.values())) > 4
    assert "there is no grammar x; there are: letters, nested, none" in run("-G", "x", "c", status=2)
    assert "memory" in run("-G", "none", "c", status=1)
    assert "-G GRAMMAR: letters or nested or none" in run("-x", status=2)
    if runs_here:
        pytest.importorskip("llguidance")
        model = LanguageModel(made)
        for (name, seed), text in found.items():
            model.reset()
            assert "".join(model.generate("cdefgh", 12, Sampling(float(seed), seed=seed),
                                          grammar=Grammar.gbnf(IN_C[name]))) + "\n" == text


def test_grammars_of_the_command(tmp_path, capsys):
    file = _written(tmp_path / "small.gguf", WORDS)
    (tmp_path / "a-b.gbnf").write_text('root ::= "x"')
    (tmp_path / "schema.json").write_text('{"type": "integer"}')
    command = ["lm", "compile", str(file), "--context", "24", "--target", "c", "-q", "-o", str(tmp_path / "made")]
    assert main([*command, "--grammar", str(tmp_path / "a-b.gbnf"), "--json-schema", f"n={tmp_path}/schema.json"]) == 0
    text = (tmp_path / "made" / "small_grammars.c").read_text()
    assert "const megcc_grammar small_grammar_a_b = {" in text and "const megcc_grammar small_grammar_n = {" in text
    assert "extern const megcc_grammar small_grammar_a_b;" in (tmp_path / "made" / "small_lm.h").read_text()
    assert main([*command, "--grammar", f"n={tmp_path}/a-b.gbnf", "--json-schema", f"n={tmp_path}/schema.json"]) == 1
    assert "two grammars have the name 'n'" in capsys.readouterr().err
    (tmp_path / "schema.json").write_text('{"not": {}}')
    assert main([*command, "--json-schema", f"{tmp_path}/schema.json"]) == 1
    assert "schema.json: the keyword 'not' is not supported" in capsys.readouterr().err
    assert main([*command, "--grammar", f"{tmp_path}/none.gbnf"]) == 1


def test_saved_beginnings(folder):
    """A text goes on as if it had been read; what is damaged or of another model is refused."""
    model, other = LanguageModel(folder), LanguageModel(folder)
    wanted = expected("cdefghkefg", 10)
    model.read(model.encode("cdefgh"))
    saved = model.save()
    list(other.generate("kkk", 3))  # what was there before is forgotten
    for _ in range(2):
        other.load(saved)
        assert other.tokens == model.tokens and "".join(other.generate("kefg", 10)) == wanted
    assert "".join(model.generate("kefg", 10)) == wanted
    model.reset()
    empty = model.save()
    with np.load(io.BytesIO(empty)) as nothing, np.load(io.BytesIO(saved)) as six:
        assert [nothing[name].shape[2] for name in nothing.files if nothing[name].ndim == 4] == [0, 0]
        assert [six[name].shape[2] for name in six.files if six[name].ndim == 4] == [6, 6]
    other.load(empty)
    assert "".join(other.generate("cdefgh", 10)) == expected("cdefgh", 10)
    draw, refused = np.random.default_rng(1), 0
    for _ in range(100):
        changed = bytearray(saved)
        changed[int(draw.integers(len(saved)))] ^= 1 << int(draw.integers(8))
        try:
            other.load(bytes(changed))
        except MegccError:
            refused += 1
    assert refused > 50
    for data in (b"", b"PK", saved[:-30], pickle.dumps([1])):
        with pytest.raises(MegccError, match="damaged"):
            other.load(data)
    with np.load(io.BytesIO(saved)) as found:
        arrays = dict(found)
    for change in ({"read tokens": np.array([1000])}, {"read tokens": np.zeros(25, np.int64)},
                   {"read tokens": np.zeros(5, np.int64)}, {next(iter(arrays)): np.zeros(3)},
                   {next(name for name in arrays if name != "read tokens"): np.zeros(3)}):
        written = io.BytesIO()
        np.savez(written, **arrays | change)
        with pytest.raises(MegccError, match="saved state"):
            other.load(written.getvalue())


def test_log_probabilities(program, capsys):
    """Those of the network's logits, whatever the sampler makes of them; in C the same numbers."""
    run, made, runs_here = program
    drawn = run("-n", "6", "-t", "1.2", "-r", "1.3", "-s", "3", "-l", "-g", "cdef")
    rows = [(int(token), float(value)) for token, value in map(str.split, drawn.splitlines()[:-1])]
    tokens = [WORDS.index(letter) for letter in "cdef"]
    for token, found in rows:
        row = logits(SHAPE, TENSORS, tokens)[-1].astype(np.float64)
        assert abs(found - (row[token] - row.max() - np.log(np.exp(row - row.max()).sum()))) < 1e-3
        tokens.append(token)
    assert len(rows) == 6 and len({value for _, value in rows}) == 6
    if runs_here:
        python: list[tuple[int, float]] = []
        text = "".join(LanguageModel(made).generate("cdef", 6, Sampling(1.2, repetition_penalty=1.3, seed=3),
                                                    log_probabilities=python))
        assert [(token, np.float32(value)) for token, value in rows] == python
        arguments = ["--temperature", "1.2", "--repetition-penalty", "1.3", "--seed", "3", "--max-tokens", "6"]
        assert main(["lm", "generate", str(made), "cdef", *arguments, "--log-probabilities"]) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(each["token"], each["log_probability"]) for each in shown] == python
        assert "".join(each["text"] for each in shown) == text


def test_the_tokenizer_is_not_lost(folder, tmp_path, capsys):
    copy, model = tmp_path / "small_megcc", folder.parent / "small.gguf"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("build"))
    plain = ["compile", str(model), "--target", "c", "--dim", "sequence_length=1", "-q", "-o", str(copy)]
    assert main(plain) == 1
    said = capsys.readouterr().err
    assert f"does not write its {SETTINGS}, {TOKENIZER}; choose another --output" in said and "--force" in said
    assert (copy / SETTINGS).exists()
    assert main([*plain, "--force"]) == 0 and not (copy / SETTINGS).exists()
    again = ["lm", "compile", str(model), "--target", "c", "--context", "24", "-q", "-o", str(copy)]
    (copy / "notes.txt").write_text("mine")
    assert main(again) == 1 and "'notes.txt' was added" in capsys.readouterr().err
    assert main([*again, "--force"]) == 0 and (copy / SETTINGS).exists()


def test_refused_options(tmp_path, capsys):
    file = _written(tmp_path / "small.gguf", ["<end>", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM"])
    assert main(["lm", "compile", str(file)]) == 1
    assert "tokenizer.ggml.merges has pairs whose parts or whole are not tokens" in capsys.readouterr().err
    assert main(["lm", "compile", str(file), "--context", "64", "--prompt", "70"]) == 1
    assert "--prompt 70 is no number of tokens from 1 to 64" in capsys.readouterr().err
