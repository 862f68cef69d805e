"""Text analysis: from text to index terms, for documents and queries, on every engine.

Every keyword index holds exactly the terms that `Analyzer.terms` returns, so keyword search is the
same on all engines and in all languages. A query is data: any query becomes a list of plain words.

1. *Folding.* Invisible characters are removed, then NFKC and case folding (Unicode Standard
   Annex 15; The Unicode Standard, section 3.13), so that full-width, ligature and decomposed
   spellings meet.
2. *Words.* Letters, marks and numbers belong to a word, other characters separate. A compound with
   hyphens or underscores is indexed in parts and as a whole: `E-4711` is `e`, `4711` and `e4711`.
   Next to an apostrophe, the clitics of the language are dropped: `l'eau` is `eau`. Symbols,
   numbers, identifiers, codes and emoji are additional terms (`beside.py`).
3. *Scripts without spaces* (Han, kana, Thai, Lao, Khmer, Myanmar) and Hangul give characters and
   pairs of neighbors; see `words.segment`. Tibetan marks its syllables, which count as words.
4. *Stop words* are dropped, in documents and queries alike (`stop_words.py`), and the other words
   are stemmed by the Snowball algorithm of the language. A text of stop words alone has no terms:
   a chunk with such a text is never a hit, and such a query finds nothing.

Stemming decides which letters differ. Norwegian, Swedish and Finnish letters are not folded to
ASCII; the German stemmer drops umlauts as its last step, since they are inflection there (`Buch`,
`Bücher`), after the stop words, which include `schon` and not `schön`. Not done: splitting German
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

_RULES = 2  # Increase it with every change of a term: here, in words.py or in stop_words.py.

ANALYZER_VERSION: int = _RULES * 10**6 + int("".join(re.findall(r"\d+", Stemmer.version())[:3]))
"""Changes when the terms of a text may change: with our rules, and with the release of the
stemmers and their algorithms. An index stores it and is rebuilt when it differs."""

MAX_TERM_LENGTH = 64
"""Maximum characters of a term. A longer word is cut, so that a blob of data is one small term."""

_MAX_CACHED_WORDS = 1 << 16  # In each cache of a language, 10 to 15 MB.
_MAX_CACHED_TERMS = 8

_CONJUNCTION = re.compile("^[وف](?=ال..)")  # Arabic "and" before the article; Snowball keeps it.
# In these languages people often omit accents, so `cafe` finds `café`; in other languages an accent
# makes another letter. The English stemmer reads ASCII only; the others rely on the accents.
_DROPPED_BEFORE_STEMMING = {"english"}
_DROPPED_AFTER_STEMMING = {"catalan", "dutch", "french", "irish", "italian", "portuguese"}


class _Cache(dict[str, T]):
    """A bounded cache of the terms of words, or of texts between white space.

    Args:
        compute: Returns the terms of a word.
        max_words: Number of words at which the cache is emptied.
        max_terms: A word with more terms is not cached, so that long Chinese texts do not fill it.
    """

    def __init__(
        self, compute: Callable[[str], T], max_words: int, max_terms: int = 1 << 16
    ) -> None:
        super().__init__()
        self._compute, self._max_words, self._max_terms = compute, max_words, max_terms

    def __missing__(self, word: str) -> T:
        terms = self._compute(word)
        if len(word) <= MAX_TERM_LENGTH and len(terms) <= self._max_terms:
            if len(self) >= self._max_words:
                self.clear()
            self[word] = terms
        return terms


class _Rules:
    """The terms and positions of folded words in one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._stop_words = frozenset(map(spelled, STOP_WORDS.get(language, ())))
        self._clitics = CLITICS.get(language, frozenset())
        has_stemmer = language in Stemmer.algorithms()
        self._stemmer = Stemmer.Stemmer(language, 0) if has_stemmer else None
        self._lock = threading.Lock()  # A stemmer is not safe to use from two threads.

    def terms(self, word: str) -> tuple[str, ...]:
        """Return the terms of a folded word."""
        if word.isascii() and word.isalnum():  # Most words have one part and one spelling.
            if word in self._stop_words:
                return ()
            stem = self._stem(word[:MAX_TERM_LENGTH])
            return (stem[:MAX_TERM_LENGTH],)  # A Turkish stem can be longer than its word.
        terms: list[str] = []
        for part in self._parts(word):
            for run, spaced in pieces(part):
                if run:
                    terms += segment(run)
                elif spaced and spaced not in self._stop_words:
                    terms.append(self._stem(spaced[:MAX_TERM_LENGTH]))
        return tuple([term[:MAX_TERM_LENGTH] for term in terms])

    def _parts(self, word: str) -> Iterator[str]:
        """Yield the parts between hyphens and apostrophes, and each hyphenated compound."""
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
        """Return the positions of a folded word, for phrases, a space after each."""
        positions: list[str] = []
        for compound in word.split("--"):
            members = [member.strip("'") for member in compound.split("-")]
            parts = [part for m in members for part in self._without_clitics(m) or [m]]
            whole = "".join(parts)
            for part in [whole] if joined and is_spaced(whole) else parts:
                for run, spaced in pieces(part):
                    positions += characters(run)
                    if spaced in self._stop_words:
                        positions.append(f"'{spaced}")  # No stem: `schön` has the stem `schon`.
                    elif spaced:
                        positions.append(self._stem(spaced[:MAX_TERM_LENGTH]))
        return "".join(f"{position[:MAX_TERM_LENGTH]} " for position in positions)

    def _stem(self, word: str) -> str:
        if self._language in _DROPPED_BEFORE_STEMMING:
            word = word if word.isascii() else without_accents(word)
        elif self._language == "arabic":
            word = _CONJUNCTION.sub("", word).replace("ى", "ي")  # After the stop words: على is one.
        if self._stemmer:
            with self._lock:
                word = self._stemmer.stemWord(word) or word
        if self._language in _DROPPED_AFTER_STEMMING:
            word = without_accents(word)
        return word.replace("ı", "i") if self._language == "turkish" else word


class Analysis(NamedTuple):
    """The index terms of a text.

    Attributes:
        words: The terms of words in order, with duplicates; their number is the length of the text.
        beside: Distinct other terms: of symbols, numbers, identifiers, codes and emoji
            (`beside.py`).
    """

    words: list[str]
    beside: list[str]


class QueryTerms(NamedTuple):
    """The index terms of a query.

    Attributes:
        times: By term, its number in the query, above 0.
        beside: The terms beside the words: a relevant chunk need not contain them.
    """

    times: Counter[str]
    beside: frozenset[str]

    def greatest(self, frequencies: Mapping[str, int], count: int) -> float:
        """Return the maximum possible score (`bm25.greatest`).

        A term beside the words that no chunk contains does not count.

        Args:
            frequencies: By term, the number of chunks that contain it.
            count: The number of chunks.
        """
        numbers = ((times, term, frequencies.get(term, 0)) for term, times in self.times.items())
        return greatest(((t, n) for t, term, n in numbers if n or term not in self.beside), count)


class Analyzer:
    """Turns text into index terms for one language; use `analyzer` to get one.

    Safe to use from many threads, which share its caches.

    Args:
        language: One of the values of `LANGUAGES`.
        max_cached_words: Maximum words in each of its caches.

    Raises:
        ValueError: The language is unknown.
    """

    def __init__(self, language: str, max_cached_words: int = _MAX_CACHED_WORDS) -> None:
        if language not in LANGUAGES.values():
            raise ValueError(
                f"{language!r} is not a language name; see corral.api.vector_dbs.LANGUAGES"
            )
        self.language = language
        self._rules = rules = _Rules(language)
        words = max_cached_words
        self._terms = _Cache(rules.terms, words, _MAX_CACHED_TERMS)
        self._spelled = _Cache(lambda part: tuple(self._folded(part)), words, _MAX_CACHED_TERMS)
        self._apart = _Cache(partial(rules.positions, joined=False), words)
        self._joined = _Cache(partial(rules.positions, joined=True), words)
        self._rules_beside = beside = Rules(
            self._of_name,
            rules.terms,  # Prefixes of codes would fill a cache.
            partial(folded, turkish=language == "turkish"),
            language,
        )
        self._beside = _Cache(beside.of, words, 16)

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a document or of a query, in order, with duplicates.

        Never raises, and depends only on the text, the language and `ANALYZER_VERSION` (and
        Python's Unicode version, for characters that are new to Unicode).
        Canonically equivalent texts, and a text before and after `clean_text`, have equal terms.
        A term has 1 to `MAX_TERM_LENGTH` characters: ASCII lower-case letters and digits, and
        letters, marks, numbers and symbols beyond ASCII. So any tokenizer that splits at white
        space, such as FTS5's `ascii`, returns terms that are joined by spaces unchanged.

        The terms beside the words follow the words, unless a word has the same term. A number in
        groups (`1,102,900`) is repeated for each group, so that it counts as much in a query as all
        groups.

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
        """Return the terms of a document, as `terms`: of its words, and beside them.

        Cost: as `terms`.
        """
        words, beside = self._words_of(text), self._beside_of(text)
        if not beside:
            return Analysis(words, [])
        held = frozenset(words)
        return Analysis(words, [one.term for one in beside if one.term not in held])

    def query(self, text: str) -> QueryTerms:
        """Return the counted terms of a query, as `terms`, from one analysis.

        Cost: as `terms`.
        """
        times = Counter(self._words_of(text))
        beside = [one for one in self._beside_of(text) if one.term not in times]
        times.update({one.term: one.times for one in beside})
        return QueryTerms(times, frozenset(one.term for one in beside))

    def _words_of(self, text: str) -> list[str]:
        if text.isascii():
            return list(self._folded(text))
        # Folding is the largest cost for other texts. No word rule looks beyond white space, so a
        # string without it has the same words in every text (tested).
        return list(chain.from_iterable(map(self._spelled.__getitem__, text.split())))

    def _beside_of(self, text: str) -> list[Beside]:
        """Return the terms beside the words of a text, each once."""
        return list({one.term: one for one in self._every_beside(text)}.values())

    def _every_beside(self, text: str) -> list[Beside]:
        text, parts, places = hinted(text)
        terms = list(chain.from_iterable(map(self._beside.__getitem__, parts)))
        return [*terms, *self._rules_beside.joined(text, places)] if places else terms

    def _folded(self, text: str) -> Iterator[str]:
        """Return the terms of a text, folding all of it."""
        return chain.from_iterable(map(self._terms.__getitem__, self._words(text)))

    def _of_name(self, name: str) -> Sequence[str]:
        """Return the terms of letters and digits."""
        if (
            name.isascii() and self.language != "turkish"
        ):  # In this language, the lower case of I is another letter.
            return self._terms[name.lower()]
        return list(self._folded(name))

    def words(self, text: str, terms: Iterable[str]) -> list[str]:
        """Return the distinct words of a text that have one of these terms, as written there.

        They are in the order in which they first appear. For a compound with hyphens or
        apostrophes, the word is the part with the term, or the whole if no part has it. In scripts
        without spaces, it is the characters and pairs that are terms. For a term beside the words,
        it is the symbol, number or identifier. Words longer than `MAX_TERM_LENGTH` are left out.

        Cost: linear in the text.
        """
        targets = frozenset(terms)
        words: dict[str, None] = {}
        for word, parts in written(text).items() if targets else ():
            matching = [each for part in parts for each in self._matching(part, targets)]
            if not matching and len(parts) > 1 and is_spaced(word):
                matching = self._matching(word, targets)
            words |= dict.fromkeys(matching)
        beside = {one.written for one in self._every_beside(text) if one.term in targets}
        if (
            new := {one for one in beside if one in text and len(one) <= MAX_TERM_LENGTH}
            - words.keys()
        ):
            return sorted([*words, *sorted(new)], key=text.find)
        return list(words)

    def marks(self, text: str) -> frozenset[str]:
        """Return the terms of the words that a symbol belongs to: of `C++`, `#tag` and `R&D`."""
        return frozenset(one.term for one in self._every_beside(text) if is_marked(one.term))

    def _matching(self, word: str, targets: frozenset[str]) -> list[str]:
        """Return a word if it has one of the terms; for a run without spaces, its segments."""
        if not is_spaced(word):
            segments = dict.fromkeys(written_segments(word))
            return [one for one in segments if targets.issuperset(self.terms(one))]
        is_match = len(word) <= MAX_TERM_LENGTH and not targets.isdisjoint(self.terms(word))
        return [word] if is_match else []

    def sequence(self, text: str) -> tuple[str, str]:
        """Return a text's positions, with spaces around each, for phrase search: a phrase of the
        text is a substring of this string.

        A position is a stem, or a stop word after an apostrophe; in scripts without spaces it is
        a character. A hyphenated compound is in parts in the first string (` e 4711 `), and one
        position in the second (` e4711 `). A phrase is in a text if its first string is in the
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
