"""Tokenizers: count the tokens of a text, and cut it to a number of tokens.

`cl100k` and `o200k` are OpenAI's byte-level BPE vocabularies; their tables come with the package
`rs_bpe`, nothing is downloaded. `bytes` counts UTF-8 bytes, the only hard upper bound for every
byte-level BPE, for models with another vocabulary. `embedder` is the tokenizer of the vector DB's
embedding model, if the model has one in this process.

Token counts do not add up: a joined text can have a few tokens fewer or more than its parts, except
at some seams (`seam`). A token budget must be checked on the joined text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, Protocol

from rs_bpe.bpe import openai

from corral.api.embedder import TextTokenizer
from corral.api.errors import InvalidRequest
from corral.api.wire import encodable

DEFAULT_TOKENIZER = "cl100k"
EMBEDDER = "embedder"

MAX_CHARACTERS_PER_TOKEN = 128
"""The longest token of a vocabulary here is 128 spaces, so a text of more than 128 n characters has
more than n tokens. An embedder's tokenizer has no such limit (white space can be free, a long word
one token), but a text with more characters per token still counts as too long, and is not read."""

_CL100K_TOKENS = 100_256  # Without the five special tokens, which have no text.
_CHARACTERS_PER_TOKEN = 6  # The first guess; English has 4.


class Tokenizer(Protocol):
    """Counts and cuts texts. Safe to use from many threads at once."""

    @property
    def name(self) -> str:
        """The name in a query."""

    @property
    def adds_up(self) -> bool:
        r"""True if counts add up at each `seam`: count(a + b) == count(a) + count(b)."""

    def count(self, text: str) -> int:
        """Return the number of tokens of the text; 0 for an empty text."""

    def count_within(self, text: str, max_tokens: int) -> int | None:
        """Return the number of tokens of the text if it is at most max_tokens, else None.

        Stops at the limit, so a long text that does not fit takes no more time than a short one.
        """

    def cut(self, text: str, max_tokens: int) -> str:
        """Return the longest prefix that ends at a token boundary and has <= max_tokens tokens.

        The prefix is counted by itself, never splits a character, and is empty for max_tokens < 1.
        """

    def nearly(self, text: str) -> Callable[[str], int]:
        """Return an approximate counter for parts of a text, for a search of boundaries.

        A slow tokenizer reads the whole text once; a part has the tokens that end within it.
        """


def tokenizer(name: str = DEFAULT_TOKENIZER) -> Tokenizer:
    """Return the tokenizer with a name, the same object at each call.

    Args:
        name: `cl100k` (GPT-4 and its generation), `o200k` (GPT-4o and later), or `bytes`.
            For `embedder` see `own_tokenizer`.

    Raises:
        InvalidRequest: The name is unknown.
    """
    if name not in _MAKERS:
        raise InvalidRequest(
            f"Unknown tokenizer {name!r}.",
            hint=f"Valid tokenizers: {', '.join([*_MAKERS, EMBEDDER])}.",
            field="tokenizer",
        )
    return _make(name)


def own_tokenizer(tokens: TextTokenizer) -> Tokenizer:
    """Return the tokenizer of an embedding model under the name `embedder`.

    It counts as the model does, without the marks around a text.
    """
    return _Own(tokens)


def decoded(tokens: Sequence[int]) -> str | None:
    """Return the text of cl100k's tokens; None if a number is not a token, or they are not text.

    A character that is cut at an end of the text is left out: at most 3 tokens at each end.
    """
    if not all(0 <= token < _CL100K_TOKENS for token in tokens):
        return None  # The table would read beyond its end.
    table = openai.cl100k_base()
    for cut in sorted(product(range(4), repeat=2), key=sum):
        text: str | None = table.decode(list(tokens[cut[0] : len(tokens) - cut[1]]))
        if text is not None:
            return text
    return None


def seam(left: str, right: str) -> bool:
    r"""Return True if no token of a text can span the seam of its two parts.

    This holds after a line break if an ASCII letter, a digit or `[` follows. cl100k and o200k split
    a text by a regular expression before they look for tokens. A piece that ends with `\n` never
    continues with such a character, and no look-ahead goes beyond it.
    """
    first = right[:1]
    return left[-1:] == "\n" and (first == "[" or (first.isascii() and first.isalnum()))


class _BytePairs:
    """A BPE vocabulary of `rs_bpe`."""

    adds_up = True

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name = name
        self._table = load()

    def count(self, text: str) -> int:
        count: int = self._table.count(encodable(text))
        return count

    def count_within(self, text: str, max_tokens: int) -> int | None:
        if max_tokens < 0:
            return None
        count: int | None = self._table.count_till_limit(encodable(text), max_tokens)
        return count

    def cut(self, text: str, max_tokens: int) -> str:
        # White space at the end of a prefix can cost less than before a word, so look further.
        furthest = max_tokens + 2
        safe = encodable(text[: max(furthest + 1, 0) * MAX_CHARACTERS_PER_TOKEN])
        tokens = self._table.encode(safe)
        if len(tokens) <= max_tokens:
            return text
        for end in range(min(furthest, len(tokens)), 0, -1):
            prefix = self._table.decode(tokens[:end])  # None if it ends within a character.
            if prefix is not None and safe.startswith(prefix) and self.count(prefix) <= max_tokens:
                return text[: len(prefix)]
        return ""

    def nearly(self, text: str) -> Callable[[str], int]:
        return self.count


class _Bytes:
    """One token per UTF-8 byte."""

    name = "bytes"
    adds_up = True

    def count(self, text: str) -> int:
        return len(encodable(text).encode())

    def count_within(self, text: str, max_tokens: int) -> int | None:
        count = self.count(text)
        return count if count <= max_tokens else None

    def cut(self, text: str, max_tokens: int) -> str:
        most = max(max_tokens, 0)  # A text has at most as many characters as bytes.
        prefix = encodable(text[:most]).encode()[:most].decode(errors="ignore")
        return text[: len(prefix)]

    def nearly(self, text: str) -> Callable[[str], int]:
        return self.count


class _Own:
    """The tokenizer of an embedding model, without assumptions about its tokens."""

    name = EMBEDDER
    adds_up = False

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens

    def count(self, text: str) -> int:
        return len(self._tokens.token_ends(text))

    def count_within(self, text: str, max_tokens: int) -> int | None:
        # Count a part of a long text first. If the part has too many tokens, so has the text in
        # nearly all cases; at worst a chunk is skipped that would just have fit.
        part = _CHARACTERS_PER_TOKEN * (max(max_tokens, 0) + 1)
        while part < len(text):
            if self.count(text[:part]) > max_tokens:
                return None
            part *= 4
        count = self.count(text)
        return count if count <= max_tokens else None

    def cut(self, text: str, max_tokens: int) -> str:
        if max_tokens < 1:
            return ""
        start = text[: max_tokens * MAX_CHARACTERS_PER_TOKEN]
        ends = self._tokens.token_ends(start)
        if len(ends) <= max_tokens and len(start) == len(text):
            return text
        for end in reversed(ends[:max_tokens]):
            if self.count(start[:end]) <= max_tokens:
                return text[:end]
        return ""

    def nearly(self, text: str) -> Callable[[str], int]:
        ends = self._tokens.token_ends(text)
        start = 0  # Most parts begin at the same place as the previous part.

        def count(part: str) -> int:
            nonlocal start
            if not text.startswith(part, start):
                place = text.find(part, start)
                start = max(text.find(part) if place < 0 else place, 0)
                if not text.startswith(part, start):
                    return self.count(part)
            return bisect_right(ends, start + len(part)) - bisect_right(ends, start)

        return count


_MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "cl100k": lambda: _BytePairs("cl100k", openai.cl100k_base),
    "o200k": lambda: _BytePairs("o200k", openai.o200k_base),
    "bytes": _Bytes,
}

TOKENIZERS: tuple[str, ...] = tuple(_MAKERS)
"""The names that `tokenizer` knows; a query can also name `embedder`."""


@cache
def _make(name: str) -> Tokenizer:
    return _MAKERS[name]()
