"""Split text into words in the form that analyzers compare: folded, normalized, one script each.

`analyzer.py` makes terms from them. A change here changes terms; see its `_RULES`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain, zip_longest
from typing import NamedTuple

from corral.api.invisible import CONTROLS, JOINERS, STYLES, UNSEEN

# --- Words and characters -------------------------------------------------------------------------

_UNWRITTEN = f"{CONTROLS}{UNSEEN}{JOINERS}{STYLES}\u180b-\u180f"
_IGNORED = re.compile(f"[{_UNWRITTEN}]+")
_WORD_WITHOUT_MARKS = re.compile("[\\w'\\-]+")  # Matches the same words, three times as fast.
_APOSTROPHE = re.compile("[\u2018\u2019\u201b\u02bc]")


def _ascii_table() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(range(128), " ")
    table |= {ord(char): char.lower() for char in string.ascii_letters + string.digits + "'-"}
    hidden = [code for code in range(128) if re.match(f"[{CONTROLS}]", chr(code))]
    return table | {ord("_"): "-"} | dict.fromkeys(hidden)


_ASCII = _ascii_table()


def words_of(text: str, *, turkish: bool) -> list[str]:
    """Return the folded words of a text in order, apostrophes and hyphens included."""
    if text.isascii() and not turkish:
        return text.translate(_ASCII).split()  # The same words, several times as fast.
    text = folded(text, turkish=turkish)
    text = _APOSTROPHE.sub("'", text).replace("_", "-").replace("\u2010", "-")
    tables = _tables()
    return (_WORD_WITHOUT_MARKS if tables.marks.isdisjoint(text) else tables.word).findall(text)


def normalized(text: str) -> str:
    """Return a text without invisible characters, in NFKC; capitals stay."""
    # no letters, according to NFKC
    text = _IGNORED.sub("", text).replace("™", " ").replace("℠", " ")
    return unicodedata.normalize("NFKC", text)


def folded(text: str, *, turkish: bool) -> str:
    """Return a text in the form used to compare words: no invisible characters, folded case."""
    text = normalized(text)
    if turkish:
        text = text.replace("İ", "i").replace("I", "ı")
    return unicodedata.normalize("NFKC", text.casefold()).replace("i\u0307", "i")


_JOINTS = "_\u2010\u2011'\u2018\u2019\u201b\u02bc-"  # hyphens and apostrophes; - ends a class
_JOINT = re.compile(f"[{_JOINTS}]+")


def written(text: str) -> dict[str, list[str]]:
    """Return the distinct words of a text as they are written there, each with its distinct
    parts, between hyphens, apostrophes and the borders of scripts.
    """
    pattern = _WORD_WITHOUT_MARKS if text.isascii() else _tables().written
    words = dict.fromkeys(word.strip(_JOINTS) for word in pattern.findall(text))
    return {word: _parts(word) for word in words if word}


def _parts(word: str) -> list[str]:
    joined = dict.fromkeys(_JOINT.split(word))
    if word.isascii():
        return list(joined)
    return [part for one in joined for part in _tables().border.findall(one)]


_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u303c\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    f"{_KANA}\U0001aff0-\U0001b16f\u3105-\u312f\u31a0-\u31bf"  # kana, bopomofo
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Hangul
    "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1780-\u17d7\u17dc\u17dd\u1000-\u103f\u1050-\u108f\u109a-\u109d\uaa60-\uaa7f"  # Khmer etc.
)
"""Letters of scripts without spaces, and Hangul, as the inside of a regular expression's class."""

_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
# Kana, and letters of Thai, Lao and Khmer that carry no vowel.
_ENDINGS = frozenset(
    chr(code)
    for first, end in ((0x3041, 0x3100), (0xE01, 0xE2F), (0xE81, 0xEAF), (0x1780, 0x17B4))
    for code in range(first, end)
)


def is_spaced(word: str) -> bool:
    """Return True if no letter of a word is of a script without spaces."""
    return _UNSPACED_LETTER.search(word) is None


def characters(run: str) -> list[str]:
    """Return the characters of a run without spaces, as readers count them."""
    read_as_one: list[str] = _tables().character.findall(run)
    return read_as_one


def segment(run: str) -> list[str]:
    """Return the characters of a run without spaces and the pairs of neighbors, in order.

    A character is a letter with its marks; vowels and stacked consonants that are separate letters
    belong to it. Pairs are close to words and decide the ranking, while single characters find
    words of one character (猫). nDCG@10 on XQuAD zh: pairs 0.963, characters 0.953, both 0.967.
    Single kana, and single letters of Thai, Lao and Khmer, are left out: they end words in nearly
    every text. Korean has spaces, but particles are attached to its nouns (서울, 서울은,
    서울에서); the pair 서울 is in all of them.
    """
    letters = characters(run)
    if len(letters) == 1:
        return letters
    terms: list[str] = []
    for first, second in zip_longest(letters, letters[1:], fillvalue=""):
        if first not in _ENDINGS:
            terms.append(first)
        if second:
            terms.append(first + second)
    return terms


def written_segments(run: str) -> list[str]:
    """Return the segments of a run as written, including invisible characters."""
    bare = _IGNORED.sub("", run)
    segments = segment(bare)
    if bare == run:
        return segments
    spaces = f"[{_UNWRITTEN}]*"  # Thai and Khmer can have one between any two words.
    patterns = (spaces.join(map(re.escape, one)) for one in segments)
    return [match[0] for pattern in patterns if (match := re.search(pattern, run))]


# --- Spellings that differ between texts of one language ------------------------------------------

_SPELLINGS: dict[int, str | None] = {
    # Arabic: no vowel signs, no tatweel, one alef, and Persian yeh and kaf as Arabic ones.
    **dict.fromkeys([*range(0x610, 0x61B), 0x640, *range(0x64B, 0x660), 0x670]),
    **dict.fromkeys(map(ord, "أإآٱ"), "ا"),
    **{ord("ی"): "ي", ord("ک"): "ك"},
    # Hebrew: no points. Devanagari: no nukta, and candrabindu as anusvara.
    **dict.fromkeys([*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7]),
    **{0x93C: None, 0x901: "\u0902"},
}


class _Tables(NamedTuple):
    """Patterns with the marks and digits of all scripts; not needed for ASCII texts."""

    marks: frozenset[str]
    word: re.Pattern[str]
    written: re.Pattern[str]
    border: re.Pattern[str]
    piece: re.Pattern[str]
    character: re.Pattern[str]
    spellings: Mapping[int, str | None]


@cache
def _tables() -> _Tables:
    """Build the tables on demand, which takes longer than all other imports of this module."""
    codes = range(0x80, 0x1F000)  # No other marks are visible (tested).
    categories = zip(codes, map(unicodedata.category, map(chr, codes)), strict=True)
    names = {code: name for code, name in categories if name in {"Mn", "Mc", "Nd"}}
    digits = (code for code, name in names.items() if name == "Nd")
    every = [code for code, name in names.items() if name != "Nd"]
    # In a class, each letter would be compared with all hundred ranges beyond U+FFFF.
    low = _ranges(code for code in every if code < 0x10000)
    high = _ranges(code for code in every if code >= 0x10000)
    marks, high_mark = low + high, f"(?=[\U00010000-\U0001efff])[{high}]"
    return _Tables(
        marks=frozenset(map(chr, every)),
        word=re.compile(f"(?:[\\w'\\-{low}]+|{high_mark})+"),
        written=re.compile(f"[\\w{marks}{_UNWRITTEN}{_JOINTS}]+"),
        border=re.compile(f"[{UNSPACED}][{UNSPACED}{marks}{_UNWRITTEN}]*|[^{UNSPACED}]+"),
        piece=re.compile(f"([{UNSPACED}][{UNSPACED}{marks}]*)|([^\\W{UNSPACED}][^{UNSPACED}]*)"),
        character=re.compile(
            "[\u0e40-\u0e44\u0ec0-\u0ec4]?\\w"  # Thai, Lao: with the vowel written before it
            "(?:[\u17d2\u1039]\\w"  # Khmer, Myanmar: with the letter stacked below it
            "|[\u1000-\u102a\u103f]\u1037?\u103a"  # Myanmar: with the end of the syllable
            f"|[{low}]|{high_mark})*"
            "[\u0e30\u0e32\u0e45\u0eb0\u0eb2\u0ebd]*"  # Thai, Lao: with the vowels written after it
        ),
        spellings={code: str(unicodedata.decimal(chr(code))) for code in digits} | _SPELLINGS,
    )


def _ranges(codes: Iterable[int]) -> str:
    """Return ascending code points as the inside of a regular expression's character class."""
    spans: list[tuple[int, int]] = []
    for code in codes:
        first, last = spans[-1] if spans else (code, -2)
        spans[-1:] = [(first, code)] if code == last + 1 else [*spans[-1:], (code, code)]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)


# Devanagari also writes a nasal before a consonant of its own class as anusvara.
_NASAL = re.compile("ङ्(?=[क-ङ])|ञ्(?=[च-ञ])|ण्(?=[ट-ण])|न्(?=[त-न])|म्(?=[प-म])")
# Dictionaries print Russian words with stress marks.
_STRESS = re.compile("(?<=[а-я])[\u0300\u0301]")


def spelled(word: str) -> str:
    """Return a folded word in the standard spelling of its language."""
    return _STRESS.sub("", _NASAL.sub("\u0902", word.translate(_tables().spellings)))


def pieces(part: str) -> list[tuple[str, str]]:
    """Split at the borders of scripts: (run without spaces, "") or ("", word), in order."""
    return [("", part)] if part.isascii() else _tables().piece.findall(spelled(part))


def _accents() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(range(0x300, 0x370))
    for code in chain(range(0xE0, 0x250), range(0x1E00, 0x1F00)):
        table[code] = unicodedata.normalize("NFD", chr(code))[0]
    return (
        table
        | {ord("æ"): "ae", ord("œ"): "oe", ord("þ"): "th"}
        | {ord(letter): plain for letter, plain in zip("øłđðıħ", "olddih", strict=True)}
    )


_ACCENTS = _accents()


def without_accents(word: str) -> str:
    """Return a word without accents, as people type it."""
    return word.translate(_ACCENTS)
