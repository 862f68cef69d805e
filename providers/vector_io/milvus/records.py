"""Conversion between chunks and rows, the fields and indexes of a collection, and writers' rows.

All data of a vector DB is in one collection, so that one atomic request can write chunks, remove
others and announce the change. A writer's row counts the writes of its process. A process that sees
changed rows counts its statistics again. An embedded Milvus has no such rows.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymilvus import CollectionSchema, DataType, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import InvalidRequest
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.sparse import DIMENSIONS, SparseChunk, packed
from corral.providers.vector_io.milvus import filters
from corral.providers.vector_io.milvus.filters import Kind

Row = dict[str, Any]

LAYOUT = 1
"""Version of the stored layout; increase it when the layout changes."""

MOST_ROWS = 16_384
"""Maximum number of rows that Milvus returns for one request."""

MOST_ELEMENTS = 4096
"""Maximum number of elements of an array in Milvus."""

WIDEST_WALK = 32_768
"""Maximum number of candidates of an HNSW search."""

IDLE_SECONDS = 3600
"""Age after which a process takes a new row for its next write, as others may delete the old one.
"""
ENDED_SECONDS = 7 * 86_400
"""Age after which a writer's row counts as abandoned; much longer, because clocks differ."""

_PAST = "past-"

SEARCHED_METRIC = {Metric.COSINE: "COSINE", Metric.L2: "L2", Metric.DOT: "IP"}

PLACEHOLDER = {DIMENSIONS: 1.0}
"""The sparse vector of a row without terms: a dimension that no term uses, because not every Milvus
accepts an empty vector."""

MOST_BOUNDS_CHARACTERS = 60_000
"""Maximum number of characters of a chunk's bounds; Milvus takes 65,536 bytes of dynamic fields."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows, which differs between Milvus Lite and Milvus.

    Attributes:
        arrays: True if attributes and term keys are arrays, which a Milvus server indexes. Milvus
            Lite reads whole rows to examine an array (measured: 670 ms for 20,000 rows) but
            searches text fast (15 ms), so attributes are words of one text, and term keys are
            counted in memory.
        text_characters: Maximum number of characters of a text field.
        request_bytes: Approximate maximum size of a request.
    """

    arrays: bool
    text_characters: int
    request_bytes: int


LITE = Layout(arrays=False, text_characters=100_000_000, request_bytes=192 * 2**20)
SERVER = Layout(arrays=True, text_characters=65_000, request_bytes=32 * 2**20)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored chunk's part of the statistics, and its rows.

    Attributes:
        pk: Primary key of the first row.
        parts: As for `part_keys`.
        length, reference, keys: As in `SparseChunk`.
    """

    pk: str
    parts: str
    length: int
    reference: int
    keys: Sequence[int]

    @property
    def pks(self) -> list[str]:
        """The primary keys of all its rows."""
        return [self.pk, *part_keys(self.pk, self.parts)]


def row_key(chunk_id: str) -> str:
    """Return the primary key of a chunk: 128 bits of a hash, so that any id is a safe key."""
    return hashlib.blake2b(chunk_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def part_keys(pk: str, parts: str) -> list[str]:
    """Return the keys of the rows with the rest of a chunk.

    Args:
        pk: Primary key of the first row.
        parts: "", or the number of parts and a hash, so that parts of two versions never mix.
    """
    if not parts:
        return []
    number, version = parts.split("-")
    return [f"{pk}-{version}-{place}" for place in range(1, int(number) + 1)]


class RowMaker:
    """Makes the rows of one collection.

    Args:
        dimension: Components of a stored embedding.
    """

    def __init__(self, layout: Layout, dimension: int) -> None:
        self._layout = layout
        self._nowhere = np.zeros(dimension, dtype=np.float32)
        self._nowhere[0] = 1.0

    def blank(self, pk: str, kind: Kind, payload: str = "") -> Row:
        """Return a row without a chunk."""
        arrays: Row = {"attributes": [], "keys": []} if self._layout.arrays else {"attributes": ""}
        return {
            "pk": pk, "kind": int(kind), "chunk_id": "", "document": "", "payload": payload,
            "parts": "", "lexemes": "", "length": 0, "reference": 0,
            "embedding": self._nowhere, "terms": PLACEHOLDER, **arrays,
        }  # fmt: skip

    def chunk(self, chunk: Chunk, embedding: NDArray[np.float32], sparse: SparseChunk) -> list[Row]:
        """Return the rows of a chunk: one, and further parts if it does not fit.

        Raises:
            InvalidRequest: Its metadata has more values than can be filtered.
        """
        row = self.blank(row_key(chunk.chunk_id), Kind.CHUNK)
        lexemes = json.dumps([sparse.keys, sparse.frequencies], separators=(",", ":"))
        is_long = len(lexemes) > self._layout.text_characters
        texts = self._pieces(_payload(chunk, lexemes if is_long else ""))
        row |= {
            "chunk_id": chunk.chunk_id,
            "document": filters.digest(chunk.document_id) if chunk.document_id is not None else "",
            "payload": texts[0],
            "lexemes": "" if is_long else lexemes,
            "length": sparse.length,
            "reference": sparse.reference,
            "terms": dict(zip(*sparse.vector(), strict=True)) or PLACEHOLDER,
        }
        row["embedding"] = self._nowhere * 0
        row["embedding"][: len(embedding)] = embedding
        self._put_attributes(row, chunk)
        return self._with_parts(row, texts, sparse)

    def _pieces(self, text: str) -> list[str]:
        size = self._layout.text_characters
        return [text[start : start + size] for start in range(0, len(text), size)]

    def _put_attributes(self, row: Row, chunk: Chunk) -> None:
        found = filters.attributes(chunk.metadata)
        if self._layout.arrays:
            size = sum(len(name) + len(value) + 6 for name, value in found.bounds.items())
            if len(found.tokens) > MOST_ELEMENTS or size > MOST_BOUNDS_CHARACTERS:
                raise InvalidRequest(
                    f"The metadata of a chunk has {len(found.tokens)} values under "
                    f"{len(chunk.metadata)} keys; Milvus cannot filter on so many.",
                    hint="Put values that no filter needs into a nested object.",
                    field="chunks.metadata",
                )
            row["attributes"] = found.tokens
        else:
            row["attributes"] = f" {' '.join(found.tokens)} "
        row |= found.bounds

    def _with_parts(self, row: Row, texts: list[str], sparse: SparseChunk) -> list[Row]:
        """Move the keys that exceed a row to parts. Each key is in one part, so it counts once."""
        groups: list[list[int]] = [[]]
        if self._layout.arrays:
            starts = range(0, max(1, len(sparse.keys)), MOST_ELEMENTS)
            groups = [sparse.keys[start : start + MOST_ELEMENTS] for start in starts]
            row["keys"] = groups[0]
        rows = [row]
        if (further := max(len(texts), len(groups)) - 1) > 0:
            row["parts"] = f"{further}-{filters.digest(''.join(texts))}"
        for number, pk in enumerate(part_keys(row["pk"], row["parts"]), start=1):
            rows.append(self.blank(pk, Kind.PART, "".join(texts[number : number + 1])))
            if number < len(groups):
                rows[-1]["keys"] = groups[number]
        return rows


def size_of(row: Mapping[str, Any]) -> int:
    """Return the approximate size of a row in a request, in bytes."""
    total = 0
    for name, value in row.items():
        total += len(name)
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, str):
            total += len(value)
        else:
            total += 40 * len(value) if isinstance(value, list | dict) else 8
    return total


def entry(row: Mapping[str, Any], keys: Sequence[int] = ()) -> Entry:
    """Return the statistics entry of a row, with its keys if Corral counts them."""
    return Entry(row["pk"], row["parts"], row["length"], row["reference"], keys)


def decoded(row: Mapping[str, Any], payload: str, dimension: int) -> Chunk:
    """Return the chunk of a row.

    Args:
        row: The chunk gets an embedding if the row has one.
        payload: The complete payload, including the parts.
        dimension: Components of an embedding.
    """
    stored = json.loads(payload)
    recorded = stored["chunk_metadata"]
    embedding = row.get("embedding")
    return Chunk.stored(
        chunk_id=row["chunk_id"],
        content=stored["content"],
        metadata=stored["metadata"],
        chunk_metadata=None if recorded is None else ChunkMetadata.model_validate(recorded),
        embedding=None if embedding is None else [float(x) for x in embedding[:dimension]],
    )


def lexemes(stored: str, payload: str) -> tuple[list[int], list[float]]:
    """Return the keys and frequencies of a row, which for a long chunk are in the payload.

    Empty if there is neither, because the chunk is being replaced.
    """
    if not stored and not payload:
        return [], []
    keys, frequencies = json.loads(stored or json.loads(payload)["lexemes"])
    return keys, frequencies


@lru_cache(maxsize=16_384)
def packed_lexemes(stored: str) -> tuple[bytes, bytes]:
    """Return the lexemes of a row in the form of `sparse.packed`.

    Cached, because searches read them repeatedly; 60 words take 2 KB.
    """
    return packed(*json.loads(stored))


def _payload(chunk: Chunk, lexemes: str) -> str:
    recorded = chunk.chunk_metadata
    stored = {
        "content": chunk.content,
        "metadata": chunk.metadata,
        "chunk_metadata": recorded.model_dump(mode="json", exclude_none=True) if recorded else None,
    }
    if lexemes:
        stored["lexemes"] = lexemes
    # ASCII, so that a character is a byte and a text can be split anywhere.
    return json.dumps(stored, separators=(",", ":"))


# --- the collection -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The index of the embeddings: FLAT, or HNSW with these parameters."""

    kind: str = "FLAT"
    build: tuple[tuple[str, int], ...] = ()
    ef_search: int = 0

    def efforts(self, limit: int, *, filtered: bool) -> list[dict[str, Any]]:
        """Return the parameters of a search for this many rows, and of further attempts.

        A graph search can miss rows that pass a filter, so filtered searches are wider. With 20,000
        rows, half of them passing but none of these near the query, Milvus Lite finds 0.935 of the
        ten nearest at `ef_search`, and all at eight times that.
        """
        if self.kind != "HNSW":
            return [{}]
        first = max(self.ef_search, limit)
        efforts = [8 * first, WIDEST_WALK] if filtered else [first]
        return [{"ef": min(effort, WIDEST_WALK)} for effort in efforts]


def stored_dimension(vector_db: VectorDB) -> int:
    """Return the number of stored components; Milvus requires at least two, so a 0 may be added."""
    return max(2, vector_db.embedding_dimension)


def fields(vector_db: VectorDB, layout: Layout) -> CollectionSchema:
    """Return the collection's fields. Dynamic fields hold the bounds for range filters."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
    text = min(layout.text_characters + 500, 2**30) if not layout.arrays else 65_535
    schema.add_field("pk", DataType.VARCHAR, is_primary=True, max_length=96)
    schema.add_field("kind", DataType.INT8)
    schema.add_field("chunk_id", DataType.VARCHAR, max_length=2048)
    schema.add_field("document", DataType.VARCHAR, max_length=32)
    schema.add_field("payload", DataType.VARCHAR, max_length=text)
    schema.add_field("parts", DataType.VARCHAR, max_length=64)
    schema.add_field("lexemes", DataType.VARCHAR, max_length=text)
    schema.add_field("length", DataType.INT64)
    schema.add_field("reference", DataType.INT64)
    if layout.arrays:
        array = {"datatype": DataType.ARRAY, "max_capacity": MOST_ELEMENTS}
        schema.add_field("attributes", element_type=DataType.VARCHAR, max_length=32, **array)
        schema.add_field("keys", element_type=DataType.INT64, **array)
    else:
        schema.add_field("attributes", DataType.VARCHAR, max_length=text)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=stored_dimension(vector_db))
    schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
    return schema


def indexes(vector_db: VectorDB, layout: Layout, vectors: VectorIndex) -> dict[str, IndexParams]:
    """Return the parameters of each index by field."""
    wanted: dict[str, dict[str, Any]] = {
        "embedding": {
            "index_type": vectors.kind,
            "metric_type": SEARCHED_METRIC[effective_metric(vector_db)],
            "params": dict(vectors.build),
        },
        "terms": {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP", "params": {}},
    }
    if layout.arrays:
        scalars = ("kind", "document", "reference", "attributes", "keys")
        wanted |= {field: {"index_type": "INVERTED"} for field in scalars}
    found = {}
    for field, options in wanted.items():
        found[field] = MilvusClient.prepare_index_params()
        found[field].add_index(field_name=field, index_name=field, **options)
    return found


class Writers:
    """The rows of the processes that write to one collection. The caller must serialize writes.

    Args:
        call: Calls a method of the client on the collection.
    """

    def __init__(self, call: Callable[..., Any], maker: RowMaker) -> None:
        self._call, self._maker = call, maker
        self._own = ""
        self._written = 0
        self._wrote_at = 0.0

    def others(self) -> dict[str, str]:
        """Return the write counts of the other processes, as text, by row key."""
        return {pk: payload for pk, payload in self._all().items() if pk != self._own}

    def announcement(self) -> Row:
        """Return the row that tells other processes of one more write."""
        now = time.time()
        if now - self._wrote_at > IDLE_SECONDS:
            self._own = f"writer-{uuid.uuid4().hex}"
        self._wrote_at = now
        self._written += 1
        return self._maker.blank(self._own, Kind.WRITER, f"{self._written} {now:.0f}")

    def fold(self) -> None:
        """Replace the rows of processes that ended without closing with one row."""
        ended = self._ended()
        if len(ended) > 1:
            self._replace(ended)

    def close(self) -> None:
        """Replace the rows of this process and of other ended processes with one row."""
        if self._own:
            self._replace([self._own, *self._ended()])
            self._own = ""

    def _replace(self, ended: list[str]) -> None:
        """Replace rows with one row.

        Its key is new, so that other processes notice the change. It is written before the others
        are deleted, so a killed process, or two concurrent ones, leave too many rows but never too
        few.
        """
        key = f"{_PAST}{uuid.uuid4().hex}"
        row = self._maker.blank(key, Kind.WRITER, f"0 {time.time():.0f}")
        self._call("upsert", data=[row])
        self._call("delete", ids=ended)

    def _ended(self) -> list[str]:
        """Return the keys of the rows of ended processes."""
        oldest = time.time() - ENDED_SECONDS
        return [
            pk
            for pk, payload in self.others().items()
            # A payload ends with the time of the last write, in seconds since the epoch.
            if pk.startswith(_PAST) or float(payload.partition(" ")[2]) < oldest
        ]

    def _all(self) -> dict[str, str]:
        found = self._call(
            "query",
            filter=f"kind == {Kind.WRITER:d}",
            output_fields=["pk", "payload"],
            limit=MOST_ROWS,
        )
        return {row["pk"]: row["payload"] for row in found}
