"""remote::opensearch beyond the conformance suite: settings, mappings, names."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.records import MAX_PACKED_TEXT
from corral.providers.vector_io.kit.tokens import TOKENS
from corral.providers.vector_io.opensearch import records
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import create

from ..engines import scratch_home
from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from ..registrations import registration

Json = dict[str, Any]


@pytest.mark.parametrize(
    "config",
    [
        {"url": "127.0.0.1:9200"},
        {"url": "http://user:secret@host"},
        {"url": "http://host/path"},
        {"url": "http://host", "other_urls": ["https://other"]},
        {"user": "ann"},
        {"password": "secret"},
        {"user": "ann", "password": "secret", "aws_region": "eu-west-1"},
        {"index_prefix": "Upper"},
        {"timeout_seconds": 0},
        {"colour": "red"},
    ],
)
def test_settings_that_cannot_work_are_refused(config: Json) -> None:
    """A wrong address, half a login, a prefix that no index may have, an unknown key."""
    with pytest.raises(ValidationError):
        OpenSearchConfig.model_validate(config)


def db(**settings: Any) -> VectorDB:
    """Return a registration of its own."""
    return registration("o1", **{"language": "simple", "created_at": time.time(), **settings})


@asynccontextmanager
async def opened(
    config: OpenSearchConfig, vector_db: VectorDB
) -> AsyncIterator[tuple[EngineIndex, str]]:
    """Open a new index, yield it with its name, and drop it in the end."""
    provider = create("o1", config, scratch_home())
    index = await provider.open_index(vector_db, create=True)
    try:
        yield index, stored_name(vector_db, config.index_prefix)
    finally:
        await index.delete()
        await provider.close()


def sent(config: OpenSearchConfig, method: str, path: str, body: Json | None = None) -> Json:
    """Send a request without Corral, and return the answer."""
    with httpx.Client(base_url=config.url, trust_env=False, timeout=30) as client:
        answer: Json = client.request(method, path, json=body).raise_for_status().json()
        return answer


async def test_the_index_leaves_nothing_to_the_clusters_defaults(config: OpenSearchConfig) -> None:
    """Strict mapping, BM25 by Corral's constants, words as they are, the settings of the graph.

    If this fails: a user's key becomes a field, or the cluster's templates decide the scores.
    """
    settings = config.model_copy(update={"hnsw_m": 8, "replicas": 0, "shards": 2})
    async with opened(settings, db(metric="l2", normalize=False)) as (_, name):
        made = sent(config, "GET", f"/{name}")[name]
        index, mappings = made["settings"]["index"], made["mappings"]
        assert (index["number_of_shards"], index["number_of_replicas"]) == ("2", "0")
        assert index["similarity"]["default"] == {"type": "BM25", "k1": "1.2", "b": "0.75"}
        assert mappings["dynamic"] == "strict"
        dense = mappings["properties"]["dense"]["method"]
        assert (dense["engine"], dense["space_type"]) == ("lucene", "l2")
        assert dense["parameters"]["m"] == 8
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            sent(config, "POST", f"/{name}/_doc", {"colour": "red"})


async def test_shards_change_no_answer(config: OpenSearchConfig) -> None:
    """Scores and ties of an index of three shards are those of one.

    If this fails: each shard ranks by its own statistics.
    """
    ids = [f"c{n:02d}" for n in range(40)]
    chunks = [Chunk(chunk_id=i, content="zebra " * (n % 3) + f"lion{n % 5}") for n, i in
              enumerate(ids)]  # fmt: skip
    rows = np.random.default_rng(5).normal(size=(40, 2)).astype(np.float32)
    answers = []
    for shards in (1, 3):
        settings = config.model_copy(update={"shards": shards, "replicas": 0})
        async with opened(settings, db()) as (index, _):
            await index.add_chunks(chunks, rows)
            for mode in ("vector", "keyword", "hybrid"):
                hits = (await index.query([1, 0], "zebra lion3", k=7, mode=mode)).hits
                answers.append([(hit.chunk.chunk_id, round(hit.score, 6)) for hit in hits])
    assert answers[:3] == answers[3:]


async def test_a_write_to_an_index_that_is_gone_creates_none(config: OpenSearchConfig) -> None:
    """The caller learns that the data is gone, and OpenSearch makes up no index by guessing.

    If this fails: after a deletion by another process a new index has the mapping of its first
    document, and vector search finds nothing.
    """
    vector_db = db()
    async with opened(config, vector_db) as (index, name):
        sent(config, "DELETE", f"/{name}")
        with pytest.raises(NotFound):
            await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1.0, 0.0]])
        for call in (index.count(), index.query([1, 0], k=1, mode="vector")):
            with pytest.raises(NotFound):
                await call
        assert name not in sent(config, "GET", "/_alias")


async def test_a_newer_layout_and_another_mapping_are_refused(config: OpenSearchConfig) -> None:
    """Neither is opened; the message says which fields differ.

    If this fails: an older Corral writes what a newer one misreads.
    """
    vector_db = db()
    async with opened(config, vector_db) as (_, name):
        provider = create("o1", config, scratch_home())
        sent(config, "PUT", f"/{name}/_mapping", {"dynamic": True})
        with pytest.raises(ConfigError, match=r"mapping.*dynamic"):
            await provider.open_index(vector_db)
        changed = {"dynamic": "strict", "_meta": {"corral_layout": records.LAYOUT + 1}}
        sent(config, "PUT", f"/{name}/_mapping", changed)
        with pytest.raises(ConfigError, match="newer Corral"):
            await provider.open_index(vector_db, create=True)
        await provider.close()


async def test_a_new_analyzer_analyzes_all_chunks_again(config: OpenSearchConfig) -> None:
    """Chunks of another version of the analyzer are written again when the index is opened."""
    vector_db = db(metric="cosine", normalize=False)
    async with opened(config, vector_db) as (index, name):
        await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[3.0, 4.0]])
        [hit] = sent(config, "GET", f"/{name}/_search")["hits"]["hits"]
        fields = hit["_source"]
        tokens = fields["attributes"]
        tokens[tokens.index(TOKENS.version(ANALYZER_VERSION))] = TOKENS.version(1)
        path = f"/{name}/_doc/{hit['_id']}?refresh=true"
        sent(config, "PUT", path, {**fields, "terms": "other"})
        provider = create("o1", config, scratch_home())
        again = await provider.open_index(vector_db)
        [best] = (await again.query(None, "zebra", k=1, mode="keyword")).hits
        assert best.chunk.chunk_id == "a"
        assert (await again.query(None, "other", k=1, mode="keyword")).hits == []
        [chunk] = await again.get_chunks(["a"], include_embeddings=True)
        assert chunk.embedding == [3.0, 4.0]
        await again.close()
        await provider.close()


async def test_a_hit_brings_its_chunk_or_it_is_fetched(config: OpenSearchConfig) -> None:
    """Searches for few chunks and for many, in all modes, return the same whole chunks; one of them
    is too long for a hit.

    If this fails: a chunk lacks its metadata, or has the text of an earlier version.
    """
    ids = [f"c{n:03d}" for n in range(records.MAX_CARRIED + 20)]
    chunks = [
        Chunk(chunk_id=i, content=f"zebra {i}", metadata={"document_id": i, "tags": [i, "x"]})
        for i in ids
    ]
    chunks[7].content += " long" * MAX_PACKED_TEXT
    rows = np.random.default_rng(6).normal(size=(len(ids), 2))
    async with opened(config, db()) as (index, _):
        await index.add_chunks(chunks, rows)
        stored = {one.chunk_id: one for one in await index.get_chunks(ids)}
        for mode in ("vector", "keyword", "hybrid"):
            many = (await index.query([1, 0], "zebra c007", k=len(ids), mode=mode)).hits
            few = (await index.query([1, 0], "zebra c007", k=5, mode=mode)).hits
            if mode != "hybrid":  # its scores depend on the number of candidates
                assert few == many[:5]
            assert all(hit.chunk == stored[hit.chunk.chunk_id] for hit in [*many, *few])


async def test_ids_are_listed_over_several_pages(config: OpenSearchConfig) -> None:
    """More chunks than an answer holds, in order, from an id on; and no context stays open.

    If this fails: `corral copy` misses chunks, or the cluster runs out of contexts.
    """
    ids = [f"c{n:05d}" for n in range(records.WINDOW + 50)]
    chunks = [Chunk(chunk_id=i, content="zebra") for i in reversed(ids)]
    async with opened(config, db(embedding_dimension=1)) as (index, _):
        for start in range(0, len(chunks), 2_000):
            part = chunks[start : start + 2_000]
            await index.add_chunks(part, [[1.0]] * len(part))
        assert await index.chunk_ids("", limit=20_000) == ids
        assert await index.chunk_ids(ids[30], limit=3) == ids[31:34]
        assert sent(config, "GET", "/_search/point_in_time/_all").get("pits", []) == []


async def test_an_orphan_is_found_and_removed(config: OpenSearchConfig) -> None:
    """An index that was never registered has a name, and goes on request; the rest stays."""
    prefix = f"{config.index_prefix}o{uuid.uuid4().hex[:6]}-"
    own = config.model_copy(update={"index_prefix": prefix})
    provider = create("o1", own, scratch_home())
    await check_orphans(provider)
    await provider.close()


async def test_installations_delete_only_their_own(
    config: OpenSearchConfig, tmp_path: Path
) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    prefix = f"{config.index_prefix}i{uuid.uuid4().hex[:6]}-"
    settings = {"url": config.url, "timeout_seconds": 30, "index_prefix": prefix}
    await check_installations(tmp_path, "remote::opensearch", settings)
    await check_pruning_beside(tmp_path, "remote::opensearch", settings)
