# SPDX-License-Identifier: Apache-2.0
"""WordPiece, the tokenizer of BERT: its vocabulary, and its tables as C for c_runtime/lm/megcc_wordpiece.c."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from ....errors import MegccError, quoted
from .arrays import NO_TOKEN, array, heading
from .code_points import CODES, HANGUL, normalized
from .tokenizer import tokenizers_package
from .trie import Trie

#: The beginning of tokens inside a word.
INSIDE = "##"
#: Classes of characters, as in megcc_wordpiece.c.
LETTER, REMOVED, BARRIER, SPACE, PUNCTUATION, IDEOGRAPH, MARK = range(7)
#: The most characters that the longest word may have (`WordPieces.longest_word`); the C code has work memory for them.
_LONGEST_WORD = 1000
#: The longest word where a file does not tell: max_input_chars_per_word of BERT's own tokenizer.
_BERT_LONGEST_WORD = 100
#: The number of classes that the 4 bits of a row of classes hold.
_MOST_CLASSES = 16
#: The value of a control token in tokenizer.ggml.token_type.
_CONTROL = 3


@dataclass(frozen=True)
class Normalization:
    """Changes of a text before it is split: BertNormalizer of the package tokenizers.

    clean: whether control characters are removed and spaces are U+0020.
    ideographs: whether each ideograph is a word.
    strip: whether accents are removed.
    lower: whether letters lose their case.
    """

    clean: bool = True
    ideographs: bool = True
    strip: bool = True
    lower: bool = True


@dataclass(frozen=True)
class WordPieces:
    """A vocabulary of WordPiece.

    tokens: strings; "" for a number without a token.
    special: tokens that are found in a text before anything else.
    unknown: the token of words that tokens do not make up.
    first, last: tokens that the network expects around a text, -1 for none.
    longest_word: the most characters of a word that is looked up; a longer one is unknown.
    """

    tokens: tuple[str, ...]
    special: tuple[str, ...]
    unknown: int
    first: int
    last: int
    longest_word: int
    normalization: Normalization

    def __post_init__(self) -> None:
        if not 1 <= self.longest_word <= _LONGEST_WORD:
            raise MegccError(f"the longest word has {self.longest_word} characters; 1 to {_LONGEST_WORD} are supported")

    @classmethod
    def of(cls, metadata: Mapping[str, object], tokens: Iterable[str], types: Iterable[int]) -> WordPieces:
        """Reads a GGUF file's metadata, in which tokens that begin a word have a U+2581 before, and the others no "##".

        Raises:
            MegccError: if there is no token for unknown words.
        """
        found, special = [], []
        for token, kind in zip(tokens, types, strict=False):
            is_marker = kind == _CONTROL or (token.startswith("[") and token.endswith("]"))  # such as "[CLS]"
            found.append(token if is_marker else token[1:] if token.startswith("\u2581") else INSIDE + token)
            if kind == _CONTROL:
                special.append(token)

        def number(name: str, otherwise: str) -> int:
            """Returns the token of a key, else the one with the usual text, else -1."""
            value = metadata.get(f"tokenizer.ggml.{name}_token_id")
            if isinstance(value, int) and 0 <= value < len(found):
                return value
            return found.index(otherwise) if otherwise in found else -1

        unknown = number("unknown", "[UNK]")
        if unknown < 0:
            raise MegccError("the vocabulary has no token for unknown words: tokenizer.ggml.unknown_token_id")
        # "seperator" is the spelling of GGUF's key.
        return cls(tokens=tuple(found), special=tuple(special), unknown=unknown, first=number("cls", "[CLS]"),
                   last=number("seperator", "[SEP]"), longest_word=_BERT_LONGEST_WORD, normalization=Normalization())

    def text(self, name: str) -> str:
        """Returns a C source that defines `const megcc_wordpiece NAME_tokenizer`.

        Raises:
            MissingTool: without the package tokenizers, whose rules of characters are used.
        """
        number = {token: index for index, token in enumerate(self.tokens)}
        words = Trie.of({token.encode(): index for token, index in number.items() if token})
        special = sorted({token.encode(): number[token] for token in self.special}.items())
        strings = [text for text, _ in special]
        rows, mapped, hangul = characters(self.normalization)
        letters = [text.encode() for _, text in sorted(mapped.items())]
        arrays = {
            "bytes": ("uint8_t", b"".join(strings)),
            "text": ("uint32_t", [0, *accumulate(map(len, strings))]),
            "special": ("uint32_t", [index for _, index in special]),
            "class_": ("uint32_t", rows),
            "mapped": ("uint32_t", sorted(mapped)),
            "target": ("uint16_t", [0, *accumulate(map(len, letters))]),
            "letters": ("uint8_t", b"".join(letters)),
        }
        ends = [f"{NO_TOKEN if token < 0 else token}u" for token in (self.first, self.last)]
        # The fields of the struct in megcc_wordpiece.h before its arrays, in its order.
        numbers = [len(self.tokens), len(special), len(rows), len(mapped), words.node(INSIDE.encode()), self.unknown,
                   *ends, self.longest_word, int(hangul)]
        return "\n".join([
            heading(name, "megcc_wordpiece.h"), '#include "megcc_strings.h"\n', words.text(f"{name}_words"),
            *(array(f"{name}_{key}", unit, values) for key, (unit, values) in arrays.items()),
            f"extern const megcc_wordpiece {name}_tokenizer;",
            f"const megcc_wordpiece {name}_tokenizer = {{",
            *(f"    {value}," for value in numbers), f"    &{name}_words,",
            *(f"    {name}_{key}," for key in arrays), "};", ""])


@cache
def characters(normalization: Normalization) -> tuple[list[int], dict[int, str], bool]:
    """Returns how characters are normalized and split, as the package tokenizers does it.

    Returns:
        For each run of characters of one class its first code point << 4 | class; characters that become others, except
        syllables of Hangul; whether these are decomposed.
    """
    normalizers = tokenizers_package().normalizers
    bert = normalizers.BertNormalizer(normalization.clean, normalization.ideographs, normalization.strip,
                                      normalization.lower)
    normal = dict(normalized(bert.normalize_str))
    split = dict(_split_classes())
    kinds, mapped = {}, {}
    for code in CODES:
        text = normal[code]
        if not text:
            kinds[code] = REMOVED
        elif split[code] == SPACE or not text.strip(" "):
            kinds[code] = SPACE
        else:
            # The normalizer puts spaces around each ideograph, so that it becomes a word.
            bare = text[1:-1] if len(text) > 2 and text[0] == text[-1] == " " else text
            kinds[code] = split[code] if bare is text else IDEOGRAPH
            if bare != chr(code):
                mapped[code] = bare
    hangul = len(mapped.get(HANGUL.start, "")) > 1  # the first syllable becomes its letters
    if normalization.strip:
        kinds.update(_order(bert.normalize_str, kinds))
    rows, last = [], -1
    for code in CODES:
        if kinds[code] != last:
            last = kinds[code]
            rows.append(code << 4 | last)
    return rows, {code: text for code, text in mapped.items() if code not in HANGUL}, hangul


def _split_classes() -> Iterator[tuple[int, int]]:
    """Yields (code point, class) for all characters: SPACE, PUNCTUATION or LETTER, as the package's splitter treats it.

    The splitter reads each character between letters "a". It removes a space, makes punctuation a word of its own, and
    leaves any other character in a word together with the letters.
    """
    splitter = tokenizers_package().pre_tokenizers.BertPreTokenizer()
    for begin in range(0, len(CODES), 1 << 14):
        codes = CODES[begin:begin + (1 << 14)]
        kinds = [SPACE] * (2 * len(codes) + 1)
        for text, (start, end) in splitter.pre_tokenize_str("a" + "".join(f"{chr(code)}a" for code in codes)):
            kinds[start:end] = [PUNCTUATION if len(text) == 1 and text != "a" else LETTER] * (end - start)
        yield from zip(codes, kinds[1::2], strict=True)


def _order(normalize, kinds: Mapping[int, int]) -> dict[int, int]:
    """Returns the classes of the marks that the normalizer sorts, and of those across which it does not sort.

    Python's Unicode tables give the candidates. An experiment with the normalizer of the package tokenizers decides: a
    mark is sorted if it changes places with a mark of combining class 216 or 224 beside it. Its class is MARK plus the
    rank of its combining class. A character that the normalizer removes is a BARRIER if marks of the classes 224 and
    216, which would be sorted otherwise, keep their order around it.
    """
    class_216, class_224 = "\U0001d165", "\u302e"  # one mark of each of these combining classes
    marks = {code: unicodedata.combining(chr(code)) for code in CODES if kinds[code] == LETTER
             and unicodedata.category(chr(code)) == "Mc" and any(
                 normalize(pair) == pair[::-1] for probe in (class_216, class_224)
                 for pair in (probe + chr(code), chr(code) + probe))}
    classes = sorted(set(marks.values()))
    assert MARK + len(classes) <= _MOST_CLASSES
    barriers = {code: BARRIER for code in CODES if kinds[code] == REMOVED and unicodedata.category(chr(code)) == "Mn"
                and normalize(class_224 + chr(code) + class_216) == class_224 + class_216}
    return barriers | {code: MARK + classes.index(combining) for code, combining in marks.items()}


def of_json(model: Mapping[str, object], normalizer: object, splitter: object, tokens: tuple[str, ...],
            special: tuple[str, ...], ends: tuple[int, int]) -> WordPieces:
    """Returns the vocabulary of a tokenizer.json.

    Args:
        model, normalizer, splitter: these parts of the file.
        tokens, special, ends: as in `WordPieces`.

    Raises:
        MegccError: if it does anything else than BERT's.
    """
    if not isinstance(splitter, dict) or splitter.get("type") != "BertPreTokenizer":
        raise MegccError("the pre-tokenizer of a tokenizer.json with WordPiece has to be BertPreTokenizer")
    if model.get("continuing_subword_prefix", INSIDE) != INSIDE:
        raise MegccError(f"tokens inside words begin with {quoted(model.get('continuing_subword_prefix'))}; {INSIDE} "
                         "is supported")
    unknown, longest = model.get("unk_token", "[UNK]"), model.get("max_input_chars_per_word",
                                                                             _BERT_LONGEST_WORD)
    if not isinstance(unknown, str) or not unknown or unknown not in tokens:
        raise MegccError(f"the vocabulary has no token {quoted(unknown)} for unknown words")
    if type(longest) is not int:
        raise MegccError(f"max_input_chars_per_word is {quoted(longest)}; expected a number of characters")
    first, last = ends
    return WordPieces(tokens=tokens, special=special, unknown=tokens.index(unknown), first=first, last=last,
                      longest_word=longest, normalization=_normalization(normalizer))


def _normalization(given: object) -> Normalization:
    if given is None:
        return Normalization(clean=False, ideographs=False, strip=False, lower=False)
    if not isinstance(given, dict) or given.get("type") != "BertNormalizer":
        raise MegccError("the normalizer of a tokenizer.json with WordPiece has to be BertNormalizer")
    clean, ideographs, lower = (given.get(name, True) for name in ("clean_text", "handle_chinese_chars", "lowercase"))
    strip = given.get("strip_accents")
    if strip is None:  # then the package strips accents if it lowers letters
        strip = lower
    if any(type(flag) is not bool for flag in (clean, ideographs, strip, lower)):
        raise MegccError("the BertNormalizer of the tokenizer.json has values that are neither true nor false")
    return Normalization(clean=clean, ideographs=ideographs, strip=strip, lower=lower)
