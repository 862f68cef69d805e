"""Text analysis: the one road from text to index terms, for documents and queries, on every engine.

A keyword index of any backend holds the terms that `Analyzer.terms` returns and nothing else, so
keyword search behaves alike everywhere and in every language. A query is data: whatever it holds,
what comes out is a list of plain words.

1. *Folding.* Invisible characters are removed, then NFKC and case folding (Unicode Standard
   Annex 15; The Unicode Standard, section 3.13), so that full-width, ligature and decomposed
   spellings meet.
2. *Words.* Letters, marks and numbers belong to a word and all else separates. What is joined by a
   hyphen or an underscore is indexed in parts and as a whole: `E-4711` is `e`, `4711` and `e4711`.
   Beside an apostrophe the clitics of the language are dropped: `l'eau` is `eau`.
3. *Scripts without spaces* (Han, kana, Thai, Lao, Khmer, Myanmar) and Hangul give characters and
   pairs of neighbors, see `_segment`. Tibetan marks its syllables, and these are its words.
4. *Stop words* are dropped, in documents and queries alike (`stop_words.py`), and what is left is
   stemmed by the Snowball algorithm of the language. Text of nothing but stop words has no terms:
   a keyword search neither finds it nor finds anything by it.

Stemming decides which letters stay apart. Nothing is folded to ASCII in Norwegian, Swedish or
Finnish; the German stemmer drops umlauts as its last step, since they are inflection there
(`Buch`, `Bücher`), after stop words have told `schon` from `schön`. Not done: splitting German
compounds, equating traditional and simplified Chinese.
"""

from __future__ import annotations

import re
import string
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, pairwise

import Stemmer

from corral.api.vector_dbs import LANGUAGES
from corral.providers.ranking.stop_words import CLITICS, STOP_WORDS
from corral.providers.ranking.unseen import CONTROLS, JOINERS, STYLES, UNSEEN, clean_text

__all__ = ["ANALYZER_VERSION", "MAX_TERM_LENGTH", "Analyzer", "analyzer", "clean_text"]

_RULES = 1  # raise it with every change of a term: in this module or in stop_words.py

ANALYZER_VERSION: int = _RULES * 10**6 + int("".join(re.findall(r"\d+", Stemmer.version())[:3]))
"""Changes when the terms of a text may change: with the rules of this module, and with the release
of the stemmers, whose algorithms change too. An index stores it and is rebuilt when it differs."""

MAX_TERM_LENGTH = 64
"""Longest term, in characters. A longer word is cut, so that a blob of data is one small term."""

_MAX_REMEMBERED = 1 << 16  # words per language, about 15 MB

_CATEGORIES = {  # no other marks can be seen (tested)
    code: category
    for code in range(0x80, 0x1F000)
    if (category := unicodedata.category(chr(code))) in {"Mn", "Mc", "Nd"}
}


def _ranges(codes: Iterable[int]) -> str:
    """Return ascending code points as the inside of a regular expression's character class."""
    spans: list[tuple[int, int]] = []
    for code in codes:
        first, last = spans[-1] if spans else (code, -2)
        spans[-1:] = [(first, code)] if code == last + 1 else [*spans[-1:], (code, code)]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)


_MARKS = _ranges(code for code, category in _CATEGORIES.items() if category != "Nd")

# --- Words and characters -------------------------------------------------------------------------

_IGNORED = re.compile(f"[{CONTROLS}{UNSEEN}{JOINERS}{STYLES}\u180b-\u180f]+")
_WORD = re.compile(f"[\\w'\\-{_MARKS}]+")
_MARK = re.compile(f"[{_MARKS}]")
_WORD_WITHOUT_MARKS = re.compile("[\\w'\\-]+")  # the same words, three times faster
_APOSTROPHE = re.compile("[\u2018\u2019\u201b\u02bc]")


def _ascii_table() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(range(128), " ")
    table |= {ord(char): char.lower() for char in string.ascii_letters + string.digits + "'-"}
    hidden = [code for code in range(128) if re.match(f"[{CONTROLS}]", chr(code))]
    return table | {ord("_"): "-"} | dict.fromkeys(hidden)


_ASCII = _ascii_table()


def _words(text: str, *, turkish: bool) -> list[str]:
    """Return the folded words of a text in order, apostrophes and hyphens included."""
    if text.isascii() and not turkish:
        return text.translate(_ASCII).split()  # the same words, several times faster
    text = _IGNORED.sub("", text).replace("™", " ").replace("℠", " ")  # no letters, as NFKC has it
    text = unicodedata.normalize("NFKC", text)
    if turkish:
        text = text.replace("İ", "i").replace("I", "ı")
    text = unicodedata.normalize("NFKC", text.casefold()).replace("i\u0307", "i")
    text = _APOSTROPHE.sub("'", text).replace("_", "-").replace("\u2010", "-")
    return (_WORD if _MARK.search(text) else _WORD_WITHOUT_MARKS).findall(text)


_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u303c\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    f"{_KANA}\U0001aff0-\U0001b16f\u3105-\u312f\u31a0-\u31bf"  # kana, bopomofo
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Hangul
    "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1780-\u17d7\u17dc\u17dd\u1000-\u103f\u1050-\u108f\u109a-\u109d\uaa60-\uaa7f"  # Khmer etc.
)
"""Letters of scripts without spaces, and Hangul, as the inside of a regular expression's class."""

_PIECE = re.compile(f"([{UNSPACED}][{UNSPACED}{_MARKS}]*)|([^\\W{UNSPACED}][^{UNSPACED}]*)")
_CHARACTER = re.compile(
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?\\w"  # Thai, Lao: with the vowel written before it
    "(?:[\u17d2\u1039]\\w"  # Khmer, Myanmar: with the letter stacked below it
    "|[\u1000-\u102a\u103f]\u1037?\u103a"  # Myanmar: with the consonant that ends the syllable
    f"|[{_MARKS}])*"
    "[\u0e30\u0e32\u0e45\u0eb0\u0eb2\u0ebd]*"  # Thai, Lao: with the vowels written after it
)
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
# Kana, and letters of Thai, Lao and Khmer that carry no vowel.
_ENDINGS = frozenset(
    chr(code)
    for first, end in ((0x3041, 0x3100), (0xE01, 0xE2F), (0xE81, 0xEAF), (0x1780, 0x17B4))
    for code in range(first, end)
)


def _segment(run: str) -> Iterator[str]:
    """Yield the characters of a run without spaces and the pairs of neighbors, in order.

    A character is what is read as one: a letter with its marks and, where vowels and stacked
    consonants are letters of their own, with these. Pairs come close to words and decide the
    ranking; characters find words of one character (猫). nDCG@10 on XQuAD zh: pairs 0.963,
    characters 0.953, both 0.967. Single kana, and single letters of Thai, Lao and Khmer, are left
    out: they end words in nearly every text. Korean has spaces, but particles grow onto its nouns
    (서울, 서울은, 서울에서): the pair 서울 is in all of them.
    """
    characters = _CHARACTER.findall(run)
    for first, second in pairwise([*characters, ""]):
        if len(characters) == 1 or first not in _ENDINGS:
            yield first
        if second:
            yield first + second


# --- Spellings that differ between texts of one language ------------------------------------------

_SPELLINGS: dict[int, str | None] = {
    **{code: str(unicodedata.decimal(chr(code))) for code, c in _CATEGORIES.items() if c == "Nd"},
    # Arabic: no vowel signs, no tatweel, one alef, and Persian yeh and kaf as Arabic ones.
    **dict.fromkeys([*range(0x610, 0x61B), 0x640, *range(0x64B, 0x660), 0x670]),
    **dict.fromkeys(map(ord, "أإآٱ"), "ا"),
    **{ord("ی"): "ي", ord("ک"): "ك"},
    # Hebrew: no points. Devanagari: no nukta, and candrabindu as anusvara.
    **dict.fromkeys([*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7]),
    **{0x93C: None, 0x901: "\u0902"},
}
# Devanagari also writes a nasal before a consonant of its own class as anusvara.
_NASAL = re.compile("ङ्(?=[क-ङ])|ञ्(?=[च-ञ])|ण्(?=[ट-ण])|न्(?=[त-न])|म्(?=[प-म])")
_STRESS = re.compile("(?<=[а-я])[\u0300\u0301]")  # as dictionaries print Russian
_CONJUNCTION = re.compile("^[وف](?=ال..)")  # Arabic "and" before the article, which Snowball leaves


def _spell(word: str) -> str:
    return _STRESS.sub("", _NASAL.sub("\u0902", word.translate(_SPELLINGS)))


def _pieces(part: str) -> list[tuple[str, str]]:
    """Split at the borders of scripts: (run without spaces, "") or ("", word), in order."""
    return [("", part)] if part.isascii() else _PIECE.findall(_spell(part))


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
# Where people type without accents, `cafe` finds `café`. Not where an accent makes another letter.
# The English stemmer knows ASCII only; the others rely on the accents.
_DROPPED_BEFORE_STEMMING = {"english"}
_DROPPED_AFTER_STEMMING = {"catalan", "dutch", "french", "irish", "italian", "portuguese"}


# --- Analysis -------------------------------------------------------------------------------------


class _Terms(dict[str, tuple[str, ...]]):
    """A bounded memory of folded words and their terms; a word that is not in it is analyzed."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language
        self._stop_words = frozenset(map(_spell, STOP_WORDS.get(language, ())))
        self._clitics = CLITICS.get(language, frozenset())
        known = language in Stemmer.algorithms()
        self._stemmer = Stemmer.Stemmer(language, 0) if known else None
        self._lock = threading.Lock()  # a stemmer is not safe to use from two threads

    def __missing__(self, word: str) -> tuple[str, ...]:
        terms = tuple(
            term[:MAX_TERM_LENGTH] for part in self._parts(word) for term in self._of_part(part)
        )
        if len(word) <= MAX_TERM_LENGTH and len(terms) <= 8:  # no run of Chinese fills the memory
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[word] = terms
        return terms

    def _parts(self, word: str) -> Iterator[str]:
        """Yield what hyphens and apostrophes join, and what hyphens join also as a whole."""
        for compound in word.split("--"):
            members = [part for part in compound.split("-") if part.strip("'")]
            parts = [part for member in members for part in self._without_clitics(member)]
            yield from parts
            whole = "".join(parts)
            if len(members) > 1 and not _UNSPACED_LETTER.search(whole):
                yield whole

    def _without_clitics(self, word: str) -> list[str]:
        word = word.strip("'")
        if "'" not in word:
            return [word]
        if word in self._stop_words:
            return []
        return [part for part in word.split("'") if part not in self._clitics]

    def positions(self, word: str, *, joined: bool) -> str:
        """Return what phrases compare of a folded word, a space after each position."""
        found: list[str] = []
        for compound in word.split("--"):
            members = [member.strip("'") for member in compound.split("-")]
            parts = [part for m in members for part in self._without_clitics(m) or [m]]
            whole = "".join(parts)
            for part in [whole] if joined and not _UNSPACED_LETTER.search(whole) else parts:
                for run, spaced in _pieces(part):
                    found += _CHARACTER.findall(run)
                    if spaced in self._stop_words:
                        found.append(f"'{spaced}")  # no stem: `schön` has the stem `schon`
                    elif spaced:
                        found.append(self._stem(spaced[:MAX_TERM_LENGTH]))
        return "".join(f"{position[:MAX_TERM_LENGTH]} " for position in found)

    def _of_part(self, part: str) -> Iterator[str]:
        for run, word in _pieces(part):
            if run:
                yield from _segment(run)
            elif word and word not in self._stop_words:
                yield self._stem(word[:MAX_TERM_LENGTH])

    def _stem(self, word: str) -> str:
        if self._language in _DROPPED_BEFORE_STEMMING:
            word = word.translate(_ACCENTS)
        elif self._language == "arabic":
            word = _CONJUNCTION.sub("", word).replace("ى", "ي")  # not before: على is a stop word
        if self._stemmer:
            with self._lock:
                word = self._stemmer.stemWord(word) or word
        if self._language in _DROPPED_AFTER_STEMMING:
            word = word.translate(_ACCENTS)
        return word.replace("ı", "i") if self._language == "turkish" else word


class _Positions(dict[str, str]):
    """A bounded memory of folded words and their positions."""

    def __init__(self, terms: _Terms, *, joined: bool) -> None:
        super().__init__()
        self._terms = terms
        self._is_joined = joined

    def __missing__(self, word: str) -> str:
        positions = self._terms.positions(word, joined=self._is_joined)
        if len(word) <= MAX_TERM_LENGTH:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[word] = positions
        return positions


class Analyzer:
    """Turns text into index terms for one language; use `analyzer` to get one.

    Safe to use from many threads, which share its memory of known words.

    Args:
        language: One of the values of `LANGUAGES`.

    Raises:
        ValueError: The language is none of them.
    """

    def __init__(self, language: str) -> None:
        if language not in LANGUAGES.values():
            raise ValueError(
                f"{language!r} is not a language name; see corral.api.vector_dbs.LANGUAGES"
            )
        self.language = language
        self._terms = _Terms(language)
        self._apart = _Positions(self._terms, joined=False)
        self._joined = _Positions(self._terms, joined=True)

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a document or of a query, in order, with duplicates.

        Never raises, and depends on nothing but the text, the language and `ANALYZER_VERSION` (and
        Python's Unicode version, for characters that are new to Unicode).
        Canonically equivalent texts, and a text before and after `clean_text`, have equal terms.
        A term has 1 to `MAX_TERM_LENGTH` characters: ASCII lower-case letters and digits, and
        letters, marks and numbers beyond ASCII. So terms joined by spaces come back unchanged from
        any tokenizer that splits at white space, FTS5's `ascii` among them.

        Cost: linear in the text; measured at 1 to 3 million words a second on one core in English,
        0.9 million characters a second in Chinese.
        """
        return list(chain.from_iterable(map(self._terms.__getitem__, self._words(text))))

    def sequence(self, text: str) -> tuple[str, str]:
        """Return a text's positions, a space around each, for phrases: a part of the text is a
        part of this string.

        A position is a stem, or a stop word behind an apostrophe; in scripts without spaces it is
        a character. What hyphens join is in parts in the first string (` e 4711 `), and in the
        second it is one position (` e4711 `). A phrase is in a text if its first string is in the
        text's first, or its second in the text's second.

        Cost: as `terms`.
        """
        words = self._words(text)
        apart = " " + "".join(map(self._apart.__getitem__, words))
        if "-" not in " ".join(words):
            return apart, apart
        return apart, " " + "".join(map(self._joined.__getitem__, words))

    def _words(self, text: str) -> list[str]:
        return _words(text, turkish=self.language == "turkish")


@cache
def analyzer(language: str) -> Analyzer:
    """Return the analyzer of a language, the same one at every call. See `Analyzer`."""
    return Analyzer(language)
