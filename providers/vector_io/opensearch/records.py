"""The OpenSearch document of a chunk, and the settings and mappings of an index.

A document's id is a UUID derived from the chunk_id, since OpenSearch limits ids to 512 bytes.
Fields:

    chunk_id     ordered by its UTF-8 bytes, for listing
    content, metadata (JSON text), chunk_metadata (JSON text, if there is one)
                 the chunk as it was added; not indexed
    chunk        the same packed, which a search reads for each hit in a tenth of the time that the
                 fields take
    dense        the vector that searches compare: the embedding or its direction
    embedding    base64 of float32, only if `dense` is the direction (see `stores_direction`)
    attributes   tokens for filters (kit/tokens.py)
    terms        the analyzed words, separated by spaces, for OpenSearch's BM25
    words        base64 of the keys of the terms as int64 and their frequencies as float64, and
    length       the number of terms, for Corral's BM25

The mapping is strict: OpenSearch refuses any other field instead of guessing its type. `_meta`
records the layout.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.text.bm25 import K1, B
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit.batches import batches
from corral.providers.vector_io.kit.engine_bm25 import engine_terms
from corral.providers.vector_io.kit.records import (
    ReadFields,
    chunk_fields,
    pack_embedding,
    pack_fields,
    record_id,
    searched,
    stores_direction,
    unpack_embedding,
    unpack_fields,
)
from corral.providers.vector_io.kit.sparse import packed, sparse_chunk
from corral.providers.vector_io.kit.tokens import chunk_tokens, has_orderings, passes
from corral.providers.vector_io.opensearch.config import OpenSearchConfig

Json = dict[str, Any]

LAYOUT = 1
"""Version of the stored documents; increase it when their fields change. A newer one is refused."""

DENSE = "dense"

MAX_CARRIED = 50
"""Maximum hits of a search that brings their chunks. A search for more, as a leg of a hybrid query,
ranks many chunks that are not in the answer, so the answer's chunks are fetched afterwards."""

WINDOW = 10_000
"""Maximum hits of one answer: OpenSearch's default for `index.max_result_window`, and the maximum
k of its vector search."""

_MAX_TOKEN = 8_191  # Characters. Lucene's terms have at most 32,766 bytes; the default is 255.
_NAMESPACE = uuid.UUID("9c5f7f57-31c4-5b50-8a54-0f5b8f3f0e77")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Maximum sizes of requests and answers.

    Attributes:
        write_documents, write_bytes: Size of a bulk request; a single document may be larger.
        read_documents: Documents fetched by id per request.
    """

    write_documents: int = 500
    write_bytes: int = 4 * 2**20
    read_documents: int = 500


@dataclass(frozen=True, slots=True)
class Document:
    """A document to write, or a document that was read.

    Attributes:
        id: The UUID of the document.
        fields: All fields, or the requested ones.
    """

    id: str
    fields: Json

    @property
    def embedding(self) -> list[float]:
        """The embedding as it was added."""
        stored = self.fields.get("embedding")
        return unpack_embedding(stored) if stored else self.fields[DENSE]


def document_id(chunk_id: str) -> str:
    """Return the UUID of a chunk's document."""
    return record_id(_NAMESPACE, chunk_id)


def make_document(
    vector_db: VectorDB,
    chunk: Chunk,
    embedding: NDArray[np.float32],
    terms: ChunkTerms,
    version: int,
) -> Document:
    """Return the document of a chunk.

    Args:
        chunk: Not mutated.
        embedding: Shape (dimension,).
        terms: The terms of the chunk's fields.
        version: Version of the analyzer that made the terms.
    """
    words = sparse_chunk(terms, 0)
    as_added = chunk_fields(chunk)
    fields: Json = {
        **as_added,
        "chunk": pack_fields(as_added),
        "attributes": chunk_tokens(chunk, version),
        "terms": " ".join(engine_terms(terms)),
        "words": base64.b64encode(b"".join(packed(words.keys, words.frequencies))).decode("ascii"),
        "length": terms.length,
    }
    fields[DENSE] = searched(vector_db, embedding).tolist()
    if stores_direction(vector_db):
        fields["embedding"] = pack_embedding(embedding)
    return Document(document_id(chunk.chunk_id), fields)


def returned(limit: int, filters: Filter | None, *more: str) -> Json:
    """Return the part of a search that decides about its hits.

    They bring doc values only: for each hit, reading its stored fields, even its id, would take
    about as long as finding it.

    Args:
        limit: Maximum number of hits.
        filters: The filters of the search.
        more: Names of fields.
    """
    carries = limit <= MAX_CARRIED or has_orderings(filters)
    return {
        "size": limit,
        "docvalue_fields": ["chunk_id", *more, *(["chunk"] if carries else [])],
        "stored_fields": "_none_",
        "track_total_hits": False,
    }


def carried(hit: Json) -> ReadFields | None:
    """Return a function that reads the `chunk_fields` of a hit; None if they were not requested."""
    packed_fields = hit["fields"].get("chunk")
    return partial(unpack_fields, *packed_fields) if packed_fields else None


def really_passes(hit: Json, filters: Filter | None) -> bool:
    """Return True if a hit passes filters that OpenSearch may only narrow down."""
    return not has_orderings(filters) or passes(filters, unpack_fields(*hit["fields"]["chunk"]))


def unpacked(words: str) -> tuple[bytes, bytes]:
    """Return the field `words` in the form of `sparse.packed`."""
    data = base64.b64decode(f"{words}==")  # OpenSearch drops the padding.
    half = len(data) // 2
    return data[:half], data[half:]


def bulk_bodies(documents: Iterable[Document], limits: RequestLimits) -> Iterator[bytes]:
    """Yield the bodies of the bulk requests that store documents."""
    lines = (json_lines({"index": {"_id": one.id}}, one.fields) for one in documents)
    for part in batches(lines, len, limits.write_documents, limits.write_bytes):
        yield b"".join(part)


def bulk_deletion(ids: Iterable[str]) -> bytes:
    """Return the body of the bulk request that deletes documents."""
    return b"".join(json_lines({"delete": {"_id": one}}) for one in ids)


def json_lines(*values: Mapping[str, Any]) -> bytes:
    """Return values as JSON, each on a line."""
    texts = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in values)
    return b"".join(text.encode() + b"\n" for text in texts)


def space_type(vector_db: VectorDB) -> str:
    """Return OpenSearch's name for the metric of `dense`."""
    is_l2 = not vector_db.normalize and vector_db.metric is Metric.L2
    return "l2" if is_l2 else "innerproduct"


def product_of(score: float) -> float:
    """Return the inner product for a score of OpenSearch's `innerproduct`."""
    return score - 1 if score >= 1 else 1 - 1 / score


def index_body(vector_db: VectorDB, config: OpenSearchConfig, write_alias: str) -> Json:
    """Return the body of the request that creates an index."""
    settings: Json = {
        "knn": True,
        "number_of_shards": config.shards,
        "similarity": {"default": {"type": "BM25", "k1": K1, "b": B}},
        "analysis": {
            "tokenizer": {"words": {"type": "whitespace", "max_token_length": _MAX_TOKEN}},
            "analyzer": {"words": {"type": "custom", "tokenizer": "words"}},
        },
    }
    if config.replicas is not None:
        settings["number_of_replicas"] = config.replicas
    method = {
        "name": "hnsw",
        "engine": "lucene",
        "space_type": space_type(vector_db),
        "parameters": {"m": config.hnsw_m, "ef_construction": config.hnsw_ef_construction},
    }
    dimension = vector_db.embedding_dimension
    dense = {"type": "knn_vector", "dimension": dimension, "method": method}
    mappings = {
        "dynamic": "strict",
        "_meta": {"corral_layout": LAYOUT},
        "properties": {**_PROPERTIES, DENSE: dense},
    }
    return {
        "settings": {"index": settings},
        "mappings": mappings,
        "aliases": {write_alias: {"is_write_index": True}},
    }


_TEXT = {"type": "text", "index": False}
_PROPERTIES: dict[str, Json] = {
    "chunk_id": {"type": "keyword"},
    "content": _TEXT,
    "metadata": _TEXT,
    "chunk_metadata": _TEXT,
    "chunk": {"type": "binary", "doc_values": True},
    "embedding": {"type": "binary"},
    "attributes": {"type": "keyword", "doc_values": False},
    "terms": {"type": "text", "analyzer": "words", "index_options": "freqs"},
    "words": {"type": "binary", "doc_values": True},
    "length": {"type": "integer", "index": False},
}


def changes(mapping: Mapping[str, Any], vector_db: VectorDB) -> list[str]:
    """Return the names of the fields that differ from those that `index_body` creates."""
    properties = mapping.get("properties", {})
    changed = [
        name
        for name, made in _PROPERTIES.items()
        if properties.get(name, {}).get("type") != made["type"]
    ]
    if properties.get(DENSE, {}).get("dimension") != vector_db.embedding_dimension:
        changed.append(DENSE)
    if mapping.get("dynamic") != "strict":
        changed.append("dynamic")
    return changed
