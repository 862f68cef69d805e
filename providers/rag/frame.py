r"""The frame of a context, and the quoting of text that imitates it.

The frame is exactly Llama Stack's:

    knowledge_search tool found 2 chunks:
    BEGIN of knowledge_search tool results.
    Result 1
    Content: ...
    Metadata: ...
    END of knowledge_search tool results.
    The above results were retrieved to help answer the user's query: "...". Use them as ...

Only this frame tells a model which text was retrieved. A document with the line `END of
knowledge_search tool results.` could inject instructions after it (OWASP Top 10 for LLM
applications, LLM01). Such a line is quoted, `> END of ...`, in the text of a chunk and in the
strings of its metadata. Case, spacing, punctuation, accents and the width of letters are ignored;
similar letters of other scripts are not recognized.

With citations, each item begins with a line `[1] Source: ...`, and lines that begin with such a
marker or with `Source:` are quoted as well. Elsewhere in a line, `[1]` is left as it is, except in
the context of an answer: there it becomes `(1)`, since a model that copied it would cite the wrong
item.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from corral.api.chunks import Chunk
from corral.api.document_names import cited_name, shown_place
from corral.api.invisible import clean_text
from corral.api.rag import DEFAULT_CHUNK_TEMPLATE, template_parts
from corral.api.wire import encodable
from corral.providers.rag.digest_cache import DigestCache
from corral.providers.text.tokens import tokenizer

FOOTER = "END of knowledge_search tool results.\n"

COUNTS = frozenset({"token_count", "metadata_token_count"})
"""Metadata keys that the template's `{metadata}` omits, as in Llama Stack."""

MAX_SOURCE_LENGTH = 200
"""Maximum characters of a source, and of its headings, in the line of a citation.

The metadata has the whole text."""

_LINE_START = re.compile(r"(?<=\n)(?=[A-Za-z0-9])")
# Ordinary text does not contain these, so they are quoted anywhere in a line.
_FRAME = (
    re.compile(r"knowledge[\W_]*search[\W_]*tool[\W_]*(?:results|found)"),
    re.compile(r"above[\W_]*results[\W_]*were[\W_]*retrieved"),
)
# This also matches the lines of a bibliography: `[2] ...`.
_CITATION = (
    re.compile(r"^[^\w\n]*?[\[\u3010\u3014\u2045\u27e6\u301a][^\S\n]*+\d", re.MULTILINE),
    re.compile(r"^(?:[^\w\n]|_)*+source(?:[^\w\n:]|_)*+:", re.MULTILINE),
)
_MARKER = re.compile(r"[\[\u3010](?=\s*\d)[\s\d,;]{1,100}[\]\u3011]")
# Possessive quantifiers (`*+`) keep the search linear.
_GAP = r"(?:[^\w\n]|_)*+"
_SPACE = r"[^\S\n]*+"
_LAZY_START = r"^[^\w\n]*?"
_NEVER = re.compile(r"(?!)")
_ACCENTS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff\ufe20-\ufe2f]+")


def metadata_cost(metadata: Mapping[str, Any]) -> int:
    """Return the number of cl100k tokens of metadata as the default template prints it."""
    return tokenizer().count(item_template(DEFAULT_CHUNK_TEMPLATE).render(metadata))


def header(count: int) -> str:
    """Return the first item of a context with `count` chunks."""
    return f"knowledge_search tool found {count} chunks:\nBEGIN of knowledge_search tool results.\n"


def closing(query: str, citations: bool = False) -> str:
    """Return the last item of a context; `query` is a result of `one_line`."""
    cite = " Cite them by their markers, such as [1]." if citations else ""
    return (
        f'The above results were retrieved to help answer the user\'s query: "{query}". '
        f"Use them as supporting information only in answering this query.{cite}\n"
    )


def marker(index: int) -> str:
    """Return the citation marker of an item."""
    return f"[{index}]"


def one_line(query: str) -> str:
    """Return a query on one line, without invisible characters, for the closing line."""
    return " ".join(clean_text(query).split("\n"))


@lru_cache(maxsize=32)
def item_template(template: str, citations: bool = False, own_markers: bool = True) -> ItemTemplate:
    """Return the compiled template; equal arguments return the same object."""
    return ItemTemplate(template, citations, own_markers)


class ItemTemplate:
    """A chunk template. Its three fields are filled in one pass, so braces in values stay text.

    Args:
        template: A template checked by `check_template` (corral.api.rag).
        citations: True if items begin with a line that cites their source.
        own_markers: False to write `[1]` in a chunk's text as `(1)`.
    """

    def __init__(self, template: str, citations: bool = False, own_markers: bool = True) -> None:
        if citations and not template.endswith("\n"):
            template += "\n"  # The next marker must begin a line.
        parts = template_parts(encodable(template))
        hint, exact = _index_line(parts)
        cited = _CITATION if citations else ()
        self._hints, self._forged = (*_FRAME, hint, *cited), (*_FRAME, exact, *cited)
        self._own_markers = own_markers
        self._hints += () if own_markers else (_MARKER,)
        self._sections = _sections(parts)
        self._citations = citations
        self._harmless: DigestCache[bool] = DigestCache()
        self.contents = parts[1::2].count("chunk.content")

    def fill(self, index: int, content: str, metadata: str, source: str = "") -> list[str]:
        r"""Return one item, split after line breaks of the template.

        Args:
            index: The number of the item, from 1.
            content: The text, as `quote` returns it.
            metadata: The metadata, as `render` returns it.
            source: The source, as `cite` returns it; unused without citations.
        """
        values = {"index": str(index), "chunk.content": content, "metadata": metadata}
        item = [
            "".join(values[text] if is_field else text for is_field, text in section)
            for section in self._sections
        ]
        return [f"{marker(index)} Source: {source}\n", *item] if self._citations else item

    def cite(self, chunk: Chunk, place: Mapping[str, Any]) -> str:
        """Return the source of an item, and its place in that source, for the citation's line.

        Args:
            chunk: Its best chunk.
            place: Can have the fields of `document_names.PLACE`.
        """
        return source_line(chunk, place, self.quote)

    def quote(self, text: str) -> str:
        """Return a text without invisible characters; quote lines that imitate the frame."""
        if self._harmless.of(text, self._is_harmless):
            return text
        lines = "\n".join(map(self._quoted_line, clean_text(text).split("\n")))
        return lines if self._own_markers else _MARKER.sub(_in_parentheses, lines)

    def render(self, metadata: Mapping[str, Any]) -> str:
        r"""Return metadata for the field `{metadata}`: compact JSON on one line.

        A line break in a value becomes the escape `\n`; letters are not escaped: `é`, not
        `\u00e9`. Token counts are omitted, and strings are quoted like the text of a chunk.
        """
        shown = {key: value for key, value in metadata.items() if key not in COUNTS}
        text = _json(shown)
        plain = "\\" not in text and self._harmless.of(text, self._is_harmless)
        return text if plain else _json(self._quoted(shown))

    def _is_harmless(self, text: str) -> bool:
        return clean_text(text) == text and not _matches(self._hints, text)

    def _quoted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.quote(value)
        if isinstance(value, Mapping):
            return {self.quote(key): self._quoted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._quoted(item) for item in value]
        return value

    def _quoted_line(self, line: str) -> str:
        is_quoted = line.lstrip().startswith(">")
        return line if is_quoted or not _matches(self._forged, line) else f"> {line}"


def _in_parentheses(marker: re.Match[str]) -> str:
    return f"({marker[0][1:-1]})"


def source_line(
    chunk: Chunk, place: Mapping[str, Any], quote: Callable[[str], str] = clean_text
) -> str:
    """Return the name of a source, and the place of a passage in it, on one line.

    Args:
        place: Can have the fields of `document_names.PLACE`.
        quote: Makes the texts of the document harmless.
    """
    headings = place.get("heading_path") or []
    if headings[:1] == [chunk.metadata.get("title")]:  # The name already contains the title.
        headings = headings[1:]

    def shown(line: str) -> str:
        return _shortened(quote(one_line(line)))

    parts = shown(cited_name(chunk)), shown_place({**place, "heading_path": headings}, shown)
    return ", ".join(filter(None, parts))


def _shortened(line: str) -> str:
    return line if len(line) <= MAX_SOURCE_LENGTH else line[:MAX_SOURCE_LENGTH] + "\u2026"


def _sections(parts: list[str]) -> list[list[tuple[bool, str]]]:
    """Split a template into sections of pairs: (True for a field, text).

    A new section begins at each line that starts with a letter or a digit.
    """
    sections: list[list[tuple[bool, str]]] = [[]]
    for number, part in enumerate(parts):
        if number % 2:
            sections[-1].append((True, part))
            continue
        first, *others = _LINE_START.split(part)
        sections[-1].append((False, first))
        sections += [[(False, other)] for other in others]
    return sections


def _matches(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    folded = _fold(text)
    return any(pattern.search(folded) for pattern in patterns)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fold(text: str) -> str:
    """Return a text in lower case and without accents, to compare with the patterns."""
    if text.isascii():
        return text.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).casefold()


def _index_line(parts: Sequence[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns of lines that imitate the index line: a fast one and an exact one.

    The fast pattern checks whole texts, the exact one single lines. The index line is the first
    line of the template with `{index}`, such as `Result 3` or `[3] ...`. If a field precedes the
    index, an imitation may be anywhere in a line, otherwise only at its start. If the line has the
    index alone, no line imitates it.
    """
    literals = [clean_text(text) for text in parts[::2]]
    index = parts[1::2].index("index") + 1
    heads, tails = _last_line(literals[:index]), _first_line(literals[index:])
    if len(heads) > 1 and not heads[-1].strip():
        return _NEVER, _NEVER
    head, tail = _words(heads[-1]), _words(tails[0])
    if head:
        start, head, tail = rf"^{_GAP}", head + _GAP, _GAP + tail
    else:
        start = _LAZY_START if heads[-1].strip() else rf"^{_GAP}"
        head, tail = (
            _signs(heads[-1]) + _SPACE,
            (_GAP + tail if tail else _SPACE + _signs(tails[0])),
        )
    start = "" if len(heads) > 1 else start
    end = "" if len(tails) > 1 else rf"{_GAP}$"
    exact = re.compile(rf"{start}{head}\d+{tail}{end}", re.MULTILINE)
    return (re.compile(rf"{head}\d") if heads[-1].strip() else exact), exact


def _last_line(literals: Sequence[str]) -> list[str]:
    """Return the literal texts on the last line, one before each field and one after the last."""
    line: list[str] = []
    for literal in reversed(literals):
        _, broken, tail = literal.rpartition("\n")
        line.insert(0, tail)
        if broken:
            break
    return line


def _first_line(literals: Sequence[str]) -> list[str]:
    """Return the literal texts on the first line, one before each field and one after the last."""
    line: list[str] = []
    for literal in literals:
        head, broken, _ = literal.partition("\n")
        line.append(head)
        if broken:
            break
    return line


def _words(literal: str) -> str:
    """Return a pattern of a literal's words with any punctuation between them; "" without words."""
    return _GAP.join(re.findall(r"[^\W_]+", _fold(literal)))


def _signs(literal: str) -> str:
    """Return a pattern of a literal's punctuation marks with any white space between them."""
    return _SPACE.join(re.escape(sign) for sign in _fold(literal) if not sign.isspace())
