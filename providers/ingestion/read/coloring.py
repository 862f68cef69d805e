"""Colors of code: its texts in pieces with the class of each. Nothing here makes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

MAX_CHARACTERS = 200_000
"""Maximum length of all texts together; longer ones stay without colors."""

PROSE = (".md", ".markdown", ".rst", ".txt", ".tex", ".html", ".htm", ".xml", ".eml")
"""Documents that are read as text and not as code, although there is a lexer for them."""

CLASSES: tuple[tuple[Any, str], ...] = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Decorator, "name"),
    (Name.Tag, "keyword"),
    (Name.Attribute, "name"),
    (Name.Builtin, "builtin"),
    (Number, "number"),
    (Operator.Word, "keyword"),
    (String, "string"),
)
"""The class of each kind of token; others have none."""


Pieces: TypeAlias = list[tuple[str, str]]
"""A text in pieces: the class of each, "" for no class, and its text."""

# A fence may be indented in a list. A block that is cut off ends with the text.
_FENCED = re.compile(
    r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]+)[^`\n]*\n(.*?)(?:^[ \t]*\2[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def colored_blocks(texts: Sequence[str]) -> list[list[Pieces]] | None:
    """Return the fenced code blocks of each Markdown text; None if no text has one.

    Only blocks of a known language are returned, and without the fence's indentation.
    """
    if sum(map(len, texts)) > MAX_CHARACTERS:
        return None
    blocks = [[*filter(None, map(_block, _FENCED.finditer(text)))] for text in texts]
    return blocks if any(blocks) else None


def _block(fenced: re.Match[str]) -> Pieces:
    """Return a code block in pieces; empty for an unknown language."""
    indentation, _, language, code = fenced.groups()
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    lines = code.removesuffix("\n").split("\n")
    text = "\n".join(re.sub(rf"^[ \t]{{0,{len(indentation)}}}", "", line) for line in lines)
    return _pieces(lexer, text)


def colored(texts: Sequence[str], filename: str) -> list[Pieces] | None:
    """Return each text in pieces; None if it is not code.

    The pieces of a text join to the text. A piece of a file is read as if the file began there.
    """
    lexer = _lexer(filename)
    if lexer is None or sum(map(len, texts)) > MAX_CHARACTERS:
        return None
    return [_pieces(lexer, text) for text in texts]


def _lexer(filename: str) -> Any:
    if filename.lower().endswith(PROSE):
        return None
    try:
        lexer = get_lexer_for_filename(filename, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return None if isinstance(lexer, TextLexer) else lexer


def _pieces(lexer: Any, text: str) -> Pieces:
    pieces: Pieces = []
    for _, kind, value in lexer.get_tokens_unprocessed(text):
        name = next((name for token, name in CLASSES if kind in token), "")
        if pieces and pieces[-1][0] == name:
            pieces[-1] = (name, pieces[-1][1] + value)
        else:
            pieces.append((name, value))
    return pieces if "".join(piece for _, piece in pieces) == text else [("", text)]
