"""OGX with Corral as its vector_io provider, over HTTP and in its process."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from corral_client import CorralClient
from ogx.core.library_client import OGXAsLibraryClient
from ogx_client import BadRequestError

TEXTS = {
    "fence": "A fence keeps the cattle in.",
    "hay": "Hay is stored in the barn.",
    "owl": "The owl sleeps in the barn.",
}
PROVIDERS = ["over-http", "in-process"]


@pytest.fixture(scope="module")
def ogx(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OGXAsLibraryClient]:
    """Yield OGX with both provider types."""
    client = start(server, tmp_path_factory.mktemp("ogx"))
    yield client
    client.shutdown()


def start(server: str, home: Path) -> OGXAsLibraryClient:
    """Return OGX with its files in a folder, which may be of an OGX that has ended."""
    (home / "config.yaml").write_text(yaml.safe_dump(configuration(server, home)))
    return OGXAsLibraryClient(str(home / "config.yaml"))


def configuration(server: str, home: Path) -> dict[str, Any]:
    """Return OGX's configuration; a server of Corral embeds the texts too."""
    stored = {"backend": "kv_default", "namespace": "vector_io"}
    return {
        "version": 2,
        "distro_name": "corral",
        "apis": ["inference", "files", "file_processors", "vector_io"],
        "providers": {
            "inference": [
                {
                    "provider_id": "models",
                    "provider_type": "remote::vllm",
                    "config": {"base_url": f"{server}/v1", "api_token": "none"},
                }
            ],
            "files": [
                {
                    "provider_id": "files",
                    "provider_type": "inline::localfs",
                    "config": {
                        "storage_dir": str(home / "files"),
                        "metadata_store": {"table_name": "files", "backend": "sql_default"},
                    },
                }
            ],
            "file_processors": [{"provider_id": "pypdf", "provider_type": "inline::pypdf"}],
            "vector_io": [
                {
                    "provider_id": "over-http",
                    "provider_type": "remote::corral",
                    "module": "ogx_corral",
                    "config": {"url": server, "persistence": stored | {"namespace": "remote"}},
                },
                {
                    "provider_id": "in-process",
                    "provider_type": "inline::corral",
                    "module": "ogx_corral",
                    "config": {
                        "home": str(home / "corral"),
                        "persistence": stored | {"namespace": "inline"},
                    },
                },
            ],
        },
        "storage": {
            "backends": {
                "kv_default": {"type": "kv_sqlite", "db_path": str(home / "kv.db")},
                "sql_default": {"type": "sql_sqlite", "db_path": str(home / "sql.db")},
            },
            "stores": {
                "metadata": {"namespace": "registry", "backend": "kv_default"},
                "inference": {"table_name": "inference", "backend": "sql_default"},
                "conversations": {"table_name": "conversations", "backend": "sql_default"},
                "prompts": {"table_name": "prompts", "backend": "sql_default"},
                "connectors": {"table_name": "connectors", "backend": "sql_default"},
            },
        },
        "registered_resources": {
            "models": [
                {
                    "model_id": "hashing",
                    "provider_id": "models",
                    "provider_model_id": "hashing",
                    "model_type": "embedding",
                    "metadata": {"embedding_dimension": 256},
                }
            ]
        },
    }


def store(ogx: OGXAsLibraryClient, provider: str) -> str:
    """Return the id of a new vector store."""
    extra = {
        "provider_id": provider,
        "embedding_model": "models/hashing",
        "embedding_dimension": 256,
    }
    created = ogx.vector_stores.create(name="notes", extra_body=extra)
    return str(created.id)


def fill(ogx: OGXAsLibraryClient, store_id: str) -> None:
    """Store the texts with their embeddings."""
    model = "models/hashing"
    made = ogx.embeddings.create(model=model, input=list(TEXTS.values())).data
    chunks = [
        {
            "chunk_id": name,
            "content": text,
            "metadata": {"document_id": name, "letters": len(name)},
            "chunk_metadata": {"document_id": name, "chunk_id": name, "source": f"{name}.txt"},
            "embedding": list(each.embedding),
            "embedding_model": model,
            "embedding_dimension": 256,
        }
        for (name, text), each in zip(TEXTS.items(), made, strict=True)
    ]
    ogx.vector_io.insert(vector_store_id=store_id, chunks=chunks)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_three_modes_and_filters(ogx: OGXAsLibraryClient, provider: str) -> None:
    """Each mode finds the best chunk first, with a score in [0, 1]; filters leave others out."""
    notes = store(ogx, provider)
    fill(ogx, notes)
    for mode in ("vector", "keyword", "hybrid", None):
        params = {"mode": mode, "max_chunks": 3}
        reply = ogx.vector_io.query(
            vector_store_id=notes, query="what keeps cattle in?", params=params
        )
        assert reply.chunks[0].content == TEXTS["fence"], mode
        assert all(0 <= score <= 1 for score in reply.scores), mode
        assert reply.chunks[0].chunk_metadata.source == "fence.txt"
    reply = ogx.vector_io.query(
        vector_store_id=notes,
        query="what is in the barn?",
        params={"mode": "hybrid", "filters": {"type": "eq", "key": "letters", "value": 5}},
    )
    assert [each.chunk_id for each in reply.chunks] == ["fence"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "ranker",
    [
        {"ranker": "rrf", "impact_factor": 30},
        {"ranker": "weighted", "alpha": 0.3},
        {"hybrid_search": {"embedding_weight": 0.2, "text_weight": 0.8}},
    ],
    ids=["rrf", "weighted", "openai"],
)
def test_ogxs_rankers(ogx: OGXAsLibraryClient, provider: str, ranker: dict[str, Any]) -> None:
    """A search with OGX's ranking options finds the best chunk first, with scores in [0, 1]."""
    notes = store(ogx, provider)
    fill(ogx, notes)
    reply = ogx.vector_stores.search(
        vector_store_id=notes,
        query="where is hay stored?",
        ranking_options=ranker,
        extra_body={"search_mode": "hybrid"},
    )
    assert reply.data[0].content[0].text == TEXTS["hay"]
    assert all(0 <= each.score <= 1 for each in reply.data)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_files_come_and_go(ogx: OGXAsLibraryClient, provider: str) -> None:
    """An attached file can be searched; once it is removed its chunks are gone."""
    notes = store(ogx, provider)
    content = io.BytesIO(TEXTS["owl"].encode())
    content.name = "owl.txt"
    file = ogx.files.create(file=content, purpose="assistants")
    attached = ogx.vector_stores.files.create(vector_store_id=notes, file_id=file.id)
    assert attached.status == "completed", attached.last_error
    found = ogx.vector_stores.search(vector_store_id=notes, query="owl").data
    assert [each.filename for each in found] == ["owl.txt"]
    ogx.vector_stores.files.delete(vector_store_id=notes, file_id=file.id)
    assert ogx.vector_stores.search(vector_store_id=notes, query="owl").data == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_corral_refuses_is_a_bad_request(ogx: OGXAsLibraryClient, provider: str) -> None:
    """Corral's message reaches the client of OGX."""
    notes = store(ogx, provider)
    with pytest.raises((BadRequestError, ValueError), match="max_chunks"):
        ogx.vector_io.query(
            vector_store_id=notes, query="owl", params={"mode": "keyword", "max_chunks": 0}
        )


def test_a_deleted_store_is_gone_from_corral(ogx: OGXAsLibraryClient, server: str) -> None:
    """The vector DB has the id of the store, and is deleted with it."""
    notes = store(ogx, "over-http")
    with CorralClient(server) as corral:
        assert corral.is_registered(notes)
        ogx.vector_stores.delete(vector_store_id=notes)
        assert not corral.is_registered(notes)


def test_a_store_that_corral_has_lost_can_be_deleted(ogx: OGXAsLibraryClient, server: str) -> None:
    """A query says that the store does not exist; deleting it succeeds.

    If this fails: a vector DB that was deleted in Corral stays in OGX's list for ever.
    """
    notes = store(ogx, "over-http")
    with CorralClient(server) as corral:
        corral.unregister(notes)
    params = {"mode": "keyword"}
    with pytest.raises(Exception, match="not found"):
        ogx.vector_io.query(vector_store_id=notes, query="owl", params=params)
    ogx.vector_stores.delete(vector_store_id=notes)
    assert notes not in [each.id for each in ogx.vector_stores.list().data]


RUN = f"""
import sys, runpy
from pathlib import Path
test = runpy.run_path({__file__!r})
server, home, provider, notes = sys.argv[1:]
ogx = test["start"](server, Path(home))
if notes:
    params = {{"mode": "keyword"}}
    reply = ogx.vector_io.query(vector_store_id=notes, query="owl", params=params)
    print("RESULT", *(each.chunk_id for each in reply.chunks))
else:
    notes = test["store"](ogx, provider)
    test["fill"](ogx, notes)
    print("RESULT", notes)
ogx.shutdown()
"""
"""A life of OGX: it cannot start twice on one database in one process."""


def live(server: str, home: Path, provider: str, notes: str = "") -> str:
    """Run OGX in a process of its own: fill a new store, or search one; return its last line."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, server, str(home), provider, notes],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    results = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, ran.stderr
    return results[-1].removeprefix("RESULT ")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_stores_outlive_a_restart(server: str, provider: str, tmp_path: Path) -> None:
    """After OGX has started again, the chunks are found."""
    notes = live(server, tmp_path, provider)
    assert live(server, tmp_path, provider, notes) == "owl"
