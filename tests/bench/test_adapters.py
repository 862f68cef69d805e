"""Adapters of foreign systems answer rightly; those whose engine is here are run for real."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import MissingDependency
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import (
    expanded,
    find_backends,
    installed,
    load_peer,
    peer_names,
    prepared,
)
from corral.bench.data.corpus import Corpus, share_limit, synthetic_corpus
from corral.bench.speed.checks import SpeedChecks
from corral.bench.speed.server_process import running_server
from corral.bench.system import Search
from corral.providers.embedding.hashing.embedder import embed_text

from ..providers.vector_io.opensearch.real_server import OpenSearchServer
from ..providers.vector_io.pgvector.conftest import postgresql
from ..providers.vector_io.qdrant.conftest import stand_in as qdrant_stand_in
from ..providers.vector_io.qdrant.real_server import QdrantServer
from ..providers.vector_io.real_server import running, started
from ..providers.vector_io.weaviate.real_server import WeaviateServer

K = 10
CORPUS = synthetic_corpus(400, dimension=64, questions=20)
FOREIGN = {
    *("chromadb", "faiss", "haystack", "lancedb", "langchain_core"),
    *("opensearchpy", "qdrant_client", "qdrant_edge", "scipy", "txtai", "weaviate"),
}


async def check(named: str, folder: Path, corpus: Corpus = CORPUS) -> None:
    """Hold an adapter's answers in every mode, with and without filters, against brute force."""
    [backend] = find_backends([named])
    checks = SpeedChecks(corpus, K)
    async with prepared(backend, folder, corpus.collection) as system:
        for start in range(0, len(corpus.texts), 150):
            rows = corpus.embeddings[start : start + 150]
            await system.add(corpus.chunks()[start : start + 150], rows)
        await system.build()
        for mode in system.modes:
            for selectivity in (None, 0.1) if system.filters else (None,):
                below, answers = share_limit(selectivity), []
                for text, row in zip(corpus.questions, corpus.asked, strict=True):
                    found = await system.search(Search(mode, text, row, K, below))
                    answers.append([one for one, _ in found])
                    assert len(found) <= K
                    assert set(answers[-1]) <= set(corpus.rows), "an unknown id"
                    assert len(set(answers[-1])) == len(found), "an id twice"
                    assert all(a >= b for (_, a), (_, b) in pairwise(found)), "not best first"
                right = checks.right(mode, selectivity, answers)
                assert right >= (0.95 if mode is SearchMode.VECTOR else 0.75), (mode, selectivity)
        if SearchMode.VECTOR in system.modes and not backend.address:
            own = Search(SearchMode.VECTOR, corpus.texts[7], corpus.embeddings[7], K)
            found = await system.search(own)
            assert found[0][0] == corpus.chunk_ids[7]
            assert found[0][1] == pytest.approx(1, abs=1e-5)


@pytest.mark.filterwarnings("default")  # what foreign packages warn of is theirs
@pytest.mark.parametrize("name", [n for n in peer_names() if not load_peer(n).service])
async def test_an_adapter_answers_as_brute_force_does(name: str, tmp_path: Path) -> None:
    """Ids, filters and the nearest by vector are right; what is absent says how it is installed.

    If this fails: ids are mapped wrongly, or a newer engine needs another call.
    """
    if installed(load_peer(name).requires):
        await check(name, tmp_path)
        return
    assert name not in {"exact", "faiss-flat", "qdrant-edge", "chroma-direct"}
    with pytest.raises(MissingDependency, match=name) as refused:
        await check(name, tmp_path)
    assert "pip install" in refused.value.hint


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", [n for n in peer_names() if not load_peer(n).service])
async def test_chunks_need_no_metadata(name: str, tmp_path: Path) -> None:
    """Documents of a judged set have none, and every installed adapter stores them."""
    if not installed(load_peer(name).requires):
        return  # as above

    [backend] = find_backends([name])
    texts = CORPUS.texts[:20]
    chunks = [Chunk(chunk_id=f"c{n}", content=text) for n, text in enumerate(texts)]
    async with prepared(backend, tmp_path, CORPUS.collection) as system:
        await system.add(chunks, CORPUS.embeddings[:20])
        await system.build()
        for mode in system.modes:
            found = await system.search(Search(mode, texts[3], CORPUS.embeddings[3], 5))
            assert found[0][0] == "c3"


async def test_pgvector_used_directly(tmp_path: Path) -> None:
    """The same, on a real PostgreSQL; its table is gone in the end."""
    with postgresql() as server:
        await check(f"pgvector-direct={server.dsn}", tmp_path)
        import psycopg

        with psycopg.connect(server.dsn) as connection:
            left = connection.execute("SELECT 1 FROM pg_tables WHERE tablename LIKE 'bench%'")
            assert left.fetchall() == []


def test_a_qdrant_server_used_directly(tmp_path: Path) -> None:
    """The same, on a server where there is one; its collection is gone in the end.

    If this fails: on a newer server the bare client needs another call.
    """
    with running(QdrantServer, qdrant_stand_in) as config:
        asyncio.run(check(f"qdrant-direct={config['url']}", tmp_path))
        left = httpx.get(f"{config['url']}/collections", trust_env=False).json()["result"]
    assert left["collections"] == []


if OpenSearchServer.found():

    def test_an_opensearch_server_used_directly(tmp_path: Path) -> None:
        """The same, on a server of this test's own."""
        with started(OpenSearchServer) as server:
            url = server.config["url"]
            asyncio.run(check(f"opensearch-direct={url}", tmp_path))
            assert httpx.get(f"{url}/_alias", trust_env=False).json() == {}


if WeaviateServer.found():  # the stand-in knows no words but Corral's

    def test_a_weaviate_server_used_directly(tmp_path: Path) -> None:
        """The same, on a server of this test's own."""
        with started(WeaviateServer) as server:
            address = f"{server.config['url']}#{server.config['grpc_port']}"
            asyncio.run(check(f"weaviate-direct={address}", tmp_path))
            left = httpx.get(f"{server.config['url']}/v1/schema", trust_env=False).json()
        assert left["classes"] == []


def test_a_server_that_speaks_llama_stack(tmp_path: Path) -> None:
    """The adapter works against Corral itself, which speaks the same; nothing is left there."""
    (tmp_path / "run.yaml").write_text(
        "providers: {embedding: [{provider_id: h, provider_type: 'inline::hashing', "
        "config: {dimension: 64}}]}"
    )
    rows = np.stack([embed_text(text, 64) for text in CORPUS.texts])
    asked = np.stack([embed_text(text, 64) for text in CORPUS.questions])
    with running_server(tmp_path) as url:
        named = f"llama-stack={url}#hashing"
        asyncio.run(
            check(named, tmp_path / "scratch", replace(CORPUS, embeddings=rows, asked=asked))
        )
        assert httpx.get(f"{url}/v1/vector-dbs").json()["data"] == []


def test_importing_adapters_imports_nothing_foreign() -> None:
    """`peer_names` and `load_peer` leave every engine alone: that is done in `prepare`.

    So do the commands, which leave scipy alone, too.
    """
    code = (
        "import sys, corral.bench.commands;"
        "from corral.bench.backends import peer_names, load_peer;"
        "[load_peer(name) for name in peer_names()];"
        f"print(sorted({FOREIGN!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_adapter_says_how_it_is_installed() -> None:
    """Its module names the command, and the distributions that it looks for."""
    for name in peer_names():
        module = sys.modules[load_peer(name).__module__]
        for distribution in load_peer(name).requires:
            in_extra = distribution in {"faiss-cpu"}
            assert in_extra or distribution in (module.__doc__ or ""), (name, distribution)


def test_all_peers_are_those_that_are_installed() -> None:
    """`all-peers` holds what needs no service and is there; `all-inline` Corral's own."""
    peers = expanded(["all-peers"])
    assert {"exact", "faiss-flat", "qdrant-edge", "chroma-direct"} <= set(peers)
    services = {"llama-stack", "opensearch-direct", "pgvector-direct", "qdrant-direct"}
    services.add("weaviate-direct")
    assert not services & set(peers)
    for name in peers:
        for distribution in load_peer(name).requires:
            metadata.distribution(distribution)
    assert {"sqlite", "faiss", "memory"} <= set(expanded(["all-inline", "sqlite"]))
    assert expanded(["sqlite", "all-inline"]).count("sqlite") == 1
    named = [backend.name for backend in find_backends(["all-peers", "", "exact"])]
    assert sorted(named) == sorted(peers)
