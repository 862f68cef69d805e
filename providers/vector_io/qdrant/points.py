"""What a Qdrant point holds of a chunk, for both providers.

A point's id is a UUID made of the chunk_id, since Qdrant takes no other strings. Its vectors are
`dense` and `bm25` (sparse.py). Its payload:

    chunk_id, content, metadata (JSON text), chunk_metadata (JSON text, where there is one)
                     the chunk as it came: JSON text, because an engine's own numbers and nulls
                     are not Python's
    embedding        base64 of float32, only where `dense` is not what was sent (see `dense_row`)
    attributes       tokens: one for each metadata value that a filter can compare, one for the
                     document, one for the version of the layout and the analyzer
    order            the numbers and strings of the metadata as integers below 2^53, for orderings
    terms, length, reference
                     what BM25 counts, see sparse.SparseChunk: keys of terms, and numbers
    words            base64 of the terms as int64 and of their frequencies as float64: what BM25
                     reads, as one text because an engine hands it over much faster than a list

A token is 128 bits of BLAKE2b over kind, key and value. So any key and any value of any length can
be filtered on through one index of one field, and neither ever stands in a query or in a path.

Orderings have one field for all keys, too: a server in strict mode allows so many indexes and no
filter without one. A value is written as bytes whose order is that of the values, and these are cut
into levels of four. Each level is stored as one integer: 21 bits of BLAKE2b over kind, key and the
bytes before the level, then the level's own 32 bits. What is greater than a value then lies, for
one of its levels, between the level's integer and the last one with the same 21 bits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.filters import Scalar, elements
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.sparse import SparseChunk
from corral.providers.ranking.text import ANALYZER_VERSION

DENSE = "dense"
SPARSE = "bm25"
INTEGER_INDEXES = ("terms", "length", "reference")
KEYWORD_INDEX = "attributes"
ORDER_INDEX = "order"
CHUNK_FIELDS = ("chunk_id", "content", "metadata", "chunk_metadata")

LAYOUT = 2
"""Raise it with every change of what a point holds or of how it is indexed."""

VERSION = 1_000 * LAYOUT + ANALYZER_VERSION
"""What is stored by another version is written anew when it is opened, never downwards."""

TEXT_BYTES = 24
"""Strings are ordered natively by their first 24 bytes of UTF-8, whose order is that of code
points; 24 hold an ISO 8601 time stamp."""

LEVEL_BYTES = 4
_LEVEL_BITS = 8 * LEVEL_BYTES
_PREFIX_BITS = 53 - _LEVEL_BITS  # a double, as engines compare it, holds 53 bits
_SIGN = 1 << 63

_NAMESPACE = uuid.UUID("6f1ff4a8-5a8e-5f0c-9d0b-0b7f2f4f9c11")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A point to be written."""

    id: str
    dense: NDArray[np.float32]
    sparse: tuple[list[int], list[float]]
    payload: Json


def point_id(chunk_id: str) -> str:
    """Return the UUID of a chunk's point."""
    return str(uuid.uuid5(_NAMESPACE, chunk_id))


def dense_row(vector_db: VectorDB, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what is stored or searched as `dense` for an embedding: itself, or its direction.

    Only under cosine without `normalize` the two differ: the engine then compares directions by
    inner product, and the embedding itself is kept in the payload.
    """
    if vector_db.normalize or vector_db.metric is not Metric.COSINE:
        return embedding
    exact = embedding.astype(np.float64)
    return (exact / np.linalg.norm(exact)).astype(np.float32)


def make_point(
    vector_db: VectorDB,
    chunk: Chunk,
    embedding: NDArray[np.float32],
    sparse: SparseChunk,
    version: int,
) -> Point:
    """Return the point of a chunk.

    Args:
        vector_db: Its registration.
        chunk: It is not changed.
        embedding: Shape (dimension,).
        sparse: Its terms.
        version: The analyzer's version that found them.
    """
    dense = dense_row(vector_db, embedding)
    payload: Json = {
        "chunk_id": chunk.chunk_id,
        "content": chunk.content,
        "metadata": json.dumps(chunk.metadata, ensure_ascii=False),
        "terms": sparse.keys,
        "words": pack_words(sparse.keys, sparse.frequencies),
        "length": sparse.length,
        "reference": sparse.reference,
        "attributes": [*_tokens(chunk), version_token(version)],
        "order": _orderings(chunk.metadata),
    }
    if chunk.chunk_metadata:
        payload["chunk_metadata"] = chunk.chunk_metadata.model_dump_json(exclude_none=True)
    if dense is not embedding:
        payload["embedding"] = base64.b64encode(embedding.astype("<f4").tobytes()).decode("ascii")
    return Point(point_id(chunk.chunk_id), dense, sparse.vector(), payload)


def read_chunk(payload: Json, dense: list[float] | None) -> Chunk:
    """Return the chunk of a payload with `CHUNK_FIELDS`.

    Args:
        payload: Of the point; with `embedding` where there is one and `dense` is given.
        dense: The point's dense vector, where the chunk's embedding is wanted.
    """
    recorded = payload.get("chunk_metadata")
    return Chunk.model_construct(
        chunk_id=payload["chunk_id"],
        content=payload["content"],
        metadata=json.loads(payload["metadata"]),
        chunk_metadata=ChunkMetadata.model_validate_json(recorded) if recorded else None,
        embedding=None if dense is None else read_embedding(payload, dense),
    )


def read_embedding(payload: Json, dense: list[float]) -> list[float]:
    """Return the embedding as it was added."""
    if "embedding" not in payload:
        return dense
    stored = np.frombuffer(base64.b64decode(payload["embedding"]), dtype="<f4")
    return [float(number) for number in stored]


def pack_words(keys: Sequence[int], frequencies: Sequence[float]) -> str:
    """Return the terms of a chunk as text."""
    data = np.array(keys, "<i8").tobytes() + np.array(frequencies, "<f8").tobytes()
    return base64.b64encode(data).decode("ascii")


def unpack_words(text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the keys and frequencies of `pack_words`."""
    data = base64.b64decode(text)
    half = len(data) // 2
    return np.frombuffer(data[:half], "<i8"), np.frombuffer(data[half:], "<f8")


# --- tokens and orderings, which filters.py asks for ---------------------------------------------


def value_token(key: str, value: Scalar) -> str:
    """Return the token of a metadata value. 1 and 1.0 share one; 1, "1" and true do not."""
    if isinstance(value, bool):
        return _token("b", key, str(value))
    if isinstance(value, str):
        return _token("s", key, value)
    whole = isinstance(value, int) or value.is_integer()
    return _token("n", key, str(int(value)) if whole else repr(value))


def document_token(document_id: str) -> str:
    """Return the token of a document's chunks."""
    return _token("d", "", document_id)


def version_token(version: int) -> str:
    """Return the token of a version of the layout and the analyzer."""
    return _token("v", "", str(version))


def levels(key: str, value: str | float) -> list[int]:
    """Return the integers that are stored for a value, so that it can be ordered."""
    kind, code = _code(value)
    return [_level(kind, key, code, start) for start in range(0, len(code), LEVEL_BYTES)]


def last_of_level(level: int) -> int:
    """Return the largest integer that a value of the same beginning can have."""
    return level | (1 << _LEVEL_BITS) - 1


def first_of_level(level: int) -> int:
    """Return the smallest integer that a value of the same beginning can have."""
    return level & -(1 << _LEVEL_BITS)


def is_exact(value: str | float) -> bool:
    """Return True if no other value has the same levels."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) < TEXT_BYTES
    return abs(float(value)) < 2.0**53  # above it integers share doubles


def _tokens(chunk: Chunk) -> Iterator[str]:
    seen = {
        value_token(key, element): None
        for key, value in chunk.metadata.items()
        for element in elements(value)
    }
    yield from seen
    if chunk.document_id is not None:
        yield document_token(chunk.document_id)


def _orderings(metadata: Mapping[str, Any]) -> list[int]:
    found = {
        level
        for key, value in metadata.items()
        for element in elements(value)
        if not isinstance(element, bool)
        for level in levels(key, element)
    }
    return sorted(found)


def _code(value: str | float) -> tuple[str, bytes]:
    """Return a kind, and bytes in the order of the values of that kind.

    A string that is not cut ends with a NUL, which none holds: so "a" comes before "ab".
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")[:TEXT_BYTES]
        return "t", data + b"\0" if len(data) < TEXT_BYTES else data
    # Doubles are ordered as their bits are, once those of negative numbers are turned around.
    [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))  # -0.0 becomes 0.0
    return "o", (bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN).to_bytes(8, "big")


def _level(kind: str, key: str, code: bytes, start: int) -> int:
    data = f"{kind}{len(key)}:{key}".encode("utf-8", "surrogatepass") + code[:start]
    digest = hashlib.blake2b(data, digest_size=8).digest()
    prefix = int.from_bytes(digest, "big") >> (64 - _PREFIX_BITS)
    piece = code[start : start + LEVEL_BYTES].ljust(LEVEL_BYTES, b"\0")
    return prefix << _LEVEL_BITS | int.from_bytes(piece, "big")


def _token(kind: str, key: str, value: str) -> str:
    data = f"{kind}{len(key)}:{key}{value}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
