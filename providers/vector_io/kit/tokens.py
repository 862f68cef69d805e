"""Metadata as tokens of one property, so that filters need one operator of the engine: ContainsAny.

A token is 96 bits of BLAKE2b over kind, key and value, in hex. So any key and any value of any
length can be filtered on, no tokenizer changes anything, and no text of a user stands in a filter.

Orderings become tokens too. A number, or the beginning of a string, is written as hex digits whose
order is that of the values, and a chunk holds a token for every prefix of these digits. The values
above a given one then are those with one of a few prefixes: the given one's digits up to some
place, and there a larger digit. (A prefix tree cut into ranges, as Lucene's trie-encoded numbers
were: Schindler and Diepenbroek, "Generic XML-based framework for metadata portals", Computers &
Geosciences 34(12), 2008.) The collection's schema so never grows with the metadata's keys.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from corral.api.chunks import Chunk
from corral.api.filters import Comparison, Filter, Scalar, elements, matches

TEXT_BYTES = 10
"""Strings are ordered natively by their first 10 bytes of UTF-8, whose order is that of code
points; 10 hold an ISO 8601 date. What lies behind them is compared by `filters.matches`."""

ORDERINGS = ("gt", "gte", "lt", "lte")
"""Comparisons that tokens, as levels of an engine's integers, narrow down."""

_DIGITS = "0123456789abcdef"
_EXACT = 2.0**53  # below it no two integers share a double
_SIGN = 1 << 63


class Tokens:
    """What an engine stores of a chunk so that its filters find equal values by one field.

    Args:
        made: Returns the token of a kind, a key and a value: a hash, and another one for any other
            three.
    """

    def __init__(self, made: Callable[[str, str, str], str]) -> None:
        self._made = made

    def of(self, chunk: Chunk, version: int) -> list[str]:
        """Return the tokens of a chunk, each once: never none, because its version is one.

        Args:
            chunk: It is not changed.
            version: Of what found its terms.
        """
        found = {self.version(version): None}
        if chunk.document_id is not None:
            found[self.document(chunk.document_id)] = None
        for key, value in chunk.metadata.items():
            found |= {self.value(key, element): None for element in elements(value)}
        return list(found)

    def value(self, key: str, value: Scalar) -> str:
        """Return the token of a metadata value. 1 and 1.0 share one; 1, "1" and true do not."""
        kind, text = canonical(value)
        return self._made(kind, key, text)

    def document(self, document_id: str) -> str:
        """Return the token of a document's chunks."""
        return self._made("d", "", document_id)

    def version(self, version: int) -> str:
        """Return the token of a version of what found a chunk's terms."""
        return self._made("v", "", str(version))


def _token(kind: str, key: str, value: str) -> str:
    data = f"{kind}:{len(key)}:{key}{value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


TOKENS = Tokens(_token)


def chunk_tokens(chunk: Chunk, version: int) -> list[str]:
    """Return the tokens of a chunk, those of its orderings included, each once; see `Tokens.of`."""
    prefixes = (
        prefix
        for key, value in chunk.metadata.items()
        for element in elements(value)
        for prefix in _prefixes(key, element)
    )
    return list(dict.fromkeys([*TOKENS.of(chunk, version), *prefixes]))


def order_tokens(kind: str, key: str, value: Scalar) -> list[str]:
    """Return tokens of which a chunk that passes a gt, gte, lt or lte has at least one; never none.

    Nothing else has one, but for strings that share their first `TEXT_BYTES` bytes with the value
    and integers beyond 2^53 whose double is the value's: there gt and lt stand for gte and lte.

    Args:
        kind: gt, gte, lt or lte.
        key: The metadata key.
        value: A string or a number.
    """
    letter, code = _digits(value)
    above = kind.startswith("g")
    found = [
        _token(letter, key, code[:place] + other)
        for place, digit in enumerate(code)
        for other in _DIGITS
        if (other > digit if above else other < digit)
    ]
    if kind.endswith("e") or not is_exact(value, TEXT_BYTES):
        found.append(_token(letter, key, code))
    return found or [_token("nothing", "", "")]


def has_orderings(filter_: Filter | None) -> bool:
    """Return True if a filter orders values, so that an engine may let more pass."""
    if isinstance(filter_, Comparison):
        return filter_.type in ORDERINGS
    return filter_ is not None and any(map(has_orderings, filter_.filters))


def needed(filter_: Filter | None) -> list[str]:
    """Return the stored fields that `passes` reads."""
    return ["metadata"] if has_orderings(filter_) else []


def passes(filter_: Filter | None, fields: Mapping[str, Any]) -> bool:
    """Return True if what an engine let pass, given with its stored fields, does pass."""
    return not has_orderings(filter_) or matches(filter_, json.loads(fields["metadata"]))


def canonical(value: Scalar) -> tuple[str, str]:
    """Return a kind, b, s or n, and the one text of all equal values of this kind: 1 is 1.0."""
    if isinstance(value, bool):
        return "b", str(value)
    if isinstance(value, str):
        return "s", value
    whole = isinstance(value, int) or value.is_integer()
    return "n", str(int(value)) if whole else repr(value)


def sortable(value: Scalar, text_bytes: int) -> tuple[str, bytes]:
    """Return a kind, t or o, and bytes in the order of the values of that kind.

    Of a string `text_bytes` bytes of UTF-8 at most, whose order is that of code points. One that is
    not cut ends with a NUL, which none holds: so "a" comes before "ab".
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")[:text_bytes]
        return "t", data + b"\0" if len(data) < text_bytes else data
    return "o", sortable_bits(float(value)).to_bytes(8, "big")


def sortable_bits(number: float) -> int:
    """Return 64 bits in the order of doubles: theirs, turned around for negative numbers."""
    [bits] = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # -0.0 becomes 0.0
    return int(bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN)


def is_exact(value: Scalar, text_bytes: int) -> bool:
    """Return True if no other value of its kind has the same `sortable` bytes."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) < text_bytes
    return abs(float(value)) < _EXACT


def _prefixes(key: str, value: Scalar) -> Iterator[str]:
    if isinstance(value, bool):
        return
    letter, code = _digits(value)
    for place in range(1, len(code) + 1):
        yield _token(letter, key, code[:place])


def _digits(value: Scalar) -> tuple[str, str]:
    kind, code = sortable(value, TEXT_BYTES)
    return kind, code.hex()
