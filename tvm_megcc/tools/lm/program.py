# SPDX-License-Identifier: Apache-2.0
"""Writes the C code of a language model that is not its network: tokenizer, description, and a program that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypedDict

from ... import paths
from ...codegen.c_source.render import environment
from ...codegen.compiled import Compiled
from ...errors import MegccError
from ...foreign import c_name
from ...frontends.decoder_names import LOGITS, NEW, TOKENS
from ...version import VERSION
from .chat import rendered
from .grammars.automaton import Network
from .grammars.tables import tables as grammar_tables
from .settings import Settings
from .tokenizers.tables import tables
from .tokenizers.tokenizer import Vocabulary

#: The default capacity of the tokenizer's work memory, in bytes of the longest word that a text is split into.
_WORD_BYTES = 512
#: The default capacity of the buffer for a text: bytes for each token of the context, about as many as a token of
#: English text has, and bytes for the strings of the chat template around it.
_BYTES_PER_TOKEN, _TEMPLATE_BYTES = 4, 1024


@dataclass(frozen=True)
class Chat:
    """The strings that a chat template puts between messages, as in `megcc_chat` of megcc_lm.h.

    first: before the first question.
    system: before a system message; None if the template takes none.
    after_system: between a system message and the first question; None if the template takes none.
    answer: between a question and its answer.
    next: between an answer and the next question; None if the template takes one question only.
    """

    first: str
    system: str | None
    after_system: str | None
    answer: str
    next: str | None


class LanguageModelVariables(TypedDict):
    """The context of language_model/lm.h.j2, lm.c.j2 and main.c.j2, which `sources` renders; for several sequences, of
    sequences.h.j2, lm.c.j2 and sequences_main.c.j2.

    version: version of tvm_megcc, such as "1.4.0".
    name: the model's, a C identifier: the prefix of its functions.
    macro: the name in capitals, the prefix of its macros.
    vocabulary: number of tokens that the tokenizer knows.
    context: the most tokens of a conversation, prompts and answers; of a prompt, if a conversation has no end.
    endless: whether a conversation may have more tokens than the context.
    prompt: the most tokens of a run of the network.
    pieces: whether the tokenizer merges a whole text as one word (SentencePiece); else it splits a text into words.
    normalizes: whether the tokenizer normalizes a text before it splits it.
    word: capacity of the tokenizer's work memory, in bytes of a word.
    text: capacity of the text buffer, in bytes.
    ends: the tokens that end an answer.
    begin: the token before each text as C; "MEGCC_NO_TOKEN": none.
    chat: what the chat format puts between messages, the fields of `Chat` in their order: each a C string literal, or
        "NULL" where the format has none; None: the model does not chat.
    keeps_conversation: whether an answer may be followed by another question.
    sequences: number of sequences, whose new tokens one run has.
    input_ids: index of the network's input with the tokens.
    new_tokens: index of the network's input with the numbers of new tokens; 0 for one sequence.
    logits: index of the network's output with the logits of the next token.
    states: for each input of the network its value of the enum with MEGCC_LM_NO_STATE in megcc_lm.h.
    grammars: names of the grammars that a text can be restricted to, C identifiers.
    """

    version: str
    name: str
    macro: str
    vocabulary: int
    context: int
    endless: bool
    prompt: int
    pieces: bool
    normalizes: bool
    word: int
    text: int
    ends: Sequence[int]
    begin: int | str
    chat: Sequence[str] | None
    keeps_conversation: bool
    sequences: int
    input_ids: int
    new_tokens: int
    logits: int
    states: Sequence[str]
    grammars: Sequence[str]


def chat_of(settings: Settings) -> Chat | None:
    """Returns the strings that the chat template of a model puts between messages; None if it has none, or does more
    than that, such as leaving out parts of earlier answers."""
    system, question, answer, again = "Be brief.", "Is it late?", "It is noon.", "And now?"

    def parts(contents: Sequence[str], roles: Sequence[str]) -> list[str] | None:
        """Returns the strings before, between and after the messages; None if a message is not in the text once."""
        try:
            rest = rendered(settings, [{"role": role, "content": text}
                                       for role, text in zip(roles, contents, strict=True)])
        except MegccError:
            return None
        found = []
        for text in contents:
            if rest.count(text) != 1:
                return None
            before, rest = rest.split(text)
            found.append(before)
        return [*found, rest]

    if not settings.chat_template or (plain := parts([question], ["user"])) is None:
        return None
    with_system = parts([system, question], ["system", "user"])
    if with_system and with_system[2] != plain[1]:  # `Chat` has one string after a question
        with_system = None
    several = parts([question, answer, again], ["user", "assistant", "user"])
    # `Chat` has one string before the first question, and one after each question: the templates may not print others
    # in a longer conversation, and the same ones after a system message.
    if several and ([several[0], several[1], several[3]] != [plain[0], plain[1], plain[1]]):
        several = None
    if with_system and several:
        roles = ["system", "user", "assistant", "user"]
        if parts([system, question, answer, again], roles) != [*with_system[:2], *several[1:]]:
            several = None
    return Chat(first=plain[0], system=with_system[0] if with_system else None,
                after_system=with_system[1] if with_system else None, answer=plain[1],
                next=several[2] if several else None)


def sources(artifact: Compiled, vocabulary: Vocabulary, settings: Settings,
            grammars: Mapping[str, Network]) -> dict[str, bytes]:
    """Returns the files of the folder: NAME_lm.h (NAME_sequences.h for several), NAME_lm.c, NAME_tokenizer.c,
    NAME_grammars.c if there are grammars, main.c, and those of the runtime."""
    name, chat = artifact.name, chat_of(settings)
    ports = {direction: [row["name"] for row in artifact.manifest[direction]] for direction in ("inputs", "outputs")}
    text_bytes = _BYTES_PER_TOKEN * settings.context + _TEMPLATE_BYTES
    # The text buffer also holds the characters of one token, at most MEGCC_DECODER_ROOM (megcc_tokenizer.h), and the
    # beginning of a string that stops an answer.
    longest_token = max(len(token.encode()) for token in vocabulary.tokens)
    context: LanguageModelVariables = {
        "version": VERSION, "name": name, "macro": c_name(name).upper(), "vocabulary": len(vocabulary.tokens),
        "context": settings.context, "endless": bool(settings.sinks), "prompt": settings.prompt,
        "pieces": vocabulary.pieces,
        "normalizes": bool(vocabulary.form),
        "word": text_bytes if vocabulary.pieces or vocabulary.form else _WORD_BYTES,
        "text": max(text_bytes, 4 * longest_token),
        "ends": settings.ends,
        "begin": "MEGCC_NO_TOKEN" if settings.bos < 0 else settings.bos,
        "chat": chat and ["NULL" if part is None else _literal(part) for part in astuple(chat)],
        "keeps_conversation": bool(chat and chat.next), "sequences": settings.sequences,
        "input_ids": ports["inputs"].index(TOKENS),
        "new_tokens": ports["inputs"].index(NEW) if settings.sequences > 1 else 0,
        "logits": ports["outputs"].index(LOGITS), "states": _states(artifact.manifest, settings.context),
        "grammars": list(grammars)}
    files = ((f"{name}_lm.h", "lm.h"), ("main.c", "main.c")) if settings.sequences == 1 else (
        (f"{name}_sequences.h", "sequences.h"), ("main.c", "sequences_main.c"))
    written = {file: environment().get_template(f"language_model/{template}.j2").render(context)
               for file, template in (*files, (f"{name}_lm.c", "lm.c"))}
    written[f"{name}_tokenizer.c"] = tables(name, vocabulary)
    if grammars:
        written[f"{name}_grammars.c"] = grammar_tables(name, vocabulary, settings.ends, grammars)
    runtime = _runtime(vocabulary, bool(grammars), settings.sequences > 1)
    return {file: text.encode() for file, text in written.items()} | runtime


def _states(manifest: Mapping[str, Any], context: int) -> list[str]:
    """Returns for each input of a network its enumerator of megcc_lm.h."""
    states, counters = {row["input"] for row in manifest["states"]}, manifest.get("counters", ())
    return ["MEGCC_LM_NO_STATE" if row["name"] not in states else
            "MEGCC_LM_COUNTER" if row["name"] in counters else
            "MEGCC_LM_ROWS" if len(row["shape"]) == 4 and row["shape"][2] == context else "MEGCC_LM_WHOLE"
            for row in manifest["inputs"]]


def _runtime(vocabulary: Vocabulary, has_grammars: bool, several: bool) -> dict[str, bytes]:
    """Returns the sources of c_runtime/lm that a model with this tokenizer needs. several: whether it has several
    sequences."""
    stems = {"megcc_lm", "megcc_sampler", "megcc_saved", "megcc_strings", "megcc_text", "megcc_tokenizer"}
    if several:
        stems.add("megcc_sequences")
    if vocabulary.form:
        stems.add("megcc_normalizer")
    return {f"runtime/{'include' if path.suffix == '.h' else 'src'}/{path.name}": path.read_bytes()
            for path in sorted((paths.c_runtime() / "lm").rglob("*.[ch]"))
            if path.stem in stems or (path.stem == "megcc_grammar" and (has_grammars or path.suffix == ".h"))}


def _literal(text: str) -> str:
    """Returns a string in C. Bytes that are not printable in ASCII are octal, and so are quotation marks, backslashes,
    and question marks, which could begin a trigraph."""
    shown = ["\\n" if byte == ord("\n") else
             chr(byte) if ord(" ") <= byte <= ord("~") and chr(byte) not in '"\\?' else f"\\{byte:03o}"
             for byte in text.encode()]
    return '"' + "".join(shown) + '"'
