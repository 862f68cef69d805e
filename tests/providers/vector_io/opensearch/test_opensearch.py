"""remote::opensearch beyond the conformance suite: settings, mappings, names, users."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError, MissingDependency, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.tokens import TOKENS
from corral.providers.vector_io.kit.write_ahead import FileWriteLog
from corral.providers.vector_io.opensearch import records
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import OpenSearchProvider, create

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


async def test_the_server_must_be_opensearch(handler: Handler) -> None:
    """Elasticsearch, and an OpenSearch that is too old, are named as such.

    If this fails: the first error is about an unknown type of field.
    """
    config = OpenSearchConfig(url=handler.url)
    for version, message in (
        ({"number": "9.1.0"}, "not OpenSearch"),
        ({"number": "2.5.0", "distribution": "opensearch"}, r"2\.5\.0 is too old"),
    ):
        handler.answer = {"version": version}
        provider = OpenSearchProvider("o1", config, FileWriteLog.of_home(scratch_home()))
        with pytest.raises(ConfigError, match=message):
            await provider.open_index(db(), create=True)
        await provider.close()


async def test_users_and_signatures_reach_the_server(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's name and password as basic authentication, or Amazon's signature of the region.

    If this fails: a cluster with the security plugin, or a domain of Amazon's, refuses everything.
    """
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    for settings, expected in (
        ({"user": "ann", "password": "secret"}, "Basic YW5uOnNlY3JldA=="),
        ({"aws_region": "eu-west-1"}, "AWS4-HMAC-SHA256 Credential=AKEXAMPLE/"),
    ):
        handler.seen.clear()
        config = OpenSearchConfig.model_validate({"url": handler.url, **settings})
        provider = OpenSearchProvider("o1", config, FileWriteLog.of_home(scratch_home()))
        assert (await provider.health()).status == "OK"
        assert all(one.startswith(expected) for one in handler.seen)
        assert len(handler.seen) == 2
        await provider.close()
    assert all("/eu-west-1/es/aws4_request" in one for one in handler.seen)


async def test_signing_needs_botocore(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    config = OpenSearchConfig(url=handler.url, aws_region="eu-west-1")
    provider = OpenSearchProvider("o1", config, FileWriteLog.of_home(scratch_home()))
    with pytest.raises(MissingDependency, match="botocore") as caught:
        await provider.open_index(db(), create=True)
    assert "opensearch-aws" in caught.value.command
    await provider.close()


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


class Handler(http.server.ThreadingHTTPServer):
    """A server that gives one answer to all requests.

    Attributes:
        answer: The answer's body.
        seen: The header `Authorization` of each request.
    """

    def __init__(self) -> None:
        self.answer: Json = {"version": {"number": "2.19.0", "distribution": "opensearch"}}
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), _Request)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Request(http.server.BaseHTTPRequestHandler):
    server: Handler

    def do_GET(self) -> None:
        self.server.seen.append(self.headers.get("Authorization", ""))
        body = json.dumps(self.server.answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def handler() -> Iterator[Handler]:
    """A server of the test's own."""
    with Handler() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
