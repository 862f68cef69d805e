"""Text analysis: the one road from text to index terms, for documents and queries, on every engine.

A keyword index of any backend holds the terms that `Analyzer.terms` returns and nothing else, so
keyword search behaves alike everywhere and in every language. A query is data: whatever it holds,
what comes out is a list of plain words.

1. *Folding.* Invisible characters are removed, then NFKC and case folding (Unicode Standard
   Annex 15; The Unicode Standard, section 3.13), so that full-width, ligature and decomposed
   spellings meet.
2. *Words.* Letters, marks and numbers belong to a word and all else separates. What is joined by a
   hyphen or an underscore is indexed in parts and as a whole: `E-4711` is `e`, `4711` and `e4711`.
   Beside an apostrophe the clitics of the language are dropped: `l'eau` is `eau`. What symbols,
   numbers, identifiers, codes and emoji say as a whole are terms beside the words (`beside.py`).
3. *Scripts without spaces* (Han, kana, Thai, Lao, Khmer, Myanmar) and Hangul give characters and
   pairs of neighbors, see `words.segment`. Tibetan marks its syllables, and these are its words.
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
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import cache, partial
from itertools import chain
from typing import NamedTuple, TypeVar

import Stemmer

from corral.api.invisible import clean_text
from corral.api.vector_dbs import LANGUAGES
from corral.providers.text.beside import Beside, Rules, hinted, is_marked
from corral.providers.text.bm25 import greatest
from corral.providers.text.stop_words import CLITICS, STOP_WORDS
from corral.providers.text.words import (
    characters,
    folded,
    is_spaced,
    pieces,
    segment,
    spelled,
    without_accents,
    words_of,
    written,
    written_segments,
)

T = TypeVar("T", bound=Sized)

__all__ = ["ANALYZER_VERSION", "MAX_TERM_LENGTH", "Analyzer", "analyzer", "clean_text"]

_RULES = 2  # raise it with every change of a term: here, in words.py or in stop_words.py

ANALYZER_VERSION: int = _RULES * 10**6 + int("".join(re.findall(r"\d+", Stemmer.version())[:3]))
"""Changes when the terms of a text may change: with our rules, and with the release of the
stemmers, whose algorithms change too. An index stores it and is rebuilt when it differs."""

MAX_TERM_LENGTH = 64
"""Longest term, in characters. A longer word is cut, so that a blob of data is one small term."""

_MAX_REMEMBERED = 1 << 16  # in each memory of a language, 10 to 15 MB
_FEW = 8

_CONJUNCTION = re.compile("^[وف](?=ال..)")  # Arabic "and" before the article, which Snowball leaves
# Where people type without accents, `cafe` finds `café`. Not where an accent makes another letter.
# The English stemmer knows ASCII only; the others rely on the accents.
_DROPPED_BEFORE_STEMMING = {"english"}
_DROPPED_AFTER_STEMMING = {"catalan", "dutch", "french", "irish", "italian", "portuguese"}


class _Memory(dict[str, T]):
    """A bounded memory of words, or of what stands between white space, and what becomes of each.

    Args:
        find_out: Says it of one that is not known.
        most: Terms of one that is remembered: no run of Chinese fills the memory.
    """

    def __init__(self, find_out: Callable[[str], T], most: int = 1 << 16) -> None:
        super().__init__()
        self._find_out, self._most = find_out, most

    def __missing__(self, word: str) -> T:
        found = self._find_out(word)
        if len(word) <= MAX_TERM_LENGTH and len(found) <= self._most:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[word] = found
        return found


class _Rules:
    """What becomes of a folded word in one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._stop_words = frozenset(map(spelled, STOP_WORDS.get(language, ())))
        self._clitics = CLITICS.get(language, frozenset())
        known = language in Stemmer.algorithms()
        self._stemmer = Stemmer.Stemmer(language, 0) if known else None
        self._lock = threading.Lock()  # a stemmer is not safe to use from two threads

    def terms(self, word: str) -> tuple[str, ...]:
        """Return its terms."""
        if word.isascii() and word.isalnum():  # most words: nothing to part or to respell
            if word in self._stop_words:
                return ()
            stem = self._stem(word[:MAX_TERM_LENGTH])
            return (stem[:MAX_TERM_LENGTH],)  # a stem may be the longer one, in Turkish
        found: list[str] = []
        for part in self._parts(word):
            for run, spaced in pieces(part):
                if run:
                    found += segment(run)
                elif spaced and spaced not in self._stop_words:
                    found.append(self._stem(spaced[:MAX_TERM_LENGTH]))
        return tuple([term[:MAX_TERM_LENGTH] for term in found])

    def _parts(self, word: str) -> Iterator[str]:
        """Yield what hyphens and apostrophes join, and what hyphens join also as a whole."""
        for compound in word.split("--"):
            members = [part for part in compound.split("-") if part.strip("'")]
            parts = [part for member in members for part in self._without_clitics(member)]
            yield from parts
            whole = "".join(parts)
            if len(members) > 1 and is_spaced(whole):
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
            for part in [whole] if joined and is_spaced(whole) else parts:
                for run, spaced in pieces(part):
                    found += characters(run)
                    if spaced in self._stop_words:
                        found.append(f"'{spaced}")  # no stem: `schön` has the stem `schon`
                    elif spaced:
                        found.append(self._stem(spaced[:MAX_TERM_LENGTH]))
        return "".join(f"{position[:MAX_TERM_LENGTH]} " for position in found)

    def _stem(self, word: str) -> str:
        if self._language in _DROPPED_BEFORE_STEMMING:
            word = word if word.isascii() else without_accents(word)
        elif self._language == "arabic":
            word = _CONJUNCTION.sub("", word).replace("ى", "ي")  # not before: على is a stop word
        if self._stemmer:
            with self._lock:
                word = self._stemmer.stemWord(word) or word
        if self._language in _DROPPED_AFTER_STEMMING:
            word = without_accents(word)
        return word.replace("ı", "i") if self._language == "turkish" else word


class Analysis(NamedTuple):
    """The index terms of a text.

    Attributes:
        words: In order, with duplicates; their number is the length of the text.
        beside: Distinct terms that none of the words has: of symbols, numbers, identifiers, codes
            and emoji (`beside.py`).
    """

    words: list[str]
    beside: list[str]


class QueryTerms(NamedTuple):
    """The index terms of a query.

    Attributes:
        times: By term, how often the query has it, above 0.
        beside: The terms beside the words: a chunk that answers the query need not contain them.
    """

    times: Counter[str]
    beside: frozenset[str]

    def greatest(self, frequencies: Mapping[str, int], count: int) -> float:
        """Return the score that no chunk can exceed (`bm25.greatest`).

        A term beside the words that no chunk contains does not count.

        Args:
            frequencies: By term, the number of chunks that contain it.
            count: The number of chunks.
        """
        numbers = ((times, term, frequencies.get(term, 0)) for term, times in self.times.items())
        return greatest(((t, n) for t, term, n in numbers if n or term not in self.beside), count)


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
        self._rules = rules = _Rules(language)
        self._terms = _Memory(rules.terms, _FEW)
        self._spelled = _Memory(lambda part: tuple(self._folded(part)), _FEW)
        self._apart = _Memory(partial(rules.positions, joined=False))
        self._joined = _Memory(partial(rules.positions, joined=True))
        self._rules_beside = beside = Rules(
            self._of_name,
            rules.terms,  # the beginnings of codes would fill a memory
            partial(folded, turkish=language == "turkish"),
            language,
        )
        self._beside = _Memory(beside.of, 16)

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a document or of a query, in order, with duplicates.

        Never raises, and depends on nothing but the text, the language and `ANALYZER_VERSION` (and
        Python's Unicode version, for characters that are new to Unicode).
        Canonically equivalent texts, and a text before and after `clean_text`, have equal terms.
        A term has 1 to `MAX_TERM_LENGTH` characters: ASCII lower-case letters and digits, and
        letters, marks, numbers and symbols beyond ASCII. So terms joined by spaces come back
        unchanged from any tokenizer that splits at white space, FTS5's `ascii` among them.

        The terms beside the words follow the words, but for those that a word has already. A number
        in groups (`1,102,900`) is there once for each group, so that it counts as much in a query
        as all of them.

        Cost: linear in the text; measured at 1 to 3 million words a second on one core in English,
        1.4 million characters a second in Chinese.
        """
        words, beside = self._words_of(text), self._beside_of(text)
        if not beside:
            return words
        held = frozenset(words)
        return words + [
            one.term for one in beside if one.term not in held for _ in range(one.times)
        ]

    def analyze(self, text: str) -> Analysis:
        """Return the terms of a document: those of `terms`, the words and what stands beside them.

        Cost: as `terms`.
        """
        words, beside = self._words_of(text), self._beside_of(text)
        if not beside:
            return Analysis(words, [])
        held = frozenset(words)
        return Analysis(words, [one.term for one in beside if one.term not in held])

    def query(self, text: str) -> QueryTerms:
        """Return the terms of a query, counted: those of `terms`, which one analysis finds.

        Cost: as `terms`.
        """
        times = Counter(self._words_of(text))
        beside = [one for one in self._beside_of(text) if one.term not in times]
        times.update({one.term: one.times for one in beside})
        return QueryTerms(times, frozenset(one.term for one in beside))

    def _words_of(self, text: str) -> list[str]:
        if text.isascii():
            return list(self._folded(text))
        # Folding costs most then. No rule of words looks beyond white space, so what stands between
        # it has the same words in every text (tested).
        return list(chain.from_iterable(map(self._spelled.__getitem__, text.split())))

    def _beside_of(self, text: str) -> list[Beside]:
        """Return the terms beside the words of a text, each once."""
        return list({one.term: one for one in self._every_beside(text)}.values())

    def _every_beside(self, text: str) -> list[Beside]:
        text, parts, places = hinted(text)
        found = list(chain.from_iterable(map(self._beside.__getitem__, parts)))
        return [*found, *self._rules_beside.joined(text, places)] if places else found

    def _folded(self, text: str) -> Iterator[str]:
        """Return the terms of a text, folding all of it."""
        return chain.from_iterable(map(self._terms.__getitem__, self._words(text)))

    def _of_name(self, name: str) -> Sequence[str]:
        """Return the terms of letters and digits."""
        if name.isascii() and self.language != "turkish":  # whose capital I is another letter
            return self._terms[name.lower()]
        return list(self._folded(name))

    def words(self, text: str, terms: Iterable[str]) -> list[str]:
        """Return the distinct words of a text that have one of these terms, as written there.

        In the order in which they first appear. Of what hyphens and apostrophes join it is the
        part that has the term, or the whole where no part has one; of a script without spaces, the
        characters and pairs that are terms; of a term beside the words, what it was made of: the
        symbol, the number or the identifier. One longer than `MAX_TERM_LENGTH` is left out.

        Cost: linear in the text.
        """
        wanted = frozenset(terms)
        found: dict[str, None] = {}
        for word, parts in written(text).items() if wanted else ():
            meeting = [each for part in parts for each in self._meeting(part, wanted)]
            if not meeting and len(parts) > 1 and is_spaced(word):
                meeting = self._meeting(word, wanted)
            found |= dict.fromkeys(meeting)
        beside = {one.written for one in self._every_beside(text) if one.term in wanted}
        if (
            new := {one for one in beside if one in text and len(one) <= MAX_TERM_LENGTH}
            - found.keys()
        ):
            return sorted([*found, *sorted(new)], key=text.find)
        return list(found)

    def marks(self, text: str) -> frozenset[str]:
        """Return the terms of the words that a symbol belongs to: of `C++`, `#tag` and `R&D`."""
        return frozenset(one.term for one in self._every_beside(text) if is_marked(one.term))

    def _meeting(self, word: str, wanted: frozenset[str]) -> list[str]:
        """Return a word if it has a wanted term; of a run without spaces, what is one."""
        if not is_spaced(word):
            segments = dict.fromkeys(written_segments(word))
            return [one for one in segments if wanted.issuperset(self.terms(one))]
        met = len(word) <= MAX_TERM_LENGTH and not wanted.isdisjoint(self.terms(word))
        return [word] if met else []

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
        return words_of(text, turkish=self.language == "turkish")


@cache
def analyzer(language: str) -> Analyzer:
    """Return the analyzer of a language, the same one at every call. See `Analyzer`."""
    return Analyzer(language)
