"""Metadata as tokens of one property, so that filters need one engine operator: ContainsAny.

A token is 96 bits of BLAKE2b over kind, key and value, in hex. So filters work on any key and any
value of any length, no tokenizer changes a token, and a filter contains no text of a user.

Orderings become tokens too. A number, or the beginning of a string, is written as hex digits that
sort in the order of the values, and a chunk has a token for every prefix of these digits. The
values above a bound are then the values with one of a few prefixes: the bound's digits up to some
position, followed by a larger digit. (A prefix tree cut into ranges, like Lucene's trie-encoded
numbers: Schindler and Diepenbroek, "Generic XML-based framework for metadata portals", Computers &
Geosciences 34(12), 2008.) So the collection's schema never grows with the metadata's keys.
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
"""The engine orders strings by their first 10 bytes of UTF-8, which sort by code point; an ISO 8601
date fits. `filters.matches` compares the bytes after them."""

ORDERINGS = ("gt", "gte", "lt", "lte")
"""Comparisons that tokens, or an engine's integer levels, only narrow down."""

_DIGITS = "0123456789abcdef"
_EXACT = 2.0**53  # Below it, no two integers share a double.
_SIGN = 1 << 63


class Tokens:
    """Tokens of a chunk that let an engine filter by equality on one field.

    Args:
        made: Returns the token of a kind, a key and a value: a hash that differs for any other
            triple.
    """

    def __init__(self, made: Callable[[str, str, str], str]) -> None:
        self._made = made

    def of(self, chunk: Chunk, version: int) -> list[str]:
        """Return the distinct tokens of a chunk; at least one, for the version.

        Args:
            chunk: Not mutated.
            version: Version of the analyzer that made its terms.
        """
        tokens = {self.version(version): None}
        if chunk.document_id is not None:
            tokens[self.document(chunk.document_id)] = None
        for key, value in chunk.metadata.items():
            tokens |= {self.value(key, element): None for element in elements(value)}
        return list(tokens)

    def value(self, key: str, value: Scalar) -> str:
        """Return the token of a metadata value: the same for 1 and 1.0, not for "1" and true."""
        kind, text = canonical(value)
        return self._made(kind, key, text)

    def document(self, document_id: str) -> str:
        """Return the token of a document's chunks."""
        return self._made("d", "", document_id)

    def version(self, version: int) -> str:
        """Return the token of a version of the analyzer."""
        return self._made("v", "", str(version))


def _token(kind: str, key: str, value: str) -> str:
    data = f"{kind}:{len(key)}:{key}{value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


TOKENS = Tokens(_token)


def chunk_tokens(chunk: Chunk, version: int) -> list[str]:
    """Return the distinct tokens of a chunk, including orderings; see `Tokens.of`."""
    prefixes = (
        prefix
        for key, value in chunk.metadata.items()
        for element in elements(value)
        for prefix in _prefixes(key, element)
    )
    return list(dict.fromkeys([*TOKENS.of(chunk, version), *prefixes]))


def order_tokens(kind: str, key: str, value: Scalar) -> list[str]:
    """Return tokens, at least one, such that every chunk that passes the comparison has one.

    Chunks that do not pass have none of them, with two exceptions: strings that share their first
    `TEXT_BYTES` bytes with the value, and integers beyond 2^53 with the same double as the value.
    For these, gt and lt act like gte and lte.

    Args:
        kind: gt, gte, lt or lte.
        key: The metadata key.
        value: A string or a number.
    """
    letter, code = _digits(value)
    above = kind.startswith("g")
    tokens = [
        _token(letter, key, code[:place] + other)
        for place, digit in enumerate(code)
        for other in _DIGITS
        if (other > digit if above else other < digit)
    ]
    if kind.endswith("e") or not is_exact(value, TEXT_BYTES):
        tokens.append(_token(letter, key, code))
    return tokens or [_token("nothing", "", "")]


def has_orderings(filter_: Filter | None) -> bool:
    """Return True if a filter orders values, so that an engine may pass too many chunks."""
    if isinstance(filter_, Comparison):
        return filter_.type in ORDERINGS
    return filter_ is not None and any(map(has_orderings, filter_.filters))


def needed(filter_: Filter | None) -> list[str]:
    """Return the stored fields that `passes` reads."""
    return ["metadata"] if has_orderings(filter_) else []


def passes(filter_: Filter | None, fields: Mapping[str, Any]) -> bool:
    """Return True if a chunk that an engine let pass, given by its stored fields, really passes."""
    return not has_orderings(filter_) or matches(filter_, json.loads(fields["metadata"]))


def canonical(value: Scalar) -> tuple[str, str]:
    """Return a value's kind, b, s or n, and its canonical text, the same for 1 and 1.0."""
    if isinstance(value, bool):
        return "b", str(value)
    if isinstance(value, str):
        return "s", value
    whole = isinstance(value, int) or value.is_integer()
    return "n", str(int(value)) if whole else repr(value)


def sortable(value: Scalar, text_bytes: int) -> tuple[str, bytes]:
    """Return a value's kind, t or o, and bytes that sort like the values of that kind.

    A string gives at most `text_bytes` bytes of UTF-8, which sort by code point. A string that is
    not cut ends with a NUL, which no string contains, so that "a" sorts before "ab".
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")[:text_bytes]
        return "t", data + b"\0" if len(data) < text_bytes else data
    return "o", sortable_bits(float(value)).to_bytes(8, "big")


def sortable_bits(number: float) -> int:
    """Return an integer of 64 bits that sorts like the double: its bits, inverted if negative."""
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
