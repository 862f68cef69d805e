"""The stored form of a chunk that several engines share: fields as text, id and embedding."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB

CHUNK_FIELDS = ("chunk_id", "content", "metadata", "chunk_metadata")
"""The fields of `chunk_fields`, which `read_chunk` needs."""

_read_json = json.JSONDecoder().raw_decode
"""Like `json.loads` in half the time, because `chunk_fields` writes no surrounding white space."""


def chunk_fields(chunk: Chunk) -> dict[str, str]:
    """Return a chunk's fields as text.

    Objects are JSON, because engines store numbers and nulls differently from Python.
    `chunk_metadata` is left out if the chunk has none.
    """
    fields = {
        "chunk_id": chunk.chunk_id,
        "content": chunk.content,
        "metadata": json.dumps(chunk.metadata, ensure_ascii=False),
    }
    if chunk.chunk_metadata:
        fields["chunk_metadata"] = chunk.chunk_metadata.model_dump_json(exclude_none=True)
    return fields


def read_chunk(fields: Mapping[str, Any], embedding: list[float] | None = None) -> Chunk:
    """Return the chunk from its `chunk_fields`; absent or empty chunk_metadata means None."""
    recorded = fields.get("chunk_metadata")
    return Chunk.stored(
        chunk_id=fields["chunk_id"],
        content=fields["content"],
        metadata=_read_json(fields["metadata"])[0],
        chunk_metadata=ChunkMetadata.model_validate_json(recorded) if recorded else None,
        embedding=embedding,
    )


MAX_PACKED_TEXT = 2**14
"""Maximum characters of a text that `pack_fields` includes."""


def pack_fields(fields: Mapping[str, str]) -> str:
    """Return the `chunk_fields` of a chunk as base64 of JSON, for an engine's field of bytes.

    A hit brings them at once. A longer text than `MAX_PACKED_TEXT` is null: with many hits it would
    take more time than the few chunks of the answer take to fetch.
    """
    short = (
        dict(fields) if len(fields["content"]) <= MAX_PACKED_TEXT else {**fields, "content": None}
    )
    values = json.dumps([*map(short.get, CHUNK_FIELDS)], ensure_ascii=False)
    return base64.b64encode(values.encode("utf-8", "surrogatepass")).decode("ascii")


def unpack_fields(packed: str) -> dict[str, str | None]:
    """Return the fields of `pack_fields`; the padding of base64 may be missing."""
    values = json.loads(base64.b64decode(f"{packed}=="))
    return dict(zip(CHUNK_FIELDS, values, strict=True))


ReadFields = Callable[[], Mapping[str, Any]]
"""Returns the fields of a chunk that an engine returned with a hit; see `unpack_fields`. A search
has more hits than its answer, and only the answer's hits are decoded."""


def attach_chunks(candidates: Iterable[Candidate], stored: Mapping[str, ReadFields | None]) -> None:
    """Give candidates the chunks that the engine returned with its hits.

    Args:
        candidates: Mutated; one without stored fields, or with a long text, stays as it is.
        stored: The fields of hits by chunk id.
    """
    for one in candidates:
        read = stored.get(one.chunk_id)
        if read and (fields := read())["content"] is not None:
            one.chunk = read_chunk(fields)


def record_id(namespace: uuid.UUID, chunk_id: str) -> str:
    """Return the UUID of a chunk, for engines that accept only UUIDs as ids."""
    return str(uuid.uuid5(namespace, chunk_id))


def stores_direction(vector_db: VectorDB) -> bool:
    """Return True if the engine stores unit vectors, and the embeddings are stored separately.

    Under cosine without `normalize`, engines compare directions, and may scale stored vectors to
    length 1.
    """
    return vector_db.metric is Metric.COSINE and not vector_db.normalize


def direction(embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an embedding scaled to length 1."""
    exact = embedding.astype(np.float64)
    unit: NDArray[np.float32] = (exact / np.linalg.norm(exact)).astype(np.float32)
    return unit


def searched(vector_db: VectorDB, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vector to store or to search with: the embedding or its direction."""
    return direction(embedding) if stores_direction(vector_db) else embedding


def pack_embedding(embedding: NDArray[np.float32]) -> str:
    """Return an embedding as base64 of little-endian float32."""
    return base64.b64encode(embedding.astype("<f4").tobytes()).decode("ascii")


def unpack_embedding(text: str) -> list[float]:
    """Return the embedding of `pack_embedding`."""
    return [float(number) for number in np.frombuffer(base64.b64decode(text), dtype="<f4")]
