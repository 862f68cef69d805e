"""Tokenizers: what a text costs, and its longest prefix within a cost.

`cl100k` and `o200k` are OpenAI's byte-level BPE vocabularies; their tables come with the package
`rs_bpe`, nothing is downloaded. `bytes` counts UTF-8 bytes, the only hard upper bound for every
byte-level BPE, for models whose vocabulary is not here. `embedder` is the tokenizer of the vector
DB's embedding model, where the model has one here.

Costs do not add up: two texts joined can cost a little less or more than the two alone, except at
some seams (`seam`). Whoever has to keep a budget counts the joined text.
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
"""The longest token of any vocabulary here is 128 spaces, so a text of more than 128 n characters
costs more than n tokens. An embedder's tokenizer knows no bound (white space can be free, a long
word one token); a text of more characters than that for each token is taken as too long all the
same, and not read."""

_CL100K_TOKENS = 100_256  # without its five special tokens, which stand for no text
_READ_AT_ONCE = 6  # characters a token; English has 4


class Tokenizer(Protocol):
    """Counts and cuts texts. Safe to use from many threads at once."""

    @property
    def name(self) -> str:
        """The name that a query calls it by."""

    @property
    def adds_up(self) -> bool:
        r"""Whether costs add up where `seam` says so: count(a + b) == count(a) + count(b)."""

    def count(self, text: str) -> int:
        """Return what the text costs, in tokens; 0 for an empty text."""

    def count_within(self, text: str, max_tokens: int) -> int | None:
        """Return what the text costs if that is at most max_tokens, else None.

        It stops at the limit, so a long text that does not fit costs no more time than a short one.
        """

    def cut(self, text: str, max_tokens: int) -> str:
        """Return the longest prefix that ends at a token boundary and costs <= max_tokens.

        It is counted again by itself, never splits a character, and is empty for max_tokens < 1.
        """

    def nearly(self, text: str) -> Callable[[str], int]:
        """Return what counts parts of a text to look for boundaries; `count` is exact.

        A costly tokenizer reads the text once, and a part costs the tokens that end in it.
        """


def tokenizer(name: str = DEFAULT_TOKENIZER) -> Tokenizer:
    """Return the tokenizer of a name, the same object at each call.

    Args:
        name: `cl100k` (GPT-4 and its generation), `o200k` (GPT-4o and later), or `bytes`.
            `embedder` names none by itself: see `own_tokenizer`.

    Raises:
        InvalidRequest: There is none of that name.
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

    It counts what the model counts, the marks around a text left out.
    """
    return _Own(tokens)


def decoded(tokens: Sequence[int]) -> str | None:
    """Return the text of cl100k's tokens; None where a number is no token, or they are no text.

    Where the text was cut within a character, that character is left out: at most 3 tokens of an
    end are a part of one.
    """
    if not all(0 <= token < _CL100K_TOKENS for token in tokens):
        return None  # the table reads beyond its end
    table = openai.cl100k_base()
    for cut in sorted(product(range(4), repeat=2), key=sum):
        text: str | None = table.decode(list(tokens[cut[0] : len(tokens) - cut[1]]))
        if text is not None:
            return text
    return None


def seam(left: str, right: str) -> bool:
    r"""Return True if no token of a text can reach over the seam of its two parts.

    That is so behind a line break, before an ASCII letter or digit, or `[`: in the expressions by
    which cl100k and o200k split a text before they look for tokens, what ends with `\n` never goes
    on with such a character, and no look-ahead goes beyond it.
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
        # White space at the end of a prefix can cost less than in front of a word: look further.
        furthest = max_tokens + 2
        safe = encodable(text[: max(furthest + 1, 0) * MAX_CHARACTERS_PER_TOKEN])
        tokens = self._table.encode(safe)
        if len(tokens) <= max_tokens:
            return text
        for end in range(min(furthest, len(tokens)), 0, -1):
            prefix = self._table.decode(tokens[:end])  # None where it ends within a character
            if prefix is not None and safe.startswith(prefix) and self.count(prefix) <= max_tokens:
                return text[: len(prefix)]
        return ""

    def nearly(self, text: str) -> Callable[[str], int]:
        return self.count


class _Bytes:
    """One token a UTF-8 byte."""

    name = "bytes"
    adds_up = True

    def count(self, text: str) -> int:
        return len(encodable(text).encode())

    def count_within(self, text: str, max_tokens: int) -> int | None:
        count = self.count(text)
        return count if count <= max_tokens else None

    def cut(self, text: str, max_tokens: int) -> str:
        most = max(max_tokens, 0)  # as many characters as bytes, or fewer
        prefix = encodable(text[:most]).encode()[:most].decode(errors="ignore")
        return text[: len(prefix)]

    def nearly(self, text: str) -> Callable[[str], int]:
        return self.count


class _Own:
    """The tokenizer of an embedding model, for which nothing is assumed but what it says."""

    name = EMBEDDER
    adds_up = False

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens

    def count(self, text: str) -> int:
        return len(self._tokens.token_ends(text))

    def count_within(self, text: str, max_tokens: int) -> int | None:
        # Of a long text a part is read first. Where that costs too much, the whole is not tried:
        # at worst a chunk is passed over that would just have fit.
        part = _READ_AT_ONCE * (max(max_tokens, 0) + 1)
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
        found = 0  # one part mostly begins where the one before did

        def count(part: str) -> int:
            nonlocal found
            if not text.startswith(part, found):
                place = text.find(part, found)
                found = max(text.find(part) if place < 0 else place, 0)
                if not text.startswith(part, found):
                    return self.count(part)
            return bisect_right(ends, found + len(part)) - bisect_right(ends, found)

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
