"""The Qdrant point of a chunk on a server, and the requests that write points.

A point's id is a UUID derived from the chunk_id, because Qdrant accepts no other strings. Its
vectors are `dense` and `bm25` (kit/sparse.py). Its payload:

    chunk_id, content, metadata (JSON text), chunk_metadata (JSON text, if there is one)
                     the chunk as it was added: JSON text, because an engine's own numbers and nulls
                     are not Python's
    embedding        base64 of float32, only where `dense` is not what was sent (see `searched`)
    attributes       tokens: one for each metadata value that a filter can compare, one for the
                     document, one for the version of the layout and the analyzer, and one if
                     the chunk has no acl: a filter that negates would look at every point
    order            the numbers and strings of the metadata as integers below 2^53, for orderings
    terms, length, reference
                     the inputs of BM25 (see sparse.SparseChunk): keys of terms, and numbers
    words            base64 of the terms as int64 and of their frequencies as float64: what BM25
                     reads, as one text, because an engine returns that much faster than a list

A token (kit/tokens.py) is 128 bits of BLAKE2b over kind, key and value. So one index on one field
filters any key and any value of any length, and no query or path contains them.

Orderings use one field for all keys too: strict mode limits the number of indexes and rejects
filters without one. A value is written as bytes that sort like the values, and these are split into
levels of four bytes. Each level is stored as one integer: 21 bits of BLAKE2b over kind, key and the
bytes before the level, then the 32 bits of the level. A greater value then has, at some level, an
integer between that of the level and the last one with the same 21 bits.

Points are split into requests of bounded size, and each point is encoded on demand, in a thread.
The client would encode a request's body in one step on the event loop: 1,000 points of 1,536
dimensions would block it for 0.8 s.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import AsyncQdrantClient, grpc, models
from qdrant_client.conversions.conversion import RestToGrpc

from corral.api.chunks import Chunk
from corral.api.filters import elements, matches
from corral.api.scope import HAS_DEFAULT
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit import batches as kit
from corral.providers.vector_io.kit.records import (
    chunk_fields,
    pack_embedding,
    record_id,
    searched,
    unpack_embedding,
)
from corral.providers.vector_io.kit.sparse import SparseChunk, packed
from corral.providers.vector_io.kit.tokens import Tokens, sortable

DENSE = "dense"
SPARSE = "bm25"
INTEGER_INDEXES = ("terms", "length", "reference")
KEYWORD_INDEX = "attributes"
ORDER_INDEX = "order"

LAYOUT = 3
"""Version of the stored points and their indexes; increase it with every change of either."""

VERSION = 1_000 * LAYOUT + ANALYZER_VERSION
"""Data of an older version is rewritten on open; data of a newer version is refused."""

TEXT_BYTES = 24
"""Strings are ordered by their first 24 bytes of UTF-8, which sort by code point; an ISO 8601 time
stamp fits."""

LEVEL_BYTES = 4
_LEVEL_BITS = 8 * LEVEL_BYTES
_PREFIX_BITS = 53 - _LEVEL_BITS  # Engines compare doubles, which hold 53 bits.

BATCH_POINTS = 1_000
BATCH_BYTES = 4 * 2**20
"""Maximum size of a request: the event loop joins and writes its body, 2 ms per MiB. By default, a
server rejects more than 32 MiB."""

GRPC_BYTES = 2 * 2**20
"""The same over gRPC, which serializes a message in one step on the event loop."""

_NAMESPACE = uuid.UUID("6f1ff4a8-5a8e-5f0c-9d0b-0b7f2f4f9c11")

Json = dict[str, Any]
PointId = str | uuid.UUID


@dataclass(frozen=True, slots=True)
class Point:
    """A point to write."""

    id: str
    dense: NDArray[np.float32]
    sparse: tuple[list[int], list[float]]
    payload: Json


@dataclass(slots=True)  # not frozen: a query makes hundreds, and freezing doubles the cost
class FoundPoint:
    """A point read from the server.

    Attributes:
        id: The UUID in the engine's type.
        payload: The requested fields that exist; `words` is unpacked.
        score: The engine's score; 0 if the point was not searched.
        dense: The dense vector; empty if it was not requested.
    """

    id: PointId
    payload: Json
    score: float = 0.0
    dense: list[float] = field(default_factory=list)

    @property
    def embedding(self) -> list[float]:
        """The embedding as it was added."""
        stored = self.payload.get("embedding")
        return unpack_embedding(stored) if stored else self.dense


@lru_cache(maxsize=1 << 14)
def point_id(chunk_id: str) -> str:
    """Return the UUID of a chunk's point."""
    return record_id(_NAMESPACE, chunk_id)


def make_point(
    vector_db: VectorDB,
    chunk: Chunk,
    embedding: NDArray[np.float32],
    sparse: SparseChunk,
    version: int,
) -> Point:
    """Return the point of a chunk.

    Args:
        chunk: Not mutated.
        embedding: Shape (dimension,).
        sparse: The chunk's terms.
        version: Version of the analyzer that made the terms.
    """
    dense = searched(vector_db, embedding)
    default = [DEFAULT_TOKEN] if matches(HAS_DEFAULT, chunk.metadata) else []
    words = packed(sparse.keys, sparse.frequencies)
    payload: Json = {
        **chunk_fields(chunk),
        "terms": sparse.keys,
        "words": base64.b64encode(b"".join(words)).decode("ascii"),
        "length": sparse.length,
        "reference": sparse.reference,
        "attributes": [*TOKENS.of(chunk, version), *default],
        "order": _orderings(chunk.metadata),
    }
    if dense is not embedding:
        payload["embedding"] = pack_embedding(embedding)
    return Point(point_id(chunk.chunk_id), dense, sparse.vector(), payload)


def unpacked(payload: Mapping[str, Any]) -> Json:
    """Return a payload with `words`, if present, in the form of `sparse.packed`."""
    if "words" not in payload:
        return dict(payload)
    data = base64.b64decode(payload["words"])
    half = len(data) // 2
    return {**payload, "words": (data[:half], data[half:])}


# --- tokens and orderings, which filters.py asks for ---------------------------------------------


def _token(kind: str, key: str, value: str) -> str:
    data = f"{kind}{len(key)}:{key}{value}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


TOKENS = Tokens(_token)
DEFAULT_TOKEN = _token("a", "", "")
"""The token of chunks with the default ACL."""


def levels(key: str, value: str | float) -> list[int]:
    """Return the integers stored for a value, by which it can be ordered."""
    kind, code = sortable(value, TEXT_BYTES)
    return [_level(kind, key, code, start) for start in range(0, len(code), LEVEL_BYTES)]


def last_of_level(level: int) -> int:
    """Return the largest integer of a value with the same prefix."""
    return level | (1 << _LEVEL_BITS) - 1


def first_of_level(level: int) -> int:
    """Return the smallest integer of a value with the same prefix."""
    return level & -(1 << _LEVEL_BITS)


def _orderings(metadata: Mapping[str, Any]) -> list[int]:
    found = {
        level
        for key, value in metadata.items()
        for element in elements(value)
        if not isinstance(element, bool)
        for level in levels(key, element)
    }
    return sorted(found)


def _level(kind: str, key: str, code: bytes, start: int) -> int:
    data = f"{kind}{len(key)}:{key}".encode("utf-8", "surrogatepass") + code[:start]
    digest = hashlib.blake2b(data, digest_size=8).digest()
    prefix = int.from_bytes(digest, "big") >> (64 - _PREFIX_BITS)
    piece = code[start : start + LEVEL_BYTES].ljust(LEVEL_BYTES, b"\0")
    return prefix << _LEVEL_BITS | int.from_bytes(piece, "big")


# --- requests that write points -------------------------------------------------------------------


Batch = list[bytes | grpc.PointStruct]
"""The points of one request, as JSON texts or gRPC messages."""


async def batches(
    points: Iterable[models.PointStruct], most_points: int, *, over_grpc: bool
) -> list[Batch]:
    """Return the requests that write these points, none with more than `most_points`."""
    most = min(BATCH_POINTS, most_points), GRPC_BYTES if over_grpc else BATCH_BYTES

    def cut() -> list[Batch]:
        sized = (encoded(point, over_grpc=over_grpc) for point in points)
        parts = kit.batches(sized, lambda one: one[1], *most)
        return [[point for point, _ in part] for part in parts]

    return await asyncio.to_thread(cut)


def structs(points: Sequence[Point]) -> Iterator[models.PointStruct]:
    """Yield the client's points, each converted on demand."""
    for point in points:
        vectors: dict[str, Any] = {DENSE: point.dense.tolist()}
        if point.sparse[0]:
            vectors[SPARSE] = models.SparseVector(indices=point.sparse[0], values=point.sparse[1])
        yield models.PointStruct(id=point.id, vector=vectors, payload=point.payload)


def encoded(point: models.PointStruct, *, over_grpc: bool) -> tuple[bytes | grpc.PointStruct, int]:
    """Return a point as encoded for a request, and its size in bytes."""
    if over_grpc:
        message = RestToGrpc.convert_point_struct(point)
        return message, int(message.ByteSize())
    text = point.model_dump_json(exclude_unset=True).encode()
    return text, len(text)


async def upsert(
    client: AsyncQdrantClient, name: str, batch: Batch, timeout_seconds: float
) -> None:
    """Send a batch; searches find all of it when this returns."""
    items: Any = batch
    if items and not isinstance(items[0], bytes):
        message = await asyncio.to_thread(
            grpc.UpsertPoints, collection_name=name, wait=True, points=items
        )
        await client.grpc_points.Upsert(message, timeout=timeout_seconds)
        return
    rest: Any = client.http.points_api.api_client
    await rest.request(
        type_=models.InlineResponse2008,
        method="PUT",
        url="/collections/{collection_name}/points",
        path_params={"collection_name": name},
        params={"wait": "true"},
        headers={"Content-Type": "application/json"},
        content=b'{"points":[' + b",".join(items) + b"]}",
    )
