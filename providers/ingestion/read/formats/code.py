"""Locate the classes and functions in source code, with the grammars of tree-sitter."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from corral.providers.ingestion.read.formats.common import package, reading
from corral.providers.ingestion.split.headings import MAX_HEADING_LENGTH, Heading

LANGUAGES = {
    "text/x-python": ("python", "language"),
    "text/javascript": ("javascript", "language"),
    "text/x-typescript": ("typescript", "language_typescript"),
    "text/x-tsx": ("typescript", "language_tsx"),
    "text/x-go": ("go", "language"),
    "text/x-rust": ("rust", "language"),
    "text/x-java": ("java", "language"),
    "text/x-c": ("c", "language"),
    "text/x-c++": ("cpp", "language"),
    "text/x-csharp": ("c_sharp", "language"),
    "text/x-ruby": ("ruby", "language"),
    "text/x-php": ("php", "language_php"),
    "text/x-shellscript": ("bash", "language"),
}
"""The grammar's package (without its prefix) and function, by MIME type."""

_DEFINES = re.compile(
    r"(?:function|method|class|struct|enum|interface|trait|impl|union|module|mod|namespace|"
    r"constructor|record|singleton_method|object|type_alias)"
    r"(?:_(?:definition|declaration|item|specifier|spec|signature))?|type_spec"
)
_WRAPS = re.compile(
    r"(?:decorated|export|template|ambient|type)_(?:definition|declaration|statement)"
)
_VARIABLES = {"lexical_declaration", "variable_declaration"}
_FUNCTIONS = {"arrow_function", "function_expression", "function", "class", "generator_function"}
_CLOSING = re.compile(r"(?:[\s;})]|end\b)*")
_COMMENT = re.compile(r".*comment|attribute_item|decorator")
_MAX_LEVEL = 8


def symbols(text: str, kind: str) -> tuple[Heading, ...]:
    """Return the classes and functions of source code as nested headings.

    Comments and decorators right above a definition belong to it. If code follows the end of a
    definition and no other definition begins there, a heading without text marks the place. In code
    with syntax errors, the complete definitions are still found.

    Args:
        text: The code.
        kind: A MIME type in `LANGUAGES`.

    Raises:
        MissingDependency: The grammar is not installed.
    """
    name, function = LANGUAGES[kind]
    sitter = package("tree_sitter", "tree-sitter", "source code")
    grammar = package(f"tree_sitter_{name}", f"tree-sitter-{name.replace('_', '-')}", "source code")
    language = sitter.Language(getattr(grammar, function)())
    data = text.encode()
    root = reading("source code", lambda: sitter.Parser(language).parse(data)).root_node
    return tuple(_Places(text, data).of(_walk(root)))


def _walk(root: Any) -> Iterator[tuple[int, int, int, str]]:
    """Yield (first byte, end byte, level, name) of each definition, in order."""
    stack: list[tuple[Any, int]] = [(root, 1)]
    while stack:
        node, level = stack.pop()
        name = _name(node)
        if name:
            yield _first_byte(node), node.end_byte, level, name
        if level < _MAX_LEVEL:
            below = level + bool(name)
            stack += [(child, below) for child in reversed(node.named_children)]


def _name(node: Any) -> str:
    """Return the name of a definition; "" if the node is not a definition."""
    if node.type in _VARIABLES:
        return _name_of_function(node)
    if not node.is_named or not _DEFINES.fullmatch(node.type):
        return ""
    if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
        return ""  # A mere mention of a type in C, such as `struct s`, has no body.
    named = node.child_by_field_name("type" if node.type == "impl_item" else "name")
    below = node.child_by_field_name("declarator")
    while named is None and below is not None:  # In C, the name is nested in declarators.
        inner = below.child_by_field_name("declarator")
        named, below = (below, None) if inner is None else (None, inner)
    return _text(named) if named is not None else ""


def _name_of_function(node: Any) -> str:
    """Return the name of a variable that holds a function, as is common in JavaScript; else ""."""
    for child in node.named_children:
        value = child.child_by_field_name("value")
        if value is not None and value.type in _FUNCTIONS:
            return _text(child.child_by_field_name("name"))
    return ""


def _text(node: Any) -> str:
    return " ".join(node.text.decode("utf-8", "replace").split())[:MAX_HEADING_LENGTH]


def _first_byte(node: Any) -> int:
    """Return the first byte of a definition, including decorators and comments right above it."""
    while node.parent is not None and _WRAPS.fullmatch(node.parent.type):
        node = node.parent
    above = node.prev_named_sibling
    while (
        above is not None
        and _COMMENT.fullmatch(above.type)
        and node.start_point[0] - _last_line(above) <= 1
        and (above.prev_sibling is None or _last_line(above.prev_sibling) < above.start_point[0])
    ):
        node, above = above, above.prev_named_sibling
    start: int = node.start_byte
    return start


def _last_line(node: Any) -> int:
    """Return the line on which a node ends; the end of some nodes includes the line break."""
    line: int
    line, column = node.end_point
    return line - 1 if column == 0 else line


class _Places:
    """Converts byte offsets, which tree-sitter uses, to characters, and definitions to headings."""

    def __init__(self, text: str, data: bytes) -> None:
        self._text = text
        self._is_ascii = len(text) == len(data)
        lines = text.split("\n")
        self._characters = [0, *accumulate(len(line) + 1 for line in lines)]
        self._bytes = [0, *accumulate(len(line.encode()) + 1 for line in lines)]

    def of(self, found: Iterator[tuple[int, int, int, str]]) -> list[Heading]:
        """Return the headings of definitions in order; one without text marks code in between."""
        headings: list[Heading] = []
        ends: list[tuple[int, int]] = []  # End and level of each open definition.

        def close(until: int) -> None:
            while ends and ends[-1][0] <= until:
                end, level = ends.pop()
                last = min(until, ends[-1][0]) if ends else until
                closing = _CLOSING.match(self._text, end, last)
                if closing and closing.end() < last:
                    headings.append(Heading(closing.end(), closing.end(), level, ""))

        for first, last, level, name in found:
            start = self._line_start(self._character(first))
            close(start)
            headings.append(Heading(start, start, level, name))
            ends.append((self._character(last), level))
        close(len(self._text))
        return headings

    def _line_start(self, position: int) -> int:
        """Return the start of the line if only white space precedes the position in it."""
        begin = self._text.rfind("\n", 0, position) + 1
        return position if self._text[begin:position].strip() else begin

    def _character(self, byte: int) -> int:
        if self._is_ascii:
            return byte
        line = bisect_right(self._bytes, byte) - 1
        head = self._text[self._characters[line] : self._characters[line + 1]].encode()
        return self._characters[line] + len(
            head[: byte - self._bytes[line]].decode("utf-8", "ignore")
        )
