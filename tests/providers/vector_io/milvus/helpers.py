"""What the tests of Milvus share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.testing.oracle import bm25
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.milvus.config import MilvusConfig, RemoteMilvusConfig
from corral.providers.vector_io.milvus.provider import MilvusProvider, create, create_remote

from ..engines import engine_of, scratch_home
from ..registrations import registration


def registered(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration; nothing is stemmed, so that BM25 can be computed from words."""
    words = {"language": "simple", "field_weights": {"content": 1.0}}
    return registration("milvus", identifier, **{**words, "created_at": time.time(), **settings})


def lite(folder: Path, **options: int) -> MilvusProvider:
    """Return an inline provider."""
    return create("lite", MilvusConfig(folder=folder), folder, **options)


def remote(uri: str, **options: Any) -> MilvusProvider:
    """Return a remote provider; it counts anew for each query unless asked otherwise."""
    options = {"statistics_max_age_seconds": 0, **options}
    return create_remote("far", RemoteMilvusConfig(uri=uri, **options), scratch_home())


async def counting(
    provider: MilvusProvider, by_server: bool, vector_db: VectorDB | None = None
) -> EngineIndex:
    """Return a new index, where asked for one whose server counts the chunks that hold a term.

    That is what is done with a Milvus that has indexes of arrays; Milvus Lite's server gives the
    same answers, slowly.
    """
    index = await provider.open_index(vector_db or registered(), create=True)
    engine_of(index).collection.is_lite = provider.connection.embedded or not by_server
    return index


def words(texts: dict[str, str], **metadata: Any) -> list[Chunk]:
    """Return a chunk for each id and text."""
    return [Chunk(chunk_id=i, content=text, metadata=metadata) for i, text in texts.items()]


async def rows_left(index: EngineIndex, expression: str) -> list[str]:
    """Return the primary keys of the rows that pass, as Milvus has them."""
    found = engine_of(index).collection.connection.call(
        "query",
        engine_of(index).collection.name,
        filter=expression,
        output_fields=["pk"],
        limit=1000,
    )
    return sorted(row["pk"] for row in found)


async def keyword(index: EngineIndex, text: str, k: int = 100) -> dict[str, float]:
    """Return raw keyword scores by chunk id."""
    hits = (await index.query(None, text, k, mode="keyword")).hits
    return {hit.chunk.chunk_id: hit.explanation.legs["keyword"].raw_score for hit in hits}


def expected_scores(query: str, texts: dict[str, str]) -> dict[str, float]:
    """Return the definition's scores."""
    return bm25(query, {i: {"content": text} for i, text in texts.items()}, {"content": 1.0})
