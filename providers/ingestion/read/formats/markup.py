"""Find the headings of reStructuredText, AsciiDoc, Org and LaTeX; the text stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from corral.providers.ingestion.split.headings import MAX_HEADING_LENGTH, Heading, plain

RST = "text/x-rst"
ASCIIDOC = "text/asciidoc"
ORG = "text/org"
LATEX = "text/x-tex"

# None of these patterns backtracks, because a single line may be as long as a whole document.
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_MIN_ADORNMENT = 3
_ASCIIDOC = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ASCIIDOC_BLOCK = re.compile(r"(-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|```|--)")
_ORG = re.compile(r"(\*+)[ \t]+(\S.*)")
_ORG_WORDS = re.compile(r"(?:TODO|DONE)[ \t]+|\[#[A-Z0-9]\][ \t]+")
_ORG_TAGS = re.compile(r"[ \t]:[\w@#%:]+:$")
_LATEX = re.compile(
    r"\\(part|chapter|section|subsection|subsubsection|paragraph)\*?(?:\[[^\[\]\n]*\])?\{"
)
_LATEX_LEVELS = {
    name: level
    for level, name in enumerate(
        ("part", "chapter", "section", "subsection", "subsubsection", "paragraph"), 1
    )
}

Line = tuple[int, str]


def headings(text: str, kind: str) -> tuple[Heading, ...]:
    """Return the headings of a text in order; none for a type that is not supported."""
    find = _FINDERS.get(kind)
    return tuple(find(text)) if find else ()


def _lines(text: str) -> Iterator[Line]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _heading(line: Line, level: int, marked: str, end: int | None = None) -> Iterator[Heading]:
    shown = plain(marked)
    if shown:
        yield Heading(line[0], line[0] + len(line[1]) if end is None else end, level, shown)


def _rst(text: str) -> Iterator[Heading]:
    """Yield underlined titles; the level is the order in which their style first appears."""
    styles: dict[str, int] = {}
    (begin, above), (start, title) = (0, ""), (0, "")  # The two previous lines.
    for under_start, line in _lines(text):
        under, words = line.rstrip(), title.strip()
        if (
            words
            and len(under) >= max(_MIN_ADORNMENT, len(words))
            and _ADORNMENT.fullmatch(under)
            and not _ADORNMENT.fullmatch(words)
        ):
            has_overline = above == under
            # Otherwise the line belongs to a table or ends a paragraph.
            if has_overline or not (title[0].isspace() or above):
                style = under[0] + ("=" if has_overline else "")
                level = styles.setdefault(style, len(styles) + 1)
                first = begin if has_overline else start
                yield from _heading((first, title), level, title, under_start + len(under))
        (begin, above), (start, title) = (start, title.rstrip()), (under_start, line)


def _asciidoc(text: str) -> Iterator[Heading]:
    """Yield the titles outside of delimited blocks."""
    block = ""
    for line in _lines(text):
        stripped = line[1].rstrip()
        if block or _ASCIIDOC_BLOCK.fullmatch(stripped):
            block = ("" if stripped == block else block) if block else stripped
        elif match := _ASCIIDOC.fullmatch(stripped):
            yield from _heading(line, len(match[1]), match[2])


def _org(text: str) -> Iterator[Heading]:
    inside = False
    for line in _lines(text):
        lower = line[1].strip().lower()
        inside = (inside or lower.startswith("#+begin_")) and not lower.startswith("#+end_")
        if not inside and (match := _ORG.fullmatch(line[1])):
            yield from _heading(
                line, len(match[1]), _ORG_TAGS.sub("", _ORG_WORDS.sub("", match[2]))
            )


def _latex(text: str) -> Iterator[Heading]:
    for line in _lines(text):
        if match := _LATEX.match(line[1].lstrip()):
            inside = line[1].lstrip()[match.end() :][: 2 * MAX_HEADING_LENGTH]
            title = re.sub(r"\\[A-Za-z]+\*?|[{}~]", " ", _to_brace(inside))
            yield from _heading(line, _LATEX_LEVELS[match[1]], title)


def _to_brace(text: str) -> str:
    """Return a text up to its closing brace."""
    depth = 1
    for at, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if not depth:
            return text[:at]
    return text


_FINDERS: dict[str, Callable[[str], Iterator[Heading]]] = {
    RST: _rst, ASCIIDOC: _asciidoc, ORG: _org, LATEX: _latex,
}  # fmt: skip
