"""The query syntax `web`: a chunk must contain "quoted phrases" and must not contain -words.

`parse` parses a query, and `Checker` checks chunks against it. The words of a query and of its
phrases are searched as in a plain query; the syntax only rejects chunks. AND, OR, colons, asterisks
and brackets are text.

* A phrase is in a pair of quotation marks of any kind: "a", “a”, „a“, ”a”, «a», »a«, ‹a›, 「a」,
  『a』, 〝a〞. A mark without its counterpart is text. A mark that can also close a phrase does not
  open one after a letter or a digit (5" pipe), except in scripts without spaces.
* A minus at the beginning of a word, before a letter, a digit or a phrase, excludes that word or
  phrase. Elsewhere it is text: `e-mail`, `a - b`, `--help`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.providers.text.analyzer import Analyzer, analyzer
from corral.providers.text.fields import field_texts
from corral.providers.text.words import UNSPACED

_NOT_AFTER_LETTER = f"(?<![^\\W{UNSPACED}])"
# (opening mark, closing marks, True if the opening mark can also close)
_PAIRS = [
    ('"', '"', True),
    ("＂", "＂", True),
    ("“", "”", False),
    ("„", "“”", False),
    ("‟", "”", False),
    ("”", "”", True),
    ("«", "»", False),
    ("»", "«»", True),
    ("‹", "›", False),
    ("›", "‹›", True),
    ("「", "」", False),
    ("『", "』", False),
    ("｢", "｣", False),
    ("﹁", "﹂", False),
    ("﹃", "﹄", False),
    ("〝", "〞〟", False),
]
_MARKS = "".join(sorted({mark for opening, closing, _ in _PAIRS for mark in opening + closing}))
# A phrase does not contain its own marks, so parsing stays linear even if a text is all marks.
_QUOTED = "|".join(
    f"{_NOT_AFTER_LETTER if both else ''}{opening}([^{opening}{closing}]+)[{closing}]"
    for opening, closing, both in _PAIRS
)
_LETTER = f"[^\\W_{UNSPACED}]"
_EXCLUDED = f'[^\\W_](?:[^\\s{_MARKS}]|(?<={_LETTER})"(?={_LETTER}))*'  # Hebrew writes צה"ל
_PART = re.compile(f"(?P<minus>(?<!\\S)[-－−])?(?:{_QUOTED})|(?<!\\S)[-－−](?P<word>{_EXCLUDED})")

MAX_PARTS = 100
"""Maximum number of phrases and exclusions of a query; each is checked in up to 1,000 chunks."""


@dataclass(frozen=True, slots=True)
class WebQuery:
    """A parsed query.

    Attributes:
        words: Words outside of phrases, as written, including punctuation.
        phrases: A chunk must contain all of them.
        excluded_words: A chunk must contain none of them.
        excluded_phrases: A chunk must contain none of them.
        embedded_text: The text to embed: the query without excluded parts and quotation marks. A
            query without syntax is unchanged.
    """

    words: tuple[str, ...]
    phrases: tuple[str, ...]
    excluded_words: tuple[str, ...]
    excluded_phrases: tuple[str, ...]
    embedded_text: str

    @property
    def text(self) -> str:
        """The text that the keyword leg searches: the words, then the phrases."""
        return " ".join((*self.words, *self.phrases))

    @property
    def restricts(self) -> bool:
        """True if the query can reject chunks: it has a phrase or an exclusion."""
        return bool(self.phrases or self.excluded_words or self.excluded_phrases)


def parse(text: str) -> WebQuery:
    """Parse a query, in time linear in its length.

    Args:
        text: Any text, without invisible characters (`clean_text`), which could hide a minus.

    Raises:
        InvalidRequest: The query has only exclusions, or more than `MAX_PARTS` phrases and
            exclusions.
    """
    words: list[str] = []
    included: list[str] = []
    syntax: dict[str, list[str]] = {"phrase": [], "excluded word": [], "excluded phrase": []}
    for kind, part in _parts(text):
        if kind == "words":
            words += part.split()
        else:
            syntax[kind].append(" ".join(part.split()))
            _check_count(syntax)
        if kind in {"words", "phrase"}:
            included.append(part)
    embedded = text if not any(syntax.values()) else " ".join(" ".join(included).split())
    if not embedded.strip() and any(syntax.values()):
        raise InvalidRequest(
            "The query has only exclusions.",
            hint="Add a word or a quoted phrase to look for.",
            field="query",
        )
    phrases, excluded_words, excluded_phrases = map(tuple, syntax.values())
    return WebQuery(tuple(words), phrases, excluded_words, excluded_phrases, embedded)


def _check_count(syntax: Mapping[str, Sequence[str]]) -> None:
    if sum(map(len, syntax.values())) > MAX_PARTS:
        raise InvalidRequest(
            f"The query has more than {MAX_PARTS} phrases and exclusions.",
            hint="Leave some out, or ask without query_syntax.",
            field="query",
        )


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) in the order of the query; `parse` lists the kinds."""
    end = 0
    for match in _PART.finditer(text):
        quoted = match["word"] is None
        part = next(group for group in reversed(match.groups()) if group is not None)
        if not any(map(str.isalnum, part)):
            continue  # Quoted punctuation has no word to search.
        yield "words", text[end : match.start()]
        end = match.end()
        if not quoted:
            yield "excluded word", part
        else:
            yield "excluded phrase" if match["minus"] else "phrase", part
    yield "words", text[end:]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A phrase or a word that a chunk must or must not contain.

    Attributes:
        sequence: Its terms in order, as `Analyzer.sequence` returns them.
        marks: Its words with symbols, as `Analyzer.marks` returns them.
        excluded: True if a chunk must not contain it.
        refusal: The reason for rejecting a chunk.
    """

    sequence: tuple[str, str]
    marks: frozenset[str]
    excluded: bool
    refusal: str


class Checker:
    """Checks chunks against the phrases and exclusions of one query.

    A chunk contains a phrase if the words of the phrase follow each other in one field. Words are
    folded and stemmed as in the keyword index of the language, and stop words count.
    `"running shoes"` matches `He runs. Shoe!`, since punctuation is not a word, and -run excludes
    `running`. In scripts without spaces, characters are compared in place of words. Hyphenated
    words are compared in parts and as a whole. Symbols that belong to a word count: -C++ does not
    exclude `C#`.

    The cost is linear in the length of the texts: less than 0.1 s for 1,000 chunks of 200 words.
    Checkers are safe to use from many threads.

    Args:
        query: The parsed query.
        language: Language of the vector DB.
        fields: Fields to check, metadata or `content`: the keys of the vector DB's `field_weights`.
    """

    def __init__(self, query: WebQuery, language: str, fields: Iterable[str]) -> None:
        self._analyzer = analyzer(language)
        self._fields = tuple(fields)
        self._rules = list(_rules(query, self._analyzer))

    def refusal(self, chunk: Chunk) -> str | None:
        """Return the reason to reject a chunk, e.g. `excluded word 'bank'`; None to accept it."""
        if not self._rules:
            return None
        fields = list(field_texts(chunk, self._fields, with_context=False))
        texts = [self._analyzer.sequence(text) for text in fields]
        marked = any(rule.marks for rule in self._rules)
        marks = [self._analyzer.marks(text) if marked else frozenset() for text in fields]
        for rule in self._rules:
            is_present = any(
                part in whole and rule.marks <= with_symbols
                for text, with_symbols in zip(texts, marks, strict=True)
                for part, whole in zip(rule.sequence, text, strict=True)
            )
            if is_present == rule.excluded:
                return rule.refusal
        return None


def _rules(query: WebQuery, language: Analyzer) -> Iterator[_Rule]:
    """Yield a rule for each part of the query that has a word in this language."""
    kinds = [
        (query.excluded_words, True, "excluded word {!r}"),
        (query.excluded_phrases, True, "excluded phrase {!r}"),
        (query.phrases, False, "phrase {!r} is missing"),
    ]
    for parts, excluded, refusal in kinds:
        for part in parts:
            sequence = language.sequence(part)
            if sequence[0].strip():
                yield _Rule(sequence, language.marks(part), excluded, refusal.format(part))
